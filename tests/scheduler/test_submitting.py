"""Submitting work and getting its results, as a user sees it."""

import asyncio
import dataclasses
import enum
import uuid
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import attrs
import msgspec
import pydantic
import pytest

from duly import (
    ConfigurationError,
    Context,
    PayloadError,
    ResultExpired,
    RunCancelled,
    RunFailed,
    Scheduler,
    SchedulerConfig,
    State,
)
from duly.errors import RunNotFound


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


@attrs.define
class Size:
    width: int


class Box(msgspec.Struct):
    points: list[Point]


class Order(pydantic.BaseModel):
    number: int
    lines: list[str] = []


async def test_a_submitted_run_is_run_and_its_result_returned(url):
    scheduler = Scheduler(url)

    @scheduler.job()
    async def add(a: int, b: int = 2) -> int:
        return a + b

    async with scheduler:
        run = await add.submit(a=40)
        assert await run.result(timeout=30) == 42
        assert await (await add.submit(1, b=1)).result(timeout=30) == 2
        stored = await run.get()
    assert stored.state is State.COMPLETED
    assert not run.deduplicated


async def test_sync_handlers_run_in_threads(url):
    scheduler = Scheduler(url)

    @scheduler.job()
    def shout(text: str) -> str:
        return text.upper()

    async with scheduler:
        assert await (await shout.submit("hi")).result(timeout=30) == "HI"


async def test_calling_a_handle_calls_the_plain_function():
    scheduler = Scheduler("memory://")

    @scheduler.job()
    async def double(n: int) -> int:
        """Twice."""
        return n * 2

    @scheduler.job
    def half(n: int) -> float:
        return n / 2

    assert await double(4) == 8
    assert half(4) == 2
    assert (double.name, double.__name__, double.__doc__) == ("double", "double", "Twice.")


async def test_values_come_back_as_the_types_they_were(url):
    scheduler = Scheduler(url)
    seen = []

    @scheduler.job()
    async def take(
        when: datetime,
        key: uuid.UUID,
        price: Decimal,
        colour: Colour,
        point: Point,
        size: Size,
        box: Box,
        order: Order,
        pair: tuple[int, str],
        ids: set[int],
        huge: int,
        maybe: float | None = None,
    ) -> Box:
        seen.extend([when, key, price, colour, point, size, box, order, pair, ids, huge, maybe])
        return box

    given = [
        datetime(2027, 1, 1, 12, tzinfo=UTC),
        uuid.uuid4(),
        Decimal("1.10"),
        Colour.RED,
        Point(1),
        Size(3),
        Box([Point(1, 2)]),
        Order(number=7, lines=["a"]),
        (1, "x"),
        {1, 2},
        2**80,
    ]
    names = ["when", "key", "price", "colour", "point", "size", "box", "order", "pair", "ids", "huge"]
    async with scheduler:
        run = await take.submit(**dict(zip(names, given, strict=True)))
        assert await run.result(timeout=30) == Box([Point(1, 2)])
    assert seen == [*given, None]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"to": 5}, r"Expected `str`, got `int` - at `\$.to`"),
        ({}, "missing required field `to`"),
        ({"to": "a", "cc": "b"}, "unknown field `cc`"),
        ({"to": "a", "n": "1"}, "Expected `int`, got `str`"),
        ({"to": "a", "n": True}, "Expected `int`, got `bool`"),
        ({"to": "a", "share": float("nan")}, "nan"),
        ({"to": "a", "share": float("inf")}, "inf"),
        ({"to": "a", "anything": object()}, "anything"),
        ({"to": "a", "anything": {1: 2}}, "annotate the parameter"),
        ({"to": "a", "anything": datetime(2027, 1, 1, tzinfo=UTC)}, "annotate the parameter"),
        ({"to": "a", "anything": [1, float("nan")]}, "nan"),
        ({"to": "\ud800"}, "to"),
        ({"to": "x" * 300_000}, "max_payload_bytes=262144"),
    ],
)
async def test_a_payload_that_does_not_fit_is_refused_at_submission(arguments, complaint):
    scheduler = Scheduler("memory://")

    @scheduler.job()
    async def mail(to: str, n: int = 1, share: float | None = None, anything=None) -> None: ...

    with pytest.raises(PayloadError, match=complaint):
        await mail.submit(**arguments)
    assert (await scheduler.runs()).runs == []


