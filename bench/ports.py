"""What a backend does per second, through its ports: `python bench/ports.py [--url sqlite:///file|redis://…]`.

Without a URL it measures Redis on a server of its own, without persistence (`--aof` for appendonly everysec). Every
figure is the best of a few rounds, since the machine is shared; beside it the server's processor time per thing done,
where there is a server. Nothing here asserts anything.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

from duly.backends import open_backend
from duly.backends.redis import RedisBackend
from duly.model import (
    Cause,
    Claim,
    EverySpec,
    Firing,
    Ids,
    JobChange,
    JobRecord,
    JobSpec,
    Origin,
    Run,
    Succeeded,
    recurring_id,
)
from duly.ports import Backend, Opening
from duly.rules.settling import settle
from duly.testing.servers import redis_server

LEASE = 15.0
ids = Ids(lambda: datetime.now(UTC), random.Random(1))


def run(job: str = "send_mail", **fields: object) -> Run:
    now = datetime.now(UTC)
    return Run(id=ids.new(), job=job, handler=job, due=now, ready_at=now, payload=b'{"to":"ada@example.org"}', **fields)


def settlements(claims: list[Claim]) -> list:
    now = datetime.now(UTC)
    return [settle(claim.run, claim.fence, Succeeded(b'"ok"'), now, 0.5) for claim in claims]


class Bench:
    """One open backend, and the rows measured so far."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.request = 0

    async def server_seconds(self) -> float:
        """How long the server's processor has worked so far; 0 where there is none."""
        if not isinstance(self.backend, RedisBackend):
            return 0.0
        text = (await self.backend.client.command("INFO", "cpu")).decode()
        used = dict(line.split(":") for line in text.splitlines() if ":" in line)
        return float(used["used_cpu_user"]) + float(used["used_cpu_sys"])

    async def claim(self, limit: int, node: str = "n") -> list[Claim]:
        self.request += 1
        return (await self.backend.queue.claim(node, None, None, limit, LEASE, self.request)).claims

    async def drain(self) -> None:
        while claims := await self.claim(500):
            await self.backend.queue.settle(settlements(claims))

    # --- rounds: each returns how many things it did in how many seconds

    async def put_batches(self, size: int = 1000, number: int = 20_000) -> tuple[int, float]:
        batches = [[run() for _ in range(size)] for _ in range(number // size)]
        started = time.perf_counter()
        for batch in batches:
            await self.backend.queue.put(batch)
        seconds = time.perf_counter() - started
        await self.drain()
        return number, seconds

    async def put_alone(self, number: int = 2000) -> tuple[int, float]:
        runs = [run() for _ in range(number)]
        started = time.perf_counter()
        for each in runs:
            await self.backend.queue.put([each])
        seconds = time.perf_counter() - started
        await self.drain()
        return number, seconds

    async def put_concurrently(self, tasks: int = 50, number: int = 10_000) -> tuple[int, float]:
        runs = [[run() for _ in range(number // tasks)] for _ in range(tasks)]

        async def producer(mine: list[Run]) -> None:
            for each in mine:
                await self.backend.queue.put([each])

        started = time.perf_counter()
        await asyncio.gather(*(producer(mine) for mine in runs))
        seconds = time.perf_counter() - started
        await self.drain()
        return number, seconds

    async def work_in_turn(self, number: int = 20_000) -> tuple[int, float]:
        await self._fill(number)
        started = time.perf_counter()
        while claims := await self.claim(100):
            await self.backend.queue.settle(settlements(claims))
        return number, time.perf_counter() - started

    async def work(self, number: int = 20_000) -> tuple[int, float]:
        """Settle what was done and claim what comes next at the same time, as a worker does."""
        await self._fill(number)
        started = time.perf_counter()
        claims = await self.claim(100)
        while claims:
            _, claims = await asyncio.gather(self.backend.queue.settle(settlements(claims)), self.claim(100))
        return number, time.perf_counter() - started

    async def work_twofold(self, number: int = 20_000) -> tuple[int, float]:
        """Two batches on their way: one is settled and claimed while the other is being worked on."""
        await self._fill(number)

        async def loop(node: str) -> None:
            claims = await self.claim(100, node)
            while claims:
                _, claims = await asyncio.gather(self.backend.queue.settle(settlements(claims)), self.claim(100, node))

        started = time.perf_counter()
        await asyncio.gather(loop("a"), loop("b"))
        return number, time.perf_counter() - started

    async def _fill(self, number: int, **fields: object) -> None:
        for _ in range(0, number, 1000):
            await self.backend.queue.put([run(**fields) for _ in range(1000)])

    async def fire(self, number: int = 10_000) -> tuple[int, float]:
        now = datetime.now(UTC)
        records = [record(f"job_{ids.new()}", now) for _ in range(number)]
        for start in range(0, number, 1000):
            await self.backend.store.save([JobChange(each, None) for each in records[start : start + 1000]])
        epoch = await self.backend.store.install("main", 1)
        await self._fire([firing(each, 0) for each in records], epoch)  # a job's first run also writes its kind down
        firings = [firing(each, 1) for each in records]
        started = time.perf_counter()
        await self._fire(firings, epoch)
        return number, time.perf_counter() - started

    async def _fire(self, firings: list[Firing], epoch: int) -> None:
        for start in range(0, len(firings), 200):
            await self.backend.store.fire(firings[start : start + 200], "main", epoch)

    async def first_of_burst(self, number: int = 20_000) -> tuple[int, float]:
        await self._burst(number)
        started = time.perf_counter()
        claims = await self.claim(100)
        seconds = time.perf_counter() - started
        await self.backend.queue.settle(settlements(claims))
        await self.drain()
        return 1, seconds

    async def burst(self, number: int = 20_000) -> tuple[int, float]:
        await self._burst(number)
        started = time.perf_counter()
        claims = await self.claim(100)
        while claims:
            _, claims = await asyncio.gather(self.backend.queue.settle(settlements(claims)), self.claim(100))
        return number, time.perf_counter() - started

    async def _burst(self, number: int) -> None:
        due = datetime.now(UTC) - timedelta(seconds=1)
        for start in range(0, number, 1000):
            await self.backend.queue.put(
                [planned(f"0{start + index:025x}", f"job_{start + index}", due) for index in range(1000)]
            )

    async def one_claim(self, number: int = 30) -> tuple[int, float]:
        total = 0.0
        for _ in range(number):
            await self.backend.queue.put([run() for _ in range(100)])
            started = time.perf_counter()
            claims = await self.claim(100)
            total += time.perf_counter() - started
            await self.backend.queue.settle(settlements(claims))
        return number, total

    async def idle(self, call: Callable[[], Awaitable[object]], number: int = 1000) -> tuple[int, float]:
        started = time.perf_counter()
        for _ in range(number):
            await call()
        return number, time.perf_counter() - started


def record(name: str, now: datetime) -> JobRecord:
    spec = JobSpec(name=name, handler="report", schedule=EverySpec(timedelta(seconds=10)))
    cursor = now + timedelta(hours=1)
    return JobRecord(ids.new(), spec, 1, Origin.CODE, now, now, cursor=cursor, plan_at=now)


def firing(of: JobRecord, number: int = 0) -> Firing:
    assert of.cursor is not None
    cursor = of.cursor + timedelta(seconds=10 * number)
    following = cursor + timedelta(seconds=10)
    return Firing(of.uid, of.name, of.revision, cursor, following, following, (planned(of.uid, of.name, cursor),))


def planned(uid: str, job: str, due: datetime) -> Run:
    return Run(recurring_id(uid, due), job, "report", due, due, uid=uid, revision=1, cause=Cause.SCHEDULE, group=job)


Round = Callable[[], Awaitable[tuple[int, float]]]


async def measure(bench: Bench, name: str, round_: Round, rounds: int, *, each: bool) -> None:
    best, server = math.inf, math.inf
    for _ in range(rounds):
        worked = await bench.server_seconds()
        number, seconds = await round_()
        best, server = min(best, seconds / number), min(server, (await bench.server_seconds() - worked) / number)
    figure = f"{best * 1e6:12,.0f} us" if each else f"{1 / best:12,.0f} /s"
    print(f"{name:50}{figure}" + (f"   server, with set-up {server * 1e6:8.1f} us" if server else ""), flush=True)


async def main(url: str | None, rounds: int, only: str, *, aof: bool) -> None:
    with ExitStack() as stack:
        if url is None:
            url = stack.enter_context(redis_server(appendonly=aof)).url
        async with open_backend(url, Opening(namespace="bench")) as backend:
            await backend.store.migrate()
            await play(Bench(backend), rounds, only)


async def play(bench: Bench, rounds: int, only: str) -> None:
    queue, store = bench.backend.queue, bench.backend.store
    plan: list[tuple[str, Round, bool]] = [
        ("put, batches of 1000", lambda: bench.put_batches(number=50_000), False),
        ("put, batches of 50", lambda: bench.put_batches(50), False),
        ("put, one after the other", bench.put_alone, False),
        ("put, 50 tasks, one each", lambda: bench.put_concurrently(number=50_000), False),
        ("claim 100, then settle 100", bench.work_in_turn, False),
        ("claim 100 and settle 100 together", bench.work, False),
        ("the same, two batches on their way", bench.work_twofold, False),
        ("fire, 200 firings a call", bench.fire, False),
        ("first 100 of 20,000 due runs with a group", bench.first_of_burst, True),
        ("all 20,000 of them, claimed and settled", bench.burst, False),
        ("a claim of 100", bench.one_claim, True),
        ("due(), nothing to plan", lambda: bench.idle(lambda: store.due("none", 100)), True),
        ("reap(), nothing expired", lambda: bench.idle(lambda: queue.reap(100, LEASE)), True),
        ("renew([])", lambda: bench.idle(lambda: queue.renew([], LEASE)), True),
        ("claim, nothing ready", lambda: bench.idle(lambda: bench.claim(100)), True),
    ]
    for name, round_, each in plan:
        if only in name:
            await measure(bench, name, round_, rounds, each=each)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--url")
    parser.add_argument("--aof", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="")
    chosen = parser.parse_args()
    asyncio.run(main(chosen.url, chosen.rounds, chosen.only, aof=chosen.aof))
