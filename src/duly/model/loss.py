"""Losses: acknowledged changes that a store no longer has.

A session that knows more than the store writes an entry to the log `losses`. Several sessions may report the same loss,
each with what it knows: these entries are combined into one `Loss`.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct

LOSSES = "losses"  # the name of their log in the store
KEPT_LOSSES = 1000


class LossReport(Struct, frozen=True):
    """What one session found.

    `incarnation` is that of the store since the loss. `added` submitted or planned runs are lost, and so are the
    recorded ends of `settled` runs.
    """

    incarnation: int
    how: str
    added: int = 0
    settled: int = 0


class Loss(Struct, frozen=True):
    """What all reports of one loss say together; `at` is when it was noticed first."""

    at: datetime
    report: LossReport

    def __str__(self) -> str:
        lost = lost_text(self.report.added, self.report.settled)
        return lost or "changes that it had acknowledged"


def lost_text(added: int, settled: int) -> str:
    """How much was lost, in words; empty if none of the counted changes were."""
    parts = []
    if added:
        parts.append(f"up to {added} submitted or planned runs")
    if settled:
        parts.append(f"the end of up to {settled} runs")
    return " and ".join(parts)


def combined(reports: Iterable[tuple[datetime, LossReport]]) -> list[Loss]:
    """The losses that these reports describe, earliest first."""
    losses: dict[int, Loss] = {}
    for at, report in reports:
        known = losses.get(report.incarnation)
        if known is None:
            losses[report.incarnation] = Loss(at, report)
        else:
            added, settled = max(known.report.added, report.added), max(known.report.settled, report.settled)
            whole = LossReport(report.incarnation, known.report.how, added, settled)
            losses[report.incarnation] = Loss(min(known.at, at), whole)
    return sorted(losses.values(), key=lambda loss: loss.at)
