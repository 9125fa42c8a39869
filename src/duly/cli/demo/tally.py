"""The tally: what the demo has seen so far, by job."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Sequence

from duly.model import Run, State
from duly.model.event import Event, RunEnded, RunStarted

_REMEMBERED = 5000


class JobTally:
    """What was seen of one job. Of the lateness of its runs the latest few thousand are remembered."""

    def __init__(self) -> None:
        self.late: deque[float] = deque(maxlen=_REMEMBERED)
        self.latest = 0.0
        self.ended: Counter[State] = Counter()
        self.retries = 0
        self.running = 0
        self.skipped: Counter[str] = Counter()


class Tally:
    """Listens to events; is told about skipped runs, of which there are no events."""

    def __init__(self) -> None:
        self.jobs: dict[str, JobTally] = {}
        self.skipped: dict[str, Run] = {}

    def expect(self, jobs: Iterable[str]) -> None:
        """These are the demo's own; a store that was given may hold others."""
        for name in jobs:
            self._of(name)

    def _of(self, name: str) -> JobTally:
        return self.jobs.setdefault(name, JobTally())

    def hear(self, event: Event) -> None:
        """Count one event."""
        match event:
            case RunStarted(run, late):
                job = self._of(run.job)
                job.late.append(late)
                job.latest = max(job.latest, late)
                job.running += 1
            case RunEnded(run, _, state, _, _, retry_at):
                job = self._of(run.job)
                job.running -= 1
                if retry_at is None:
                    job.ended[state] += 1
                else:
                    job.retries += 1
            case _:
                pass

    def skip(self, runs: Iterable[Run]) -> list[Run]:
        """Count skipped runs; returns those that are new, the earliest first."""
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
    """The smallest value that is not exceeded by that share of the values."""
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
