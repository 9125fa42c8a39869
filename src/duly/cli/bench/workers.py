"""The workers of a benchmark: separate processes, or this process if the store cannot be shared.

A worker process is this module as a program. Its task is an argument.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from duly.cli.bench.worker_kinds import Assignment, Notes, build
from duly.errors import ConfigurationError, DulyError
from duly.scheduler.run_forever import run_alone

_START_TIMEOUT = 120.0
_REPORT_EVERY = 0.2


class Report(msgspec.Struct, frozen=True):
    """The result of a worker. `ended` is the time of the last call of its handler, `slowest` its slowest timed call."""

    done: int
    started: float
    ended: float
    late: list[float]
    seen: list[tuple[str, float]]
    cpu: float
    rss_mb: float
    slowest: tuple[str, float] = ("", 0.0)


async def work(assignment: Assignment, go: asyncio.Event, stop: asyncio.Event, notes: Notes) -> Report:
    """Run a scheduler from `go` to `stop`."""
    scheduler = build(assignment, notes)
    await go.wait()
    before = _cpu()
    started = time.time()
    await scheduler.start()
    await stop.wait()
    await scheduler.stop()
    return Report(
        done=notes.done,
        started=started,
        ended=notes.ended,
        late=notes.late,
        seen=notes.seen,
        cpu=_cpu() - before,
        rss_mb=rss_mb(),
        slowest=notes.slowest,
    )


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def rss_mb() -> float:
    """The current resident memory of this process, in megabytes."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:  # not Linux: the maximum so far
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    return pages * resource.getpagesize() / 1e6


class LocalWorkers:
    """One worker in the event loop of this process."""

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

    async def kill_busy(self) -> float:
        raise ConfigurationError("memory:// has only one process, which cannot be killed: measure another store")

    async def stop(self) -> list[Report]:
        self._stop.set()
        return [await self._working]


def _raise_if_failed(task: asyncio.Task[Report]) -> None:
    if task.done():
        task.result()


class WorkerProcess:
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

    def signal(self) -> None:
        """Let it start; the second time, let it stop."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")

    async def report(self) -> Report:
        await self._listening
        code = await self._process.wait()
        if self._report is None:
            raise DulyError(f"a worker of the benchmark ended with exit code {code}; see its output above")
        return self._report

    def check(self) -> None:
        if self._listening.done() and self._report is None:
            raise DulyError("a worker of the benchmark died; see its output above")

    async def end(self) -> None:
        """Kill the process if it is still running."""
        if self._process.returncode is None:
            self._process.kill()
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._listening
        await self._process.wait()


class ProcessWorkers:
    """Workers in separate processes."""

    def __init__(self, processes: list[WorkerProcess]) -> None:
        self._processes = list(processes)

    async def go(self) -> None:
        for each in self._processes:
            each.signal()

    def done(self) -> int:
        for each in self._processes:
            each.check()
        return sum(each.done for each in self._processes)

    def memory_mb(self) -> float:
        return max(each.rss for each in self._processes)

    def cpu(self) -> float:
        return sum(each.cpu for each in self._processes)

    async def kill_busy(self) -> float:
        """Kill a worker that has begun a run, as kill -9 does; returns the time."""
        busy = next(each for each in self._processes if each.done)
        self._processes.remove(busy)
        at = time.time()
        await busy.end()
        return at

    async def stop(self) -> list[Report]:
        for each in self._processes:
            each.signal()
        return [await each.report() for each in self._processes]


Workers = LocalWorkers | ProcessWorkers


@asynccontextmanager
async def start_workers(assignments: Sequence[Assignment]) -> AsyncIterator[Workers]:
    """Workers that are ready to start. At the end of the block all processes have ended."""
    if assignments[0].url.startswith("memory:"):
        yield LocalWorkers(assignments[0])
        return
    processes = [WorkerProcess(await _spawn(assignment)) for assignment in assignments]
    try:
        async with asyncio.timeout(_START_TIMEOUT):
            for each in processes:
                await each.ready.wait()
                each.check()
        yield ProcessWorkers(processes)
    finally:
        for each in processes:
            await each.end()


async def _spawn(assignment: Assignment) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    arguments = ("-m", "duly.cli.bench.workers", msgspec.json.encode(assignment).decode())
    return await asyncio.create_subprocess_exec(sys.executable, *arguments, stdin=pipe, stdout=pipe, limit=1 << 26)


async def until(workers: Workers, total: int, stalled_after: float, progress: object = None) -> None:
    """Wait until the workers have executed this many runs; raise without progress for `stalled_after` seconds."""
    loop = asyncio.get_running_loop()
    last, moved = -1, loop.time()
    while (done := workers.done()) < total:
        if done != last:
            last, moved = done, loop.time()
        if callable(progress):
            progress(done)
        if loop.time() - moved > stalled_after:
            raise DulyError(f"the benchmark made no progress at {done} of {total} runs for {stalled_after:g} s")
        await asyncio.sleep(_REPORT_EVERY / 2)


# --- a worker process: lines on standard input start and stop it


async def _main(assignment: Assignment) -> None:
    go, stop, notes = asyncio.Event(), asyncio.Event(), Notes()
    working = asyncio.create_task(work(assignment, go, stop, notes))
    reading = asyncio.create_task(_read_signals(go, stop))
    _report("ready")
    while not working.done():
        await asyncio.wait([working], timeout=_REPORT_EVERY)
        _report(f"done {notes.done} {rss_mb():.1f} {_cpu():.3f}")
    _report("report " + msgspec.json.encode(working.result()).decode())
    reading.cancel()


async def _read_signals(go: asyncio.Event, stop: asyncio.Event) -> None:
    for event in (go, stop):
        await asyncio.to_thread(sys.stdin.readline)
        event.set()


def _report(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    run_alone(_main(msgspec.json.decode(sys.argv[1], type=Assignment)))
