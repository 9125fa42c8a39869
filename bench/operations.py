"""How long operations on many runs take, through the ports: `python -m bench.operations [--backend postgres]`.

Each row is one call, or the calls in slices that its callers make: cancelling, redriving, removing a job with its
waiting runs, holding and putting back the runs of a paused job, purging, reaping, placing. Servers are started for it.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from duly.backends import open_backend
from duly.model import (
    Assignment,
    Failed,
    Failure,
    Ids,
    JobChange,
    JobRecord,
    JobSpec,
    Origin,
    Pause,
    Run,
    RunPolicy,
    State,
    WhenFull,
)
from duly.model.run import RetrySpec
from duly.ports import Backend, Opening
from duly.rules.settling import settle
from duly.testing.postgres_servers import postgres_server
from duly.testing.servers import redis_server

SLICE = 1000
NO_RETRY = RunPolicy(retry=RetrySpec(max_retries=0))
ids = Ids(lambda: datetime.now(UTC), random.Random(1))

Round = Callable[["Bench", int], AsyncIterator[tuple[str, Callable[[], Awaitable[object]]]]]


class Bench:
    """One opened backend on an empty store."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.request = 0

    async def put(self, number: int, **fields: object) -> list[str]:
        now = datetime.now(UTC)
        runs = [
            Run(**{"id": ids.new(), "job": "mail", "handler": "mail", "due": now, "ready_at": now} | fields)
            for _ in range(number)
        ]
        for start in range(0, number, SLICE):
            await self.backend.queue.put(runs[start : start + SLICE])
        return [run.id for run in runs]

    async def claim(self, limit: int = SLICE, lease: float = 600.0) -> list:
        self.request += 1
        return (await self.backend.queue.claim("n", None, None, limit, lease, self.request)).claims

    async def fail(self, number: int, **fields: object) -> list[str]:
        """Runs that ended failed."""
        run_ids = await self.put(number, policy=NO_RETRY, **fields)
        outcome = Failed(Failure("ValueError", "boom", "Traceback …"))
        while claims := await self.claim():
            now = datetime.now(UTC)
            await self.backend.queue.settle([settle(each.run, each.fence, outcome, now, 0.5) for each in claims])
        return run_ids

    async def job(self, name: str) -> JobRecord:
        now = datetime.now(UTC)
        record = JobRecord(ids.new(), JobSpec(name=name, handler=name), 1, Origin.API, now, now)
        await self.backend.store.save([JobChange(record, None)])
        return record


async def cancelling(bench: Bench, number: int) -> AsyncIterator[tuple[str, Callable[[], Awaitable[object]]]]:
    waiting = await bench.put(number)
    yield f"cancel {number} waiting", lambda: bench.backend.store.cancel(waiting)
    grouped = await bench.put(number, group="g", when_full=WhenFull.QUEUE)
    yield f"cancel {number} of one group", lambda: bench.backend.store.cancel(grouped)
    held = await bench.put(number, group="h", when_full=WhenFull.QUEUE)
    await bench.claim(1)
    yield f"cancel {number} held for one group", lambda: bench.backend.store.cancel(held)
    running = await bench.put(number)
    while await bench.claim():
        pass
    yield f"cancel {number} running", lambda: bench.backend.store.cancel(running)


async def redriving(bench: Bench, number: int) -> AsyncIterator[tuple[str, Callable[[], Awaitable[object]]]]:
    failed = await bench.fail(number)
    yield f"redrive {number} failed", lambda: bench.backend.store.redrive(failed)
    await bench.backend.store.cancel(failed)
    yield f"redrive {number} cancelled, by 500", lambda: _by(bench.backend.store.redrive, failed, 500)


async def removing(bench: Bench, number: int) -> AsyncIterator[tuple[str, Callable[[], Awaitable[object]]]]:
    await bench.job("mail")
    await bench.put(number)
    yield f"remove a job with {number} waiting", lambda: bench.backend.store.remove("mail", 1)
    await bench.job("queue")
    await bench.put(number, job="queue", handler="queue", group="queue", when_full=WhenFull.QUEUE)
    await bench.claim(1)
    yield f"remove a job with {number} held for its group", lambda: bench.backend.store.remove("queue", 1)


