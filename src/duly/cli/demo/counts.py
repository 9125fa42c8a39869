"""What the demo has counted so far, by job."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Sequence

from duly.model import Run, State
from duly.model.published_event import PublishedEvent
from duly.model.published_event import PublishedEventKind as Kind

_MAX_LATE = 5000


class JobCounts:
    """The counts of one job. `late` has the lateness of its latest few thousand runs."""

    def __init__(self) -> None:
        self.late: deque[float] = deque(maxlen=_MAX_LATE)
        self.latest = 0.0
        self.ended: Counter[State] = Counter()
        self.retries = 0
        self.skipped: Counter[str] = Counter()


class DemoCounts:
    """Counts published events, and skipped runs, which have none."""

    def __init__(self) -> None:
        self.jobs: dict[str, JobCounts] = {}
        self.skipped: dict[str, Run] = {}

    def expect(self, jobs: Iterable[str]) -> None:
        """Count only these jobs: the store may have others."""
        for name in jobs:
            self.jobs.setdefault(name, JobCounts())

    def handle(self, event: PublishedEvent) -> None:
        """Count one event."""
        job = self.jobs.get(event.job or "")
        if job is None:
            return
        if event.kind is Kind.RUN_STARTED:
            job.late.append(event.late or 0.0)
            job.latest = max(job.latest, event.late or 0.0)
        elif event.kind is Kind.RUN_ENDED and event.retry_at is not None:
            job.retries += 1
        elif event.kind is Kind.RUN_ENDED and event.state is not None:
            job.ended[event.state] += 1

    def skip(self, runs: Iterable[Run]) -> list[Run]:
        """Count skipped runs; returns the new ones, the earliest first."""
        new = [run for run in runs if run.job in self.jobs and run.id not in self.skipped]
        for run in new:
            self.skipped[run.id] = run
            self.jobs[run.job].skipped[run.reason or "skipped"] += 1
        return sorted(new, key=lambda run: run.due)

    @property
    def late(self) -> list[float]:
        """The lateness of all runs."""
        return [late for job in self.jobs.values() for late in job.late]


def percentile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that is not exceeded by this share of the values."""
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
