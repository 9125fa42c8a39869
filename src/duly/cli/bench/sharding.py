"""The measurement of sharded planning: its processor time per node, and the takeover from a node that is killed."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from typing import Any

from msgspec.structs import replace

from duly.cli.bench.measures import Progress, beats
from duly.cli.bench.worker_kinds import MINUTE, Assignment, client
from duly.cli.bench.workers import ProcessWorkers, Workers, start_workers, until
from duly.errors import DulyError
from duly.scheduler import Scheduler

_FIRST_RUNS = 300.0
_SPREAD = 400.0
_TAKEOVER = 60.0
_AFTER = 45.0  # longer than the time for which runs are planned ahead
_LOOK = 0.1


async def shards(nodes: int, shards: int, assignment: Assignment, progress: Progress) -> dict[str, Any]:
    """Plan schedules that are due every minute on one scheduler node, then on several, one of which is killed.

    One worker executes the runs, so that those which never started or started twice can be counted.
    """
    worker = replace(assignment, roles=("worker",), concurrency=1000)
    planner = replace(assignment, kind="other", schedules=0, roles=("scheduler",))
    one, several = [planner], [replace(planner, shards=shards)] * nodes
    async with start_workers([worker]) as workers, client(planner).client() as scheduler:
        await workers.go()
        async with start_workers(one) as planners:
            await planners.go()
            total = assignment.schedules
            await until(workers, total, _FIRST_RUNS, lambda done: progress("first runs", done, total))
            first = _next_minute()
            alone = await _measured(planners, first, progress)
            await planners.stop()
        async with start_workers(several) as planners:
            assert isinstance(planners, ProcessWorkers)
            await planners.go()
            await _spread(scheduler, nodes, shards, progress)
            each = await _measured(planners, _next_minute(), progress)
            before = set((await scheduler.health()).shards.values())
            killed_at = await planners.kill_last()
            taken_over_at = await _taken_over(scheduler, before, progress)
            await asyncio.sleep(_AFTER)
            last = _next_minute() - MINUTE
            await _idle(workers)
            await planners.stop()
        reports = await workers.stop()
    return {
        "schedules": assignment.schedules,
        "nodes": nodes,
        "shards": shards,
        "cpu_percent_of_one_planner": round(alone[0] / MINUTE * 100, 2),
        "cpu_percent_per_node": [round(cpu / MINUTE * 100, 2) for cpu in each],
        "cpu_ratio": round(max(each) / alone[0], 3),
        "takeover_s": round(taken_over_at - killed_at, 2),
        **beats(reports, assignment.schedules, first, last, MINUTE),
    }


def _next_minute() -> float:
    return (math.floor(time.time() / MINUTE) + 1) * MINUTE


async def _measured(planners: Workers, start: float, progress: Progress) -> list[float]:
    """The processor time of each planner in the minute that begins then."""
    assert isinstance(planners, ProcessWorkers)
    await asyncio.sleep(start - time.time())
    before = planners.cpus()
    while (seconds := time.time() - start) < MINUTE:
        progress("planning", round(seconds), MINUTE)
        await asyncio.sleep(_LOOK)
    planners.done()
    return [after - begun for begun, after in zip(before, planners.cpus(), strict=True)]


async def _spread(scheduler: Scheduler, nodes: int, shards: int, progress: Progress) -> None:
    """Wait until each node leads its share of the shards and the jobs have moved there."""
    most = math.ceil(shards / nodes)
    deadline = time.time() + _SPREAD
    while time.time() < deadline:
        led = Counter((await scheduler.health()).shards.values())
        progress("sharing out", sum(min(number, most) for number in led.values()), shards)
        if None not in led and len(led) == min(nodes, shards) and max(led.values()) <= most:
            await asyncio.sleep(MINUTE)  # each job is planned once within its period, and moves then
            return
        await asyncio.sleep(_LOOK * 5)
    raise DulyError(f"the shards were not shared out within {_SPREAD:g} s: {dict(led)}")


async def _taken_over(scheduler: Scheduler, before: set[str | None], progress: Progress) -> float:
    """Wait until each shard is led by one of the nodes that are left; the time of it."""
    began = time.time()
    while time.time() - began < _TAKEOVER:
        led = set((await scheduler.health()).shards.values())
        progress("takeover", round(time.time() - began), round(_TAKEOVER))
        if None not in led and led < before:
            return time.time()
        await asyncio.sleep(_LOOK)
    raise DulyError(f"the shards of the killed node were not taken over within {_TAKEOVER:g} s")


async def _idle(workers: Workers) -> None:
    """Wait until the worker has executed what is due."""
    last = -1
    while (done := workers.done()) != last:
        last = done
        await asyncio.sleep(2)