async def pausing(bench: Bench, number: int) -> AsyncIterator[tuple[str, Callable[[], Awaitable[object]]]]:
    record = await bench.job("mail")
    await bench.put(number)
    paused = replace(record, revision=2, paused=Pause(datetime.now(UTC)))
    yield f"pause a job with {number} waiting", lambda: bench.backend.store.save([JobChange(paused, 1)])

    async def hold_all() -> None:
        while number not in (await bench.backend.queue.holds()).values():
            await bench.claim()

    yield f"hold {number} by claims", hold_all
    yield "resume it", lambda: bench.backend.store.save([JobChange(replace(record, revision=3), 2)])

    async def unhold() -> None:
        while await bench.backend.queue.unhold("job:mail", SLICE):
            pass

    yield f"unhold {number} by {SLICE}", unhold


async def purging(bench: Bench, number: int) -> AsyncIterator[tuple[str, Callable[[], Awaitable[object]]]]:
    await bench.fail(number)
    later = datetime.now(UTC) + timedelta(hours=1)

    async def purge() -> None:
        while await bench.backend.store.purge(State.FAILED, later, None, SLICE):
            pass

    yield f"purge {number} by {SLICE}", purge


async def reaping(bench: Bench, number: int) -> AsyncIterator[tuple[str, Callable[[], Awaitable[object]]]]:
    await bench.put(number)
    while await bench.claim(lease=0.001):
        pass

    async def reap() -> None:
        while await bench.backend.queue.reap(SLICE, 600.0):
            pass

    yield f"reap {number} by {SLICE}", reap


async def placing(bench: Bench, number: int) -> AsyncIterator[tuple[str, Callable[[], Awaitable[object]]]]:
    unplaced = await bench.put(number, assignable=True, hold="place")
    yield (
        f"assign {number} by {SLICE}",
        lambda: _by(bench.backend.queue.assign, [Assignment(run_id, "n1") for run_id in unplaced], SLICE),
    )

    async def unassign() -> None:
        while await bench.backend.queue.unassign("n1", SLICE):
            pass

    yield f"unassign {number} by {SLICE}", unassign


async def _by(call: Callable[[Sequence], Awaitable[object]], items: Sequence, size: int) -> None:
    for start in range(0, len(items), size):
        await call(items[start : start + size])


ROUNDS: tuple[tuple[Round, float], ...] = (
    (cancelling, 0.5),
    (redriving, 1.0),
    (removing, 1.0),
    (pausing, 1.0),
    (purging, 1.0),
    (reaping, 0.5),
    (placing, 0.5),
)


def _url(name: str, stack: ExitStack) -> str:
    match name:
        case "postgres":
            return stack.enter_context(postgres_server()).url
        case "redis":
            return stack.enter_context(redis_server()).url
        case "sqlite":
            return f"sqlite:///{stack.enter_context(tempfile.TemporaryDirectory())}/duly.db"
        case _:
            return "memory://"


async def measure(url: str, number: int) -> None:
    for place, (round_, part) in enumerate(ROUNDS):
        async with open_backend(url, Opening(namespace=f"bench{place}")) as backend:
            async for what, call in round_(Bench(backend), int(number * part)):
                started = time.perf_counter()
                await call()
                print(f"{what:<45} {time.perf_counter() - started:8.2f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=["memory", "sqlite", "redis", "postgres"], action="append")
    parser.add_argument("-n", type=int, default=10_000)
    asked = parser.parse_args()
    for name in asked.backend or ["memory", "sqlite", "redis", "postgres"]:
        print(f"# {name}")
        with ExitStack() as stack:
            asyncio.run(measure(_url(name, stack), asked.n))


if __name__ == "__main__":
    main()
