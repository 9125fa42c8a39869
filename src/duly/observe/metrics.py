"""Metrics: what a process counts about itself, as plain numbers.

A subscriber to events that only adds: no locks, no dependencies, a few hundred nanoseconds per run.
`observe.prometheus` exports the numbers to a scraper, the API summarizes them.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import Counter, defaultdict

from duly.model import event as events
from duly.model.job import MAIN

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
LATENESS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0)
LATENCY = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
SIZES = (1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0)

# The events that are counted; others need not be created for it.
METERED = (
    events.RunStarted,
    events.RunEnded,
    events.RunsClaimed,
    events.RunsSettled,
    events.RunsReaped,
    events.ClaimsLost,
    events.LeaderElected,
    events.LeaderLost,
    events.SettlementRefused,
    events.SettlementAbandoned,
    events.RecordUnreadable,
    events.ServiceFailed,
    events.StoreAway,
    events.DataLost,
    events.ClockDoubted,
    events.LoopStalled,
)

_MOST_NAMES = 1_000
_OTHER = "(other)"
_LAG_PERIOD = 0.5


class Histogram:
    """A histogram: counts by upper bound, and the number and sum of all values."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def cumulated(self) -> list[tuple[str, float]]:
        """Pairs of an upper bound, as text, and the number of values up to it."""
        pairs, seen = [], 0
        for bound, count in zip([*map(str, self._bounds), "+Inf"], self.counts, strict=True):
            seen += count
            pairs.append((bound, float(seen)))
        return pairs


class MetricsRecorder:
    """Everything this process has counted since it started."""

    def __init__(self) -> None:
        self.started: Counter[tuple[str, str]] = Counter()
        self.ended: Counter[tuple[str, str, str]] = Counter()
        self.seconds: defaultdict[str, Histogram] = defaultdict(lambda: Histogram(SECONDS))
        self.lateness: defaultdict[str, Histogram] = defaultdict(lambda: Histogram(LATENESS))
        self.settled = Histogram(SIZES)
        self.claimed = Histogram(SIZES)
        self.store: defaultdict[str, Histogram] = defaultdict(lambda: Histogram(LATENCY))
        self.loop_lag = Histogram(LATENCY)
        self.events: Counter[str] = Counter()
        self.last_start = 0.0
        self._names: set[str] = set()

    def wants(self, kind: type[events.Event]) -> bool:
        return kind in METERED

    def __call__(self, event: events.Event) -> None:
        match event:
            case events.RunStarted(run, late):
                job = self._name(run.job)
                self.started[job, run.queue] += 1
                self.lateness[job].add(max(0.0, late))
                self.last_start = (run.started_at or run.ready_at).timestamp()
            case events.RunEnded(run):
                job = self._name(run.job)
                self.ended[job, run.queue, event.outcome.value if event.retry_at is None else "retried"] += 1
                self.seconds[job].add(event.seconds)
            case events.RunsClaimed(count, seconds):
                self.claimed.add(count)
                self.store["claim"].add(seconds)
            case events.RunsSettled(count, seconds):
                self.settled.add(count)
                self.store["settle"].add(seconds)
            case events.RunsReaped(run_ids):
                self.events["reaped"] += len(run_ids)
            case events.ClaimsLost(run_ids):
                self.events["claims_lost"] += len(run_ids)
            case _:
                self._count(event)

    def _count(self, event: events.Event) -> None:
        """Update the plain counters."""
        match event:
            case events.LeaderElected():
                self._count_leader(event.lease.name)
            case events.LeaderLost():
                self._count_leader(event.shard)
            case events.SettlementRefused():
                self.events["settlements_refused"] += 1
            case events.SettlementAbandoned():
                self.events["settlements_abandoned"] += 1
            case events.RecordUnreadable():
                self.events["records_unreadable"] += 1
            case events.ServiceFailed():
                self.events["services_failed"] += 1
            case events.StoreAway():
                self.events["store_away"] += 1
            case events.DataLost():
                self.events["data_losses"] += 1
            case events.ClockDoubted():
                self.events["clock_jumps"] += 1
            case events.LoopStalled():
                self.events["loop_stalls"] += 1
            case _:
                pass

    def _count_leader(self, shard: str) -> None:
        self.events["leader_changes" if shard == MAIN else "shard_changes"] += 1

    def _name(self, job: str) -> str:
        """The job's name; after a thousand different names, one name for all others: it limits the time series."""
        if job in self._names:
            return job
        if len(self._names) >= _MOST_NAMES:
            return _OTHER
        self._names.add(job)
        return job


async def watch_loop(meters: MetricsRecorder) -> None:
    """Measure until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        asked = loop.time()
        await asyncio.sleep(_LAG_PERIOD)
        meters.loop_lag.add(max(0.0, loop.time() - asked - _LAG_PERIOD))
