"""A crew: the workers of a benchmark, in processes of their own, or in this one where the store cannot be shared."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

import msgspec

from duly.cli.bench.worker import REPORT_EVERY, Report, rss_mb, work
from duly.cli.bench.worker_kinds import Assignment, Notes
from duly.errors import ConfigurationError, DulyError

_START_TIMEOUT = 120.0


class Workers(Protocol):
    """Starts together, says how far it is, stops together."""

    async def go(self) -> None: ...

    def done(self) -> int: ...

    def memory_mb(self) -> float: ...

    def cpu(self) -> float: ...

    async def kill_a_busy_one(self) -> float:
        """Kill, as by kill -9, a worker that has begun something; when that was."""
        ...

    async def stop(self) -> list[Report]: ...


class LocalWorkers:
    """One worker on this very event loop."""

    def __init__(self, assignment: Assignment) -> None:
        self._notes = Notes()
        self._go, self._stop = asyncio.Event(), asyncio.Event()
        self._working = asyncio.get_running_loop().create_task(work(assignment, self._go, self._stop, self._notes))

    async def go(self) -> None:
        self._go.set()
        await asyncio.sleep(0)

    def done(self) -> int:
        _raise_if_failed(self._working)
        return self._notes.done

    def memory_mb(self) -> float:
        return rss_mb()

    def cpu(self) -> float:
        return 0.0

    async def kill_a_busy_one(self) -> float:
        raise ConfigurationError("memory:// has one process only, which cannot be killed: measure another store")

    async def stop(self) -> list[Report]:
        self._stop.set()
        return [await self._working]


def _raise_if_failed(task: asyncio.Task[Report]) -> None:
    if task.done():
        task.result()


class Member:
    """One worker process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.done = 0
        self.rss = 0.0
        self.cpu = 0.0
        self.ready = asyncio.Event()
        self._report: Report | None = None
        self._listening = asyncio.get_running_loop().create_task(self._listen())

    async def _listen(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            word, _, rest = line.decode().strip().partition(" ")
            match word:
                case "ready":
                    self.ready.set()
                case "done":
                    done, rss, cpu = rest.split()
                    self.done, self.rss, self.cpu = int(done), float(rss), float(cpu)
                case "report":
                    self._report = msgspec.json.decode(rest, type=Report)
        self.ready.set()

    def tell(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")

    async def report(self) -> Report:
        await self._listening
        code = await self._process.wait()
        if self._report is None:
            raise DulyError(f"a worker of the benchmark ended with exit code {code}; its words are above")
        return self._report

    def check(self) -> None:
        if self._listening.done() and self._report is None:
            raise DulyError("a worker of the benchmark died; its words are above")

    async def end(self) -> None:
        """Leave nothing behind, whether it has ended or not."""
        if self._process.returncode is None:
            self._process.kill()
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._listening
        await self._process.wait()


class ProcessWorkers:
    """Workers in processes of their own."""

    def __init__(self, members: list[Member]) -> None:
        self._members = list(members)

    async def go(self) -> None:
        for member in self._members:
            member.tell()

    def done(self) -> int:
        for member in self._members:
            member.check()
        return sum(member.done for member in self._members)

    def memory_mb(self) -> float:
        return max(member.rss for member in self._members)

    def cpu(self) -> float:
        return sum(member.cpu for member in self._members)

    async def kill_a_busy_one(self) -> float:
        busy = next(member for member in self._members if member.done)
        self._members.remove(busy)
        at = time.time()
        await busy.end()
        return at

    async def stop(self) -> list[Report]:
        for member in self._members:
            member.tell()
        return [await member.report() for member in self._members]


@asynccontextmanager
async def crew_of(assignments: Sequence[Assignment]) -> AsyncIterator[Workers]:
    """A crew that stands ready. Whatever happens inside the block, no process is left behind."""
    if assignments[0].url.startswith("memory:"):
        yield LocalWorkers(assignments[0])
        return
    members = [Member(await _spawn(assignment)) for assignment in assignments]
    try:
        async with asyncio.timeout(_START_TIMEOUT):
            for member in members:
                await member.ready.wait()
                member.check()
        yield ProcessWorkers(members)
    finally:
        for member in members:
            await member.end()


async def _spawn(assignment: Assignment) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    arguments = ("-m", "duly.cli.bench.worker", msgspec.json.encode(assignment).decode())
    return await asyncio.create_subprocess_exec(sys.executable, *arguments, stdin=pipe, stdout=pipe, limit=1 << 26)


async def until(workers: Workers, total: int, patience: float, progress: object = None) -> None:
    """Wait until the crew has done that many runs; raise if it makes no headway for `patience` seconds."""
    loop = asyncio.get_running_loop()
    last, moved = -1, loop.time()
    while (done := workers.done()) < total:
        if done != last:
            last, moved = done, loop.time()
        if callable(progress):
            progress(done)
        if loop.time() - moved > patience:
            raise DulyError(f"the benchmark stands still at {done} of {total} runs for {patience:g} s")
        await asyncio.sleep(REPORT_EVERY / 2)
