"""A worker process of a benchmark: told what to do on its command line, steered by lines on standard input."""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from pathlib import Path

import msgspec

from duly.cli.bench.worker_kinds import Assignment, Notes, build
from duly.scheduler.run_forever import run_alone

REPORT_EVERY = 0.2


class Report(msgspec.Struct, frozen=True):
    """What a worker hands in when it is done. `ended` is when its last handler was called."""

    done: int
    started: float
    ended: float
    late: list[float]
    seen: list[tuple[str, float]]
    cpu: float
    rss_mb: float


async def work(assignment: Assignment, go: asyncio.Event, stop: asyncio.Event, told: Notes) -> Report:
    """One stint: start when told to, stop when told to."""
    scheduler = build(assignment, told)
    await go.wait()
    before = _cpu()
    started = time.time()
    await scheduler.start()
    await stop.wait()
    await scheduler.stop()
    return Report(
        done=told.done,
        started=started,
        ended=told.ended,
        late=told.late,
        seen=told.seen,
        cpu=_cpu() - before,
        rss_mb=rss_mb(),
    )


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def rss_mb() -> float:
    """The resident memory of this process now, in megabytes."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:  # not Linux: the highest it has been
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    return pages * resource.getpagesize() / 1e6


async def _main(assignment: Assignment) -> None:
    go, stop, notes = asyncio.Event(), asyncio.Event(), Notes()
    working = asyncio.create_task(work(assignment, go, stop, notes))
    steering = asyncio.create_task(_steer(go, stop))
    _say("ready")
    while not working.done():
        await asyncio.wait([working], timeout=REPORT_EVERY)
        _say(f"done {notes.done} {rss_mb():.1f} {_cpu():.3f}")
    _say("report " + msgspec.json.encode(working.result()).decode())
    steering.cancel()


async def _steer(go: asyncio.Event, stop: asyncio.Event) -> None:
    for event in (go, stop):
        await asyncio.to_thread(sys.stdin.readline)
        event.set()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    run_alone(_main(msgspec.json.decode(sys.argv[1], type=Assignment)))
