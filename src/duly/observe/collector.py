"""Custom metrics: calls the methods of a collector that the user writes, for the events that matter to metrics.

Subclass `MetricsCollector` to write only some of its methods, or pass any object that has all of them. It is called on
the node's event loop: it must not block.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from duly.model import Failure, OutcomeKind
from duly.model import event as events
from duly.model.job import MAIN


@runtime_checkable
class MetricsCollector(Protocol):
    """Receives what a node counts and measures. Names are those of jobs, durations are in seconds."""

    def job_started(self, name: str, late: float) -> None:
        """An attempt started, that many seconds after its run was ready."""
        return

    def job_completed(self, name: str, seconds: float) -> None:
        """A run completed; its last attempt took that long."""
        return

    def job_failed(self, name: str, error: Failure) -> None:
        """A run failed for good: its retries are used up, or its worker was lost."""
        return

    def job_retried(self, name: str, error: Failure) -> None:
        """An attempt failed, and there will be another one."""
        return

    def job_cancelled(self, name: str) -> None:
        """A run was cancelled while it ran."""
        return

    def runs_claimed(self, count: int, seconds: float) -> None:
        """One call to the store claimed `count` runs."""
        return

    def runs_settled(self, count: int, seconds: float) -> None:
        """One call to the store settled `count` runs."""
        return

    def runs_reaped(self, count: int) -> None:
        """`count` runs of vanished nodes were taken over."""
        return

    def claims_lost(self, count: int) -> None:
        """`count` leases could not be kept."""
        return

    def leader_changed(self, leads: bool) -> None:
        """This node won or lost the leadership."""
        return

    def store_away(self, service: str) -> None:
        """A service of this node could not reach the store."""
        return


class Collecting:
    """A collector as a subscriber to events."""

    def __init__(self, collector: MetricsCollector) -> None:
        self._collector = collector

    def wants(self, kind: type[events.Event]) -> bool:
        return kind in _COUNTED

    def __call__(self, event: events.Event) -> None:
        collector = self._collector
        match event:
            case events.RunStarted(run, late):
                collector.job_started(run.job, late)
            case events.RunEnded():
                self._ended(event)
            case events.RunsClaimed(count, seconds):
                collector.runs_claimed(count, seconds)
            case events.RunsSettled(count, seconds):
                collector.runs_settled(count, seconds)
            case events.RunsReaped(run_ids):
                collector.runs_reaped(len(run_ids))
            case events.ClaimsLost(run_ids):
                collector.claims_lost(len(run_ids))
            case events.LeaderElected(lease) if lease.name == MAIN:
                collector.leader_changed(leads=True)
            case events.LeaderLost(shard) if shard == MAIN:
                collector.leader_changed(leads=False)
            case events.StoreAway(service):
                collector.store_away(service)
            case _:
                pass

    def _ended(self, event: events.RunEnded) -> None:
        name, failure = event.run.job, event.failure or Failure(event.outcome.value, "")
        match event.outcome:
            case OutcomeKind.SUCCEEDED:
                self._collector.job_completed(name, event.seconds)
            case OutcomeKind.CANCELLED:
                self._collector.job_cancelled(name)
            case _ if event.retry_at is not None:
                self._collector.job_retried(name, failure)
            case _:
                self._collector.job_failed(name, failure)


_COUNTED = frozenset(
    {
        events.RunStarted,
        events.RunEnded,
        events.RunsClaimed,
        events.RunsSettled,
        events.RunsReaped,
        events.ClaimsLost,
        events.LeaderElected,
        events.LeaderLost,
        events.StoreAway,
    }
)