async def test_positional_arguments_are_bound_by_name():
    scheduler = Scheduler("memory://")

    @scheduler.job()
    async def mail(to: str, subject: str = "") -> None: ...

    with pytest.raises(PayloadError, match="takes 2 arguments, 3 were given"):
        await mail.submit("a", "b", "c")
    with pytest.raises(PayloadError, match="to twice"):
        await mail.submit("a", to="b")
    run = await mail.submit("a", subject="s")
    assert (await run.get()).payload == b'{"to":"a","subject":"s"}'


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"delay": -1}, "delay=-1"),
        ({"delay": float("nan")}, "delay=nan"),
        ({"delay": "10m"}, "delay='10m'"),
        ({"at": datetime(2027, 1, 1)}, "naive"),
        ({"at": datetime(2027, 1, 1, tzinfo=UTC), "delay": 5}, "both"),
        ({"priority": 10}, "priority=10"),
        ({"priority": -1}, "priority=-1"),
        ({"priority": 1.5}, "priority=1.5"),
        ({"queue": "a b"}, "queue='a b'"),
        ({"dedupe_key": ""}, "dedupe_key=''"),
        ({"dedupe_key": "x" * 600}, "dedupe_key"),
        ({"unique_for": 60}, "needs a dedupe_key"),
        ({"unique_for": 0, "dedupe_key": "k"}, "unique_for=0: expected"),
        ({"unique_for": float("nan"), "dedupe_key": "k"}, "unique_for=nan: expected"),
        ({"unique_for": 1e9, "dedupe_key": "k"}, "from 0 to 31622400"),
        ({"unique_for": True, "dedupe_key": "k"}, "unique_for=True: expected"),
    ],
)
async def test_bad_options_are_refused_and_name_themselves(options, complaint):
    scheduler = Scheduler("memory://")

    @scheduler.job()
    async def mail() -> None: ...

    with pytest.raises(ConfigurationError, match=complaint):
        mail.options(**options)
    with pytest.raises(ConfigurationError, match=complaint):
        await scheduler.submit("mail", **options)


async def test_options_say_when_and_how():
    scheduler = Scheduler("memory://")

    @scheduler.job(queue="mail", priority=1)
    async def mail(to: str) -> None: ...

    plain = await (await mail.submit("a")).get()
    assert (plain.queue, plain.priority) == ("mail", 1)
    late = await mail.options(delay=timedelta(minutes=10), priority=5, queue="slow", dedupe_key="k").submit("a")
    again = await mail.options(dedupe_key="k").submit("b")
    assert (again.id, again.deduplicated) == (late.id, True)
    run = await late.get()
    assert (run.queue, run.priority, run.state) == ("slow", 5, State.PENDING)
    assert run.ready_at - run.created_at > timedelta(minutes=9)
    at = datetime(2040, 1, 1, tzinfo=UTC)
    assert (await (await mail.options(at=at).submit("a")).get()).due == at


async def test_a_repeat_within_its_time_gets_the_first_run_whatever_its_state(url):
    scheduler = Scheduler(url)

    @scheduler.job()
    async def mail(to: str) -> str:
        return to

    async with scheduler:
        welcome = mail.options(dedupe_key="welcome", unique_for=timedelta(hours=1))
        first = await welcome.submit("ada")
        assert await first.result(timeout=30) == "ada"
        again = await welcome.submit("eve")
        assert (again.id, again.deduplicated, await again.result(timeout=30)) == (first.id, True, "ada")
        assert again.created_at == first.created_at == (await first.get()).created_at
        by_name = await scheduler.submit("mail", {"to": "eve"}, dedupe_key="welcome", unique_for=60)
        assert by_name.id == first.id
        brief = await scheduler.submit("mail", {"to": "eve"}, dedupe_key="brief")
        await brief.result(timeout=30)
        assert not (await scheduler.submit("mail", {"to": "eve"}, dedupe_key="brief")).deduplicated


def test_a_repeat_without_an_event_loop_gets_the_first_run(tmp_path):
    scheduler = Scheduler(f"sqlite:///{tmp_path}/duly.db")
    first = scheduler.sync.submit("mail", {}, dedupe_key="k", unique_for=60)
    first.cancel()
    again = scheduler.sync.submit("mail", {}, dedupe_key="k", unique_for=60)
    assert (again.id, again.deduplicated, again.created_at) == (first.id, True, first.created_at)
    scheduler.sync.close()


async def test_many_are_submitted_in_order(url):
    scheduler = Scheduler(url)
    seen = []

    @scheduler.job()
    async def note(n: int) -> int:
        seen.append(n)
        return n

    async with scheduler:
        runs = await note.submit_many({"n": n} for n in range(50))
        assert [await run.result(timeout=30) for run in runs] == list(range(50))
        more = await scheduler.submit_many("note", [{"n": 100}], priority=9)
        assert await more[0].result(timeout=30) == 100
    assert sorted(seen) == [*range(50), 100]


async def test_one_bad_payload_among_many_submits_none():
    scheduler = Scheduler("memory://")

    @scheduler.job()
    async def note(n: int) -> None: ...

    with pytest.raises(PayloadError):
        await note.submit_many([{"n": 1}, {"n": "two"}])
    assert (await scheduler.runs()).runs == []
    with pytest.raises(ConfigurationError, match="dedupe_key"):
        await note.options(dedupe_key="k").submit_many([{"n": 1}, {"n": 2}])


