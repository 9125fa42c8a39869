"""`duly bench growth`: what each public reading and an idle leader cost while a store grows.

The store is filled to one size after the other. At each size all readings are timed, a leader is started and left
idle, and some runs are executed beside what is stored. `costs` has the rule by which a cost passes.
"""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from itertools import pairwise
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from duly.cli.bench.costs import Cost, Figures, failures, table
from duly.cli.bench.filling import Amounts, Filler, Progress
from duly.cli.bench.measures import drain
from duly.cli.bench.readings import measure, readings, targets
from duly.cli.bench.server_calls import slow_calls, slowest
from duly.cli.bench.worker_kinds import Assignment, client
from duly.cli.bench.workers import Workers, start_workers
from duly.scheduler import Scheduler

CPU_BAR = 2.0  # percent of a core
MEMORY_BAR = 200.0
CALL_BAR = 10.0  # milliseconds
_NO_QUEUE = ("nothing",)
_DRAINED = 10_000
_LEAST_DRAINED = 500
_STARTING = 60.0  # seconds that a leader may be busy after its start
_QUIET = 4  # looks, half a second apart


class Plan(Struct, frozen=True):
    """The sizes, the most of each kind, and how long a leader is idle."""

    sizes: tuple[int, ...]
    most: Amounts
    seconds: float

    def amounts(self, size: int) -> Amounts:
        """What a store of this size has."""
        most = self.most
        return Amounts(min(size, most.schedules), min(size, most.waiting), min(size, most.history))


class Findings:
    """The costs found so far, in the order in which they were measured first."""

    def __init__(self) -> None:
        self._costs: dict[str, Cost] = {}

    def add(self, name: str, unit: str, bar: float | None, figures: Figures) -> None:
        known = self._costs.get(name) or Cost(name, unit, bar, ())
        self._costs[name] = replace(known, figures=(*known.figures, figures))

    def once(self, name: str, unit: str, bar: float | None, size: int, value: float) -> None:
        """A cost that is measured once at each size."""
        self.add(name, unit, bar, Figures(size, round(value, 3), round(value, 3)))

    def all(self) -> list[Cost]:
        return list(self._costs.values())


async def growth(plan: Plan, assignment: Assignment, progress: Progress) -> dict[str, Any]:
    """Fill and measure at each size; the costs, and everything for which the benchmark fails."""
    scheduler = client(assignment)
    async with scheduler.client():
        filler, measuring = Filler(scheduler, progress), Measuring(scheduler, assignment, progress)
        since = (await scheduler.opened()).clock.now()
        filled = []
        for size in plan.sizes:
            amounts = plan.amounts(size)
            await filler.fill(amounts)
            filled.append({"size": size, **to_builtins(amounts), "per_s": dict(filler.rates)})
            await measuring.at(size, amounts, since, plan.seconds)
    costs = measuring.found.all()
    return {
        "namespace": assignment.namespace,
        "sizes": list(plan.sizes),
        "filled": filled,
        "slowest_calls": measuring.calls,
        "costs": costs,
        "failed": failures(costs),
    }


class Measuring:
    """Measures a store that has been filled."""

    def __init__(self, scheduler: Scheduler, assignment: Assignment, progress: Progress) -> None:
        self._scheduler = scheduler
        self._assignment = assignment
        self._progress = progress
        self.found = Findings()
        self.calls: list[dict[str, Any]] = []

    async def at(self, size: int, amounts: Amounts, since: datetime, seconds: float) -> None:
        """All costs at this size; `since` is when filling began, `seconds` how long the leader is idle."""
        recorded = slow_calls((await self._scheduler.opened()).backend)
        before = None if recorded is None else await recorded.read()
        await self._readings(size, amounts, since)
        verb, own = await self._leader(size, seconds)
        self.calls.append({"size": size, "verb": verb, "ms": round(own, 3)})
        after = None if recorded is None else await recorded.read()
        if before is not None and after is not None:
            self.found.once("slowest server call", "ms", CALL_BAR, size, slowest(before, after))
        else:  # an upper bound, which has no bar: it includes the wait for a processor
            self.found.once("leader, slowest call", "ms", None, size, own)
        await self._drain(size)

    async def _readings(self, size: int, amounts: Amounts, since: datetime) -> None:
        asked = readings(self._scheduler, await targets(self._scheduler, amounts, since), amounts)
        for number, reading in enumerate(asked):
            self._progress(reading.name, number, len(asked))
            self.found.add(reading.name, "ms", reading.bar, await measure(reading, size))

    async def _leader(self, size: int, seconds: float) -> tuple[str, float]:
        """What a leader costs at its start and while nothing is due; its slowest call, and its milliseconds."""
        async with start_workers([replace(self._assignment, queues=_NO_QUEUE)]) as workers:
            await workers.go()
            await _until_idle(workers, self._progress)
            self.found.once("leader's start, CPU", "s", None, size, workers.cpu())
            before, started = workers.cpu(), time.monotonic()
            while (elapsed := time.monotonic() - started) < seconds:
                self._progress("idle leader", round(elapsed), round(seconds))
                await asyncio.sleep(0.2)
            self.found.once("idle leader, CPU", "%", CPU_BAR, size, (workers.cpu() - before) / elapsed * 100)
            self.found.once("idle leader, memory", "MB", MEMORY_BAR, size, workers.memory_mb())
            [report] = await workers.stop()
        verb, taken = report.slowest
        return verb, taken * 1e3

    async def _drain(self, size: int) -> None:
        """What a run costs a worker while all the others are stored."""
        worker = replace(self._assignment, kind="noop", roles=("worker",), queues=("default",))
        jobs = max(_LEAST_DRAINED, min(_DRAINED, size))
        drained = await drain(jobs, 1, worker, self._progress)
        self.found.once("drain, per run", "µs", None, size, drained["seconds"] / jobs * 1e6)


async def _until_idle(workers: Workers, progress: Progress) -> None:
    """Wait until the leader has done what it does at its start; a leader that never rests is measured as it is."""
    quiet, last, deadline = 0, -1.0, time.monotonic() + _STARTING
    while quiet < _QUIET and time.monotonic() < deadline:
        progress("starting a leader", 0, 1)
        await asyncio.sleep(0.5)
        quiet = quiet + 1 if last >= 0 and workers.cpu() - last < 0.02 else 0
        last = workers.cpu()


def parse_sizes(text: str) -> tuple[int, ...]:
    """Sizes such as "10k,100k,1M", each larger than the one before; raises ValueError for anything else."""
    sizes = tuple(_size(word.strip()) for word in text.split(","))
    if any(after <= before for before, after in pairwise(sizes)):
        raise ValueError("each size must be larger than the one before")
    return sizes


def _size(word: str) -> int:
    factor = {"k": 1_000, "m": 1_000_000}.get(word[-1:].lower(), 1)
    digits = word if factor == 1 else word[:-1]
    if not digits.isdecimal() or int(digits) == 0:
        raise ValueError(f"invalid size {word!r}: expected e.g. 500, 10k, 1M")
    return int(digits) * factor


def show(result: dict[str, Any]) -> str:
    """The result as text."""
    lines = [table(result["costs"]), ""]
    for filled in result["filled"]:
        rates = ", ".join(f"{kind} {rate:,}/s" for kind, rate in filled["per_s"].items())
        lines.append(f"filled to {filled['size']:,}: {rates}")
    return "\n".join([*lines, *(f"failed: {line}" for line in result["failed"])])
