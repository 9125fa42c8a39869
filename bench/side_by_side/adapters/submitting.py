"""Submitting, as each measurement needs it: one by one, fifty at a time, in bulk, paced, at given instants.

A client is either a class of coroutines or one of plain methods; both are driven in the same way, the second with
fifty threads where the first has fifty tasks.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any, Protocol

from bench.side_by_side.adapters.lines import Lines

FIFTY = 50
CHUNK = 1000
_PACE = 0.01
_LEAD = 2.0
_SPREAD = 10.0


class Client(Protocol):
    """A peer whose calls block."""

    def open(self) -> None: ...

    def submit(self, handler: str, payload: dict[str, Any]) -> None: ...

    def submit_at(self, handler: str, payload: dict[str, Any], at: float) -> None: ...

    def submit_many(self, handler: str, count: int) -> None: ...


class AsyncClient(Protocol):
    """A peer whose calls are awaited."""

    async def open(self) -> None: ...

    async def submit(self, handler: str, payload: dict[str, Any]) -> None: ...

    async def submit_at(self, handler: str, payload: dict[str, Any], at: float) -> None: ...

    async def submit_many(self, handler: str, count: int) -> None: ...


def answer(client: Any, lines: Lines) -> None:
    """Do what the lines on standard input say, one after the other, until they end."""
    if asyncio.iscoroutinefunction(client.submit):
        _fast_loop()(_answer_on_loop(client, lines))
        return
    client.open()
    lines.say(ready=True)
    for line in sys.stdin:
        order = json.loads(line)
        lines.say(seconds=_timed(_BLOCKING[order["do"]], client, order["jobs"]))


def _fast_loop() -> Any:
    try:
        import uvloop  # noqa: PLC0415  # not every environment has it
    except ImportError:
        return asyncio.run
    return uvloop.run


async def _answer_on_loop(client: AsyncClient, lines: Lines) -> None:
    await client.open()
    lines.say(ready=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        order = json.loads(line)
        started = time.perf_counter()
        await _AWAITED[order["do"]](client, order["jobs"])
        lines.say(seconds=time.perf_counter() - started)


def _timed(act: Any, client: Any, jobs: int) -> float:
    started = time.perf_counter()
    act(client, jobs)
    return time.perf_counter() - started


def _chunks(jobs: int) -> Iterator[int]:
    for start in range(0, jobs, CHUNK):
        yield min(CHUNK, jobs - start)


def instants(jobs: int) -> Iterator[tuple[int, float]]:
    """One-time jobs over ten seconds, the first of them soon."""
    first = time.time() + _LEAD
    for number in range(jobs):
        yield number, first + _SPREAD * number / jobs + number % 997 / 1e6


def _one_by_one(client: Client, jobs: int) -> None:
    for _ in range(jobs):
        client.submit("noop", {})


def _fifty_threads(client: Client, jobs: int) -> None:
    left, lock = iter(range(jobs)), Lock()

    def one_of_fifty() -> None:
        while True:
            with lock:
                if next(left, None) is None:
                    return
            client.submit("noop", {})

    with ThreadPoolExecutor(FIFTY) as threads:
        for ended in [threads.submit(one_of_fifty) for _ in range(FIFTY)]:
            ended.result()


def _in_bulk(client: Client, jobs: int) -> None:
    for count in _chunks(jobs):
        client.submit_many("noop", count)


def _put(client: Client, jobs: int) -> None:
    (_in_bulk if hasattr(client, "submit_many") else _one_by_one)(client, jobs)


def _pings(client: Client, jobs: int) -> None:
    next_at = time.monotonic()
    for number in range(jobs):
        next_at += _PACE
        time.sleep(max(0.0, next_at - time.monotonic()))
        client.submit("ping", {"number": number, "sent": time.time_ns()})


def _alarms(client: Client, jobs: int) -> None:
    for number, at in instants(jobs):
        client.submit_at("alarm", {"number": number, "at": at}, at)


async def _one_by_one_awaited(client: AsyncClient, jobs: int) -> None:
    for _ in range(jobs):
        await client.submit("noop", {})


async def _fifty_tasks(client: AsyncClient, jobs: int) -> None:
    left = iter(range(jobs))

    async def one_of_fifty() -> None:
        for _ in left:
            await client.submit("noop", {})

    await asyncio.gather(*[one_of_fifty() for _ in range(FIFTY)])


async def _in_bulk_awaited(client: AsyncClient, jobs: int) -> None:
    for count in _chunks(jobs):
        await client.submit_many("noop", count)


async def _put_awaited(client: AsyncClient, jobs: int) -> None:
    await (_in_bulk_awaited if hasattr(client, "submit_many") else _fifty_tasks)(client, jobs)


async def pings(client: AsyncClient, jobs: int) -> None:
    loop = asyncio.get_running_loop()
    next_at = loop.time()
    for number in range(jobs):
        next_at += _PACE
        await asyncio.sleep(max(0.0, next_at - loop.time()))
        await client.submit("ping", {"number": number, "sent": time.time_ns()})


async def alarms(client: AsyncClient, jobs: int) -> None:
    for number, at in instants(jobs):
        await client.submit_at("alarm", {"number": number, "at": at}, at)


_BLOCKING = {
    "put": _put,
    "single": _one_by_one,
    "fifty": _fifty_threads,
    "bulk": _in_bulk,
    "pings": _pings,
    "alarms": _alarms,
}
_AWAITED = {
    "put": _put_awaited,
    "single": _one_by_one_awaited,
    "fifty": _fifty_tasks,
    "bulk": _in_bulk_awaited,
    "pings": pings,
    "alarms": alarms,
}
