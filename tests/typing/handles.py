"""The types of the public surface, as mypy and pyright see them. Checked, never run."""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, assert_type

from duly import Context, Cron, Every, Job, JobHandle, Once, RetryPolicy, Run, RunHandle, Scheduler, SchedulerConfig
from duly.model import LogLine

scheduler = Scheduler("memory://", SchedulerConfig(max_concurrent=5))


@scheduler.job(Cron("30 2 * * *", timezone="Europe/Berlin"), timeout=600, retry=RetryPolicy.exponential(5))
async def nightly(ctx: Context) -> None: ...


@scheduler.job(Every(seconds=15), overlap="skip")
def heartbeat() -> None: ...


@scheduler.job(queue="mail")
async def send_mail(to: str, subject: str = "") -> str:
    return to + subject


@scheduler.job()
async def with_context(ctx: Context, number: int, *, flag: bool = False) -> list[int]:
    return [number]


@scheduler.job(timeout=timedelta(minutes=1), retry=None, executor="process")
def count(words: list[str]) -> dict[str, int]:
    return dict.fromkeys(words, 1)


@scheduler.job
async def bare(number: int) -> float:
    return number / 2


@scheduler.job
def bare_sync(path: Path) -> Path:
    return path / "x"


class Shop:
    async def sell(self, what: str) -> int:
        return len(what)


class Doubling:
    def __call__(self, number: int) -> int:
        return 2 * number


sell = scheduler.job(Every(seconds=15))(Shop().sell)
double = scheduler.job(name="double")(Doubling())


async def submitting() -> None:
    assert_type(await send_mail.submit(to="a", subject="b"), RunHandle[str])
    assert_type(await (await send_mail.submit("a")).result(timeout=5), str)
    assert_type(await (await with_context.submit(1, flag=True)).result(), list[int])
    assert_type(await (await count.submit(["a"])).result(), dict[str, int])
    assert_type(await (await bare.submit(3)).result(), float)
    assert_type(await (await nightly.submit()).result(), None)
    assert_type(await send_mail.options(delay=600, priority=5, dedupe_key="k").submit(to="a"), RunHandle[str])
    assert_type(send_mail.sync.submit(to="a").result(), str)
    assert_type(await (await send_mail.submit(to="a")).get(), Run)
    many = await send_mail.submit_many([{"to": "a"}])
    assert_type(many, list[RunHandle[str]])
    handle: RunHandle[Any] = await scheduler.submit("send_mail", {"to": "a"}, at=datetime.now(UTC))
    assert handle.id


async def by_id(run_id: str) -> None:
    assert_type(scheduler.run(run_id), RunHandle[Any])
    assert_type(send_mail.run(run_id), RunHandle[str])
    assert_type(await send_mail.run(run_id).result(), str)
    assert_type(await scheduler.run(run_id).wait(timeout=5), Run)
    assert_type(send_mail.sync.run(run_id).result(timeout=5), str)
    assert_type(scheduler.sync.run(run_id).wait(), Run)
    assert_type(await scheduler.run(run_id).logs(after=3, limit=10, attempt=1), list[LogLine])
    assert_type(await (await send_mail.submit(to="a")).logs(), list[LogLine])
    assert_type(scheduler.sync.run(run_id).logs(), list[LogLine])
    scheduler.sync.run(run_id).logs(3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    assert_type(await scheduler.register(Job(handler=count.function)), JobHandle[Any, Any, Any])
    scheduler.run(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def callables() -> None:
    assert_type(await (await bare_sync.submit(Path("a"))).result(), Path)
    assert_type(await (await sell.submit("tea")).result(), int)
    assert_type(await (await double.submit(5)).result(), int)
    await bare_sync.submit("a")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await sell.submit(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await double.submit(number="5")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def calling(ctx: Context) -> None:
    assert_type(await send_mail("a"), str)
    assert_type(heartbeat(), None)
    assert_type(count(["a"]), dict[str, int])
    assert_type(await with_context(ctx, 1), list[int])
    waiting: Awaitable[float] = bare(1)
    assert_type(await waiting, float)


async def refused() -> None:
    await send_mail.submit(to=5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await send_mail.submit(cc="a")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await with_context.submit("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await nightly.submit(1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    send_mail.options(delays=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await send_mail.submit("a", delay=10)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    scheduler.job(cron="0 3 * * *")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    scheduler.job(retry="3")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    scheduler.start()  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]
    scheduler.job(overlap="maybe")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


def defining() -> None:
    scheduler.add(Job(handler=count.function, schedule=Once(datetime.now(UTC)), name="once", tags=("a",)))


def generic(handle: JobHandle[Any, [int], str]) -> None:
    assert handle.name
