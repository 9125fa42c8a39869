"""Statistics: the counters a batch of settlements adds, one change per key and batch."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct
from msgspec.structs import asdict

from duly.model import JobStatistics, OutcomeKind, Settlement, State


class Tally(Struct):
    """Mutable counters: what a batch adds for one job on one node, or a sum over nodes."""

    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    lost: int = 0
    retried: int = 0
    seconds: float = 0.0
    last_run_at: datetime | None = None
    last_outcome: OutcomeKind | None = None

    def see(self, at: datetime | None, outcome: OutcomeKind | None) -> None:
        """Keep the latest run's start and outcome."""
        if at is not None and (self.last_run_at is None or at >= self.last_run_at):
            self.last_run_at = at
            self.last_outcome = outcome


def tally(settlements: Iterable[Settlement]) -> dict[tuple[str, str], Tally]:
    """Sum up applied settlements by (job, node). A release counts nothing."""
    tallies: dict[tuple[str, str], Tally] = {}
    for settled in settlements:
        if settled.outcome is None:
            continue
        key = (settled.job, settled.node)
        entry = tallies.get(key)
        if entry is None:
            entry = tallies[key] = Tally()
        _count(entry, settled.state)
        entry.seconds += (settled.ended_at - settled.started_at).total_seconds()
        entry.see(settled.started_at, settled.outcome)
    return tallies


def _count(entry: Tally, state: State) -> None:
    match state:
        case State.COMPLETED:
            entry.completed += 1
        case State.FAILED:
            entry.failed += 1
        case State.CANCELLED:
            entry.cancelled += 1
        case State.LOST:
            entry.lost += 1
        case _:
            entry.retried += 1


def combine(parts: Iterable[JobStatistics | Tally]) -> JobStatistics:
    """Sum up counters that are kept per node."""
    total = Tally()
    for part in parts:
        total.completed += part.completed
        total.failed += part.failed
        total.cancelled += part.cancelled
        total.lost += part.lost
        total.retried += part.retried
        total.seconds += part.seconds
        total.see(part.last_run_at, part.last_outcome)
    return JobStatistics(**asdict(total))
