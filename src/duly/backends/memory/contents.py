"""What one memory store holds, shared by all sessions opened on it."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from duly.backends.memory.notify import Notifier
from duly.backends.memory.runs import Runs
from duly.model import Entry, Item, JobRecord, JobStatistics, JobStatus, Lease, Node
from duly.model.transfer import StoreMark
from duly.ports import FROZEN, Clock, StoreClock
from duly.rules.statistics import Tally, combine

_FENCES_PER_SECOND = 1 << 20
_NOT_STORED = frozenset({"clock", "notifier", "shared_notifier", "runs", "mark", "_closed"})


class Contents:
    """Plain dictionaries and heaps. Belongs to one event loop."""

    def __init__(self, local: Clock) -> None:
        self.clock = StoreClock(local, direct=True)
        self.notifier = Notifier()
        self.shared_notifier = Notifier()  # separate: tasks that watch a value need not wake for every run
        # Fences start at the clock, so that a store which lost everything does not give one out twice.
        self.runs = Runs(last_fence=int(self.clock.now().timestamp()) * _FENCES_PER_SECOND)
        self.mark: StoreMark | None = None
        self._closed: list[tuple[object, dict[str, Any]]] = []
        self._begin()

    def _begin(self) -> None:
        """Contain nothing."""
        clock = self.clock
        self.requests: dict[str, int] = {}
        self.last_beat = clock.now()
        self.no_reap_before = clock.now()
        self.paused_queues: set[str] = set()
        self.jobs: dict[str, JobRecord] = {}
        self.blocked_jobs: set[str] = set()
        self.epochs: dict[str, int] = {}
        self.statistics: dict[tuple[str, str], JobStatistics] = {}
        self.leases: dict[str, Lease] = {}
        self.last_lease_fence = 0
        self.nodes: dict[str, tuple[Node, datetime]] = {}
        self.shared: dict[str, Item] = {}
        self.items: dict[tuple[str, str], Item] = {}
        self.logs: defaultdict[str, list[Entry]] = defaultdict(list)
        self.buckets: dict[str, tuple[float, datetime]] = {}
        self._planning: defaultdict[str, list[tuple[datetime, str]]] = defaultdict(list)

    def clear(self) -> None:
        """Delete everything."""
        self.runs.clear()
        self._begin()

    def close(self, instead: object) -> None:
        """Put this in the place of everything that is stored."""
        self.reopen()
        for holder in (self, self.runs):
            stored = {name: value for name, value in vars(holder).items() if name not in _NOT_STORED}
            self._closed.append((holder, stored))
            vars(holder).update(dict.fromkeys(stored, instead))
        self.notifier.ring()

    def reopen(self) -> None:
        """Have everything again."""
        for holder, stored in self._closed:
            vars(holder).update(stored)
        self._closed.clear()
        self.notifier.ring()

    def is_paused(self, queue: str) -> bool:
        """Whether no claim takes runs of a queue: it is paused, or the store is frozen."""
        return queue in self.paused_queues or FROZEN in self.paused_queues

    def count(self, tallies: Mapping[tuple[str, str], Tally]) -> None:
        """Add a batch's counters to those kept."""
        for key, added in tallies.items():
            kept = self.statistics.get(key)
            self.statistics[key] = combine([added] if kept is None else [kept, added])

    def keep(self, record: JobRecord) -> None:
        """Keep this version of a job and enter it into its shard's planning index."""
        self.jobs[record.name] = record
        if record.status in (JobStatus.PAUSED, JobStatus.REMOVED):
            self.blocked_jobs.add(record.name)
        else:
            self.blocked_jobs.discard(record.name)
        if record.plannable and record.plan_at is not None:
            heapq.heappush(self._planning[record.shard], (record.plan_at, record.name))

    def forget(self, record: JobRecord) -> None:
        """Delete a job, not its runs."""
        del self.jobs[record.name]
        self.blocked_jobs.discard(record.name)

    def due(self, shard: str, limit: int, now: datetime) -> tuple[list[JobRecord], datetime | None]:
        """The records of a shard whose time to plan has come, and the time of the next; none while it is frozen."""
        if FROZEN in self.paused_queues:
            return [], None
        heap = self._planning[shard]
        found: dict[str, tuple[datetime, str]] = {}
        next_at = None
        while heap:
            plan_at, name = entry = heapq.heappop(heap)
            record = self.jobs.get(name)
            if record is None or not record.plannable or record.plan_at != plan_at or name in found:
                continue
            if record.shard != shard:  # the job has moved to another shard
                continue
            if plan_at > now or len(found) == limit:
                heapq.heappush(heap, entry)
                next_at = plan_at
                break
            found[name] = entry
        for entry in found.values():  # the entries stay in the index
            heapq.heappush(heap, entry)
        return [self.jobs[name] for name in found], next_at
