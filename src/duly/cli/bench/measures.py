"""The measurements: drain, submit, latency, lateness, recurring, idle."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from duly.cli.bench.layouts import laid_out
from duly.cli.bench.report import percentiles
from duly.cli.bench.worker import Report
from duly.cli.bench.worker_kinds import PERIOD, Assignment, client
from duly.cli.bench.workers import crew_of, until
from duly.model import State
from duly.scheduler import Scheduler

Progress = Callable[[str, int, int], None]

_PATIENCE = 60.0
_CHUNK = 1000
_WARM = "-1"  # the number of a run that does not count
_SETTLING = 3.0  # seconds after which nodes that have just started have nothing more to do


async def drain(assignment: Assignment, jobs: int, processes: int, progress: Progress) -> dict[str, Any]:
    """How many no-op jobs per second workers get through; the jobs are put first."""
    scheduler = client(assignment)
    async with scheduler.client():
        for start in range(0, jobs, _CHUNK):
            await scheduler.submit_many("noop", [{}] * min(_CHUNK, jobs - start))
            progress("putting", start, jobs)
        async with crew_of([assignment] * processes) as workers:
            await workers.go()
            await until(workers, jobs, _PATIENCE, lambda done: progress("draining", done, jobs))
            reports = await workers.stop()
        counts = await scheduler.counts()
    seconds = max(report.ended for report in reports) - min(report.started for report in reports)
    return {
        "jobs": jobs,
        "processes": processes,
        "concurrency": assignment.concurrency,
        "jobs_per_s": round(jobs / seconds),
        "seconds": round(seconds, 3),
        "worker_cpu_us_per_job": round(sum(report.cpu for report in reports) / jobs * 1e6, 2),
        "doubled": sum(report.done for report in reports) - jobs,
        "missed": jobs - counts.states[State.COMPLETED],
        "worker_rss_mb": round(max(report.rss_mb for report in reports), 1),
    }


async def submit(assignment: Assignment, jobs: int, progress: Progress) -> dict[str, Any]:
    """How many submissions per second one client makes: one by one, fifty at a time, in bulk."""
    scheduler = client(assignment)
    async with scheduler.client():
        await scheduler.submit("noop")
        single = await _timed(_one_by_one(scheduler, max(1, jobs // 10), progress))
        concurrent = await _timed(_fifty_at_a_time(scheduler, jobs, progress))
        bulk = await _timed(_in_bulk(scheduler, jobs * 2, progress))
    return {
        "jobs": jobs,
        "single_per_s": round(max(1, jobs // 10) / single),
        "concurrent_per_s": round(jobs / concurrent),
        "bulk_per_s": round(jobs * 2 / bulk),
    }


async def _timed(measured: Any) -> float:
    started = time.perf_counter()
    await measured
    return time.perf_counter() - started


async def _one_by_one(scheduler: Scheduler, jobs: int, progress: Progress) -> None:
    for number in range(jobs):
        await scheduler.submit("noop")
        if number % 500 == 0:
            progress("one by one", number, jobs)


async def _fifty_at_a_time(scheduler: Scheduler, jobs: int, progress: Progress) -> None:
    left = iter(range(jobs))

    async def one_of_fifty() -> None:
        for number in left:
            await scheduler.submit("noop")
            if number % 5000 == 0:
                progress("fifty at a time", number, jobs)

    await asyncio.gather(*[one_of_fifty() for _ in range(50)])


async def _in_bulk(scheduler: Scheduler, jobs: int, progress: Progress) -> None:
    for start in range(0, jobs, _CHUNK):
        await scheduler.submit_many("noop", [{}] * min(_CHUNK, jobs - start))
        progress("in bulk", start, jobs)


async def latency(
    assignment: Assignment, layout: str, jobs: int, every: float, processes: int, progress: Progress
) -> dict[str, Any]:
    """From the call of submit to the first line of the handler: one submission after the other."""
    scheduler = client(assignment)
    nodes = laid_out(layout, assignment, processes)
    async with scheduler.client(), crew_of(nodes) as workers:
        await workers.go()
        warm = await _warm_up(scheduler, workers, occupied=layout == "full")
        loop = asyncio.get_running_loop()
        next_at = loop.time()
        for number in range(jobs):
            next_at += every
            await asyncio.sleep(max(0.0, next_at - loop.time()))
            await scheduler.submit("ping", {"number": number, "sent": time.time_ns()})
            progress("submitting", number, jobs)
        await until(workers, warm + jobs, _PATIENCE)
        reports = await workers.stop()
    late = [
        seconds
        for report in reports
        for (number, _), seconds in zip(report.seen, report.late, strict=True)
        if number != _WARM
    ]
    return {"layout": layout, "jobs": jobs, "processes": len(nodes), **percentiles(late), **_tally(reports, jobs)}


async def _warm_up(scheduler: Scheduler, workers: Any, *, occupied: bool) -> int:
    """A few runs before those that count, so that everything is imported and open; how many were done."""
    runs = 20
    if occupied:
        await scheduler.submit("occupy", {"seconds": 3600.0})
        await until(workers, 1, _PATIENCE)
        runs += 1
    for _ in range(20):
        await scheduler.submit("ping", {"number": int(_WARM), "sent": time.time_ns()})
    await until(workers, runs, _PATIENCE)
    await asyncio.sleep(_SETTLING)
    return runs


async def lateness(assignment: Assignment, jobs: int, processes: int, progress: Progress) -> dict[str, Any]:
    """How late one-time jobs start that are spread over ten seconds."""
    scheduler = client(assignment)
    async with scheduler.client(), crew_of([assignment] * processes) as workers:
        await workers.go()
        first = datetime.now(UTC) + timedelta(seconds=2)
        spread = [first + timedelta(seconds=10 * number / jobs, microseconds=number % 997) for number in range(jobs)]
        for number, at in enumerate(spread):
            await scheduler.submit("alarm", {"number": number}, at=at)
        await until(workers, jobs, _PATIENCE, lambda done: progress("ringing", done, jobs))
        reports = await workers.stop()
    return {"jobs": jobs, "processes": processes, **percentiles(_all(reports)), **_tally(reports, jobs)}


def _all(reports: list[Report]) -> list[float]:
    return [value for report in reports for value in report.late]


def _tally(reports: list[Report], jobs: int) -> dict[str, int]:
    """How many of the numbered runs never started, and how many started twice."""
    seen = Counter(number for report in reports for number, _ in report.seen if number != _WARM)
    return {"missed": jobs - len(seen), "doubled": sum(times - 1 for times in seen.values())}


async def recurring(assignment: Assignment, processes: int, periods: int, progress: Progress) -> dict[str, Any]:
    """How late schedules fire that are all due at once, every ten seconds.

    Counted from the first instant at least ten seconds after the start, when registration and the first planning are
    over.
    """
    async with crew_of([assignment] * processes) as workers:
        await workers.go()
        await until(workers, 1, _PATIENCE * 5)
        first = (math.floor(time.time() / PERIOD) + 2) * PERIOD
        last = first + PERIOD * (periods - 1)
        end = last + PERIOD * 0.8
        while time.time() < end:
            progress("beating", max(0, round(time.time() - first)), round(end - first))
            await asyncio.sleep(0.2)
        reports = await workers.stop()
    return {
        "schedules": assignment.schedules,
        "periods": periods,
        "processes": processes,
        **_beats(reports, assignment.schedules, first, last),
    }


def _beats(reports: list[Report], schedules: int, first: float, last: float) -> dict[str, Any]:
    beats = [
        (seen, late)
        for report in reports
        for seen, late in zip(report.seen, report.late, strict=True)
        if first <= seen[1] <= last
    ]
    times = Counter(seen for seen, _ in beats)
    expected = schedules * round((last - first) / PERIOD + 1)
    return {
        **percentiles([late for _, late in beats]),
        "missed": expected - len(times),
        "doubled": sum(count - 1 for count in times.values()),
        "worker_rss_mb": round(max(report.rss_mb for report in reports), 1),
    }


async def recovery(assignment: Assignment, seconds: float, progress: Progress) -> dict[str, Any]:
    """How long after the death of its worker a run begins again elsewhere, with default settings."""
    scheduler = client(assignment)
    async with scheduler.client(), crew_of([assignment] * 2) as workers:
        await workers.go()
        await scheduler.submit("linger", {"seconds": seconds})
        await until(workers, 1, _PATIENCE)
        killed_at = await workers.kill_a_busy_one()
        await until(workers, 1, _PATIENCE, lambda _: progress("waiting", round(time.time() - killed_at), 20))
        [survivor] = await workers.stop()
    return {"recovery_s": round(survivor.seen[0][1] - killed_at, 3), "attempts": 1 + len(survivor.seen)}


async def idle(assignment: Assignment, seconds: float, progress: Progress) -> dict[str, Any]:
    """What a node costs that has many schedules and nothing to do."""
    async with crew_of([assignment]) as workers:
        await workers.go()
        await _settled(workers, progress)
        before, started = workers.cpu(), time.monotonic()
        while time.monotonic() - started < seconds:
            progress("idling", round(time.monotonic() - started), round(seconds))
            await asyncio.sleep(0.2)
        used, elapsed = workers.cpu() - before, time.monotonic() - started
        memory = workers.memory_mb()
        await workers.stop()
    return {
        "schedules": assignment.schedules,
        "seconds": round(elapsed, 1),
        "cpu_percent": round(used / elapsed * 100, 2),
        "worker_rss_mb": round(memory, 1),
    }


async def _settled(workers: Any, progress: Progress) -> None:
    """Until registration and the first planning are over: the processor has been quiet for a few seconds."""
    quiet, last = 0, -1.0
    while quiet < 10:
        progress("settling", 0, 1)
        await asyncio.sleep(0.5)
        quiet = quiet + 1 if last >= 0 and workers.cpu() - last < 0.02 else 0
        last = workers.cpu()
