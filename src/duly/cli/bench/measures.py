"""The measurements: drain, submit, latency, lateness, recurring, idle."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from duly.cli.bench.report import percentiles
from duly.cli.bench.worker_kinds import PERIOD, Assignment, assignments, client
from duly.cli.bench.workers import Report, Workers, start_workers, until
from duly.model import State
from duly.scheduler import Scheduler

Progress = Callable[[str, int, int], None]

_STALLED_AFTER = 60.0
_CHUNK = 1000
_WARM_UP = "-1"  # the number of runs that do not count
_SETTLING = 3.0  # seconds until new nodes are idle


async def drain(jobs: int, processes: int, assignment: Assignment, progress: Progress) -> dict[str, Any]:
    """The number of no-op runs per second that workers execute. The runs are submitted first."""
    scheduler = client(assignment)
    async with scheduler.client():
        for start in range(0, jobs, _CHUNK):
            await scheduler.submit_many("noop", [{}] * min(_CHUNK, jobs - start))
            progress("submitting", start, jobs)
        async with start_workers([assignment] * processes) as workers:
            await workers.go()
            await until(workers, jobs, _STALLED_AFTER, lambda done: progress("draining", done, jobs))
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


async def submit(jobs: int, assignment: Assignment, progress: Progress) -> dict[str, Any]:
    """The number of submissions per second of one client: one by one, fifty at a time, in bulk."""
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
    layout: str, jobs: int, every: float, processes: int, assignment: Assignment, progress: Progress
) -> dict[str, Any]:
    """The time from the call of `submit` to the first line of the handler, one submission after the other."""
    scheduler = client(assignment)
    nodes = assignments(layout, assignment, processes)
    async with scheduler.client(), start_workers(nodes) as workers:
        await workers.go()
        warm = await _warm_up(scheduler, workers, occupied=layout == "full")
        loop = asyncio.get_running_loop()
        next_at = loop.time()
        for number in range(jobs):
            next_at += every
            await asyncio.sleep(max(0.0, next_at - loop.time()))
            await scheduler.submit("ping", {"number": number, "sent": time.time_ns()})
            progress("submitting", number, jobs)
        await until(workers, warm + jobs, _STALLED_AFTER)
        reports = await workers.stop()
    late = [
        seconds
        for report in reports
        for (number, _), seconds in zip(report.seen, report.late, strict=True)
        if number != _WARM_UP
    ]
    return {"layout": layout, "jobs": jobs, "processes": len(nodes), **percentiles(late), **_tally(reports, jobs)}


async def _warm_up(scheduler: Scheduler, workers: Workers, *, occupied: bool) -> int:
    """Execute a few runs that do not count, so that everything is imported and open; returns their number."""
    runs = 20
    if occupied:
        await scheduler.submit("occupy", {"seconds": 3600.0})
        await until(workers, 1, _STALLED_AFTER)
        runs += 1
    for _ in range(20):
        await scheduler.submit("ping", {"number": int(_WARM_UP), "sent": time.time_ns()})
    await until(workers, runs, _STALLED_AFTER)
    await asyncio.sleep(_SETTLING)
    return runs


async def lateness(jobs: int, processes: int, assignment: Assignment, progress: Progress) -> dict[str, Any]:
    """The lateness of one-time jobs that are spread over ten seconds."""
    scheduler = client(assignment)
    async with scheduler.client(), start_workers([assignment] * processes) as workers:
        await workers.go()
        first = datetime.now(UTC) + timedelta(seconds=2)
        spread = [first + timedelta(seconds=10 * number / jobs, microseconds=number % 997) for number in range(jobs)]
        for number, at in enumerate(spread):
            await scheduler.submit("alarm", {"number": number}, at=at)
        await until(workers, jobs, _STALLED_AFTER, lambda done: progress("running", done, jobs))
        reports = await workers.stop()
    return {"jobs": jobs, "processes": processes, **percentiles(_all(reports)), **_tally(reports, jobs)}


def _all(reports: list[Report]) -> list[float]:
    return [value for report in reports for value in report.late]


def _tally(reports: list[Report], jobs: int) -> dict[str, int]:
    """How many of the numbered runs never started, and how many started twice."""
    seen = Counter(number for report in reports for number, _ in report.seen if number != _WARM_UP)
    return {"missed": jobs - len(seen), "doubled": sum(times - 1 for times in seen.values())}


async def recurring(processes: int, periods: int, assignment: Assignment, progress: Progress) -> dict[str, Any]:
    """The lateness of schedules that are all due at the same time, every ten seconds.

    Counts from the first due time at least ten seconds after the start, when registration and the first planning have
    ended.
    """
    async with start_workers([assignment] * processes) as workers:
        await workers.go()
        await until(workers, 1, _STALLED_AFTER * 5)
        first = (math.floor(time.time() / PERIOD) + 2) * PERIOD
        last = first + PERIOD * (periods - 1)
        end = last + PERIOD * 0.8
        while time.time() < end:
            progress("running", max(0, round(time.time() - first)), round(end - first))
            await asyncio.sleep(0.2)
        reports = await workers.stop()
    return {
        "schedules": assignment.schedules,
        "periods": periods,
        "processes": processes,
        **beats(reports, assignment.schedules, first, last, PERIOD),
    }


def beats(reports: list[Report], schedules: int, first: float, last: float, period: int) -> dict[str, Any]:
    """The lateness of the runs that were due from `first` to `last`, and how many never started or started twice."""
    counted = [
        (seen, late)
        for report in reports
        for seen, late in zip(report.seen, report.late, strict=True)
        if first <= seen[1] <= last
    ]
    times = Counter(seen for seen, _ in counted)
    expected = schedules * round((last - first) / period + 1)
    return {
        **percentiles([late for _, late in counted]),
        "missed": expected - len(times),
        "doubled": sum(count - 1 for count in times.values()),
        "worker_rss_mb": round(max(report.rss_mb for report in reports), 1),
    }


async def recovery(seconds: float, assignment: Assignment, progress: Progress) -> dict[str, Any]:
    """The time until the run of a killed worker starts again on another one, with default settings."""
    scheduler = client(assignment)
    async with scheduler.client(), start_workers([assignment] * 2) as workers:
        await workers.go()
        await scheduler.submit("linger", {"seconds": seconds})
        await until(workers, 1, _STALLED_AFTER)
        killed_at = await workers.kill_busy()
        await until(workers, 1, _STALLED_AFTER, lambda _: progress("waiting", round(time.time() - killed_at), 20))
        [survivor] = await workers.stop()
    return {"recovery_s": round(survivor.seen[0][1] - killed_at, 3), "attempts": 1 + len(survivor.seen)}


async def idle(seconds: float, assignment: Assignment, progress: Progress) -> dict[str, Any]:
    """The processor time and memory of a node that has many schedules and nothing to do."""
    async with start_workers([assignment]) as workers:
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


async def _settled(workers: Workers, progress: Progress) -> None:
    """Wait until registration and the first planning have ended: until the processor is idle for a few seconds."""
    quiet, last = 0, -1.0
    while quiet < 10:
        progress("settling", 0, 1)
        await asyncio.sleep(0.5)
        quiet = quiet + 1 if last >= 0 and workers.cpu() - last < 0.02 else 0
        last = workers.cpu()