async def test_concurrent_submissions_are_all_kept(url):
    scheduler = Scheduler(url)

    @scheduler.job()
    async def note(n: int) -> int:
        return n

    async with scheduler:
        runs = await asyncio.gather(*[note.submit(n=n) for n in range(200)])
        assert len({run.id for run in runs}) == 200
        assert [await run.result(timeout=30) for run in runs] == list(range(200))


async def test_a_failed_run_tells_why(url):
    scheduler = Scheduler(url)

    @scheduler.job(retry=None)
    async def broken() -> None:
        raise ValueError("no luck")

    async with scheduler:
        run = await broken.submit()
        with pytest.raises(RunFailed, match="ValueError: no luck") as caught:
            await run.result(timeout=30)
    assert (caught.value.error_type, caught.value.message) == ("ValueError", "no luck")
    assert "raise ValueError" in caught.value.traceback
    assert "duly/runtime" not in caught.value.traceback
    assert caught.value.run.state is State.FAILED


async def test_a_cancelled_run_tells_so():
    scheduler = Scheduler("memory://")

    @scheduler.job()
    async def mail() -> None: ...

    run = await mail.options(delay=60).submit()
    await run.cancel("changed my mind")
    with pytest.raises(RunCancelled, match="changed my mind"):
        await run.result(timeout=30)


async def test_waiting_for_a_result_may_take_too_long():
    scheduler = Scheduler("memory://")

    @scheduler.job()
    async def mail() -> None: ...

    run = await mail.submit()
    with pytest.raises(TimeoutError, match="it goes on"):
        await run.result(timeout=0.01)
    assert (await run.get()).state is State.QUEUED


async def test_a_run_that_never_was_is_not_found():
    scheduler = Scheduler("memory://")
    for ask in (scheduler.get_run, scheduler.cancel, scheduler.redrive):
        with pytest.raises(RunNotFound, match="0nothing"):
            await ask("0nothing")


async def test_a_result_that_cannot_be_kept_does_not_undo_the_run(url):
    scheduler = Scheduler(url, SchedulerConfig(max_result_bytes=100))

    @scheduler.job()
    async def large() -> str:
        return "x" * 1000

    @scheduler.job()
    async def odd():
        return object()

    @scheduler.job()
    async def nan() -> float:
        return float("nan")

    async with scheduler:
        for job, why in ((large, "1002 bytes are more than max_result_bytes=100"), (odd, "object"), (nan, "nan")):
            run = await job.submit()
            with pytest.raises(ResultExpired, match=why):
                await run.result(timeout=30)
            assert (await run.get()).state is State.COMPLETED


async def test_a_handler_that_this_process_does_not_know_may_be_submitted_to(url):
    producer = Scheduler(url if url.startswith("sqlite") else "memory://shared")
    run = await producer.submit("elsewhere", {"n": 1})
    assert (await run.get()).state is State.QUEUED
    consumer = Scheduler(url if url.startswith("sqlite") else "memory://shared")

    @consumer.job()
    async def elsewhere(n: int) -> int:
        return n + 1

    async with consumer:
        assert await run.result(timeout=30) == 2
    await producer.close()


async def test_a_payload_that_fits_no_more_is_recorded_and_can_be_redriven(url):
    producer = Scheduler(url if url.startswith("sqlite") else "memory://shared2")
    run = await producer.submit("charge", {"cents": "5"})
    consumer = Scheduler(url if url.startswith("sqlite") else "memory://shared2")

    @consumer.job()
    async def charge(cents: int) -> int:
        return cents

    async with consumer:
        with pytest.raises(RunFailed, match=r"Expected `int`, got `str` - at `\$.cents`"):
            await run.result(timeout=30)
        assert (await run.get()).failures == 1
    await producer.close()


async def test_the_context_tells_about_the_run(url):
    scheduler = Scheduler(url)
    seen = {}

    @scheduler.job(timeout=60)
    async def look(ctx: Context, n: int) -> None:
        ctx.check()
        ctx.progress(1, 2, "half")
        ctx.log.info("looking")
        seen.update(
            run_id=ctx.run_id,
            job=ctx.job,
            attempt=ctx.attempt,
            due=ctx.due,
            deadline=ctx.deadline,
            fence=ctx.fence,
            key=ctx.idempotency_key,
            cancelled=ctx.cancelled,
        )

    async with scheduler:
        run = await look.submit(n=1)
        await run.result(timeout=30)
        stored = await run.get()
    assert (seen["run_id"], seen["job"], seen["attempt"], seen["key"]) == (run.id, "look", 1, run.id)
    assert (seen["due"], seen["fence"], seen["cancelled"]) == (stored.due, stored.fence, False)
    assert seen["deadline"] - stored.started_at == timedelta(seconds=60)
