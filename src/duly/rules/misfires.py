"""Misfires: until when a planned run may start, and when this limit does not apply.

A run is planned some time before it is due. The whole cluster may stop meanwhile, so the policy of its job is applied
again when it is about to start: a store looks at `start_by` when a run is to enter its group, the worker before it
calls the handler. `Misfire.ALL` sets no such limit.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from duly.model import Misfire, Run, Settlement, WhenFull

MISFIRE = "misfire"
LATE = 1_000_000  # microseconds


def start_by(misfire: Misfire, ready_at: datetime, following: datetime | None, grace: timedelta) -> datetime | None:
    """Until when a run may start. `following` is when the next instant is ready, None if there is none.

    With `SKIP` only its own time counts. With `LATEST` it may be late, but not when a later instant is missed.
    """
    match misfire:
        case Misfire.SKIP:
            return ready_at + grace
        case Misfire.LATEST:
            return None if following is None else following + grace
        case Misfire.ALL:
            return None


def is_missed_entrant(start_by: int | None, ready_at: int, now: int) -> bool:
    """Whether a run is too late to enter its group; times are in microseconds, as in stores.

    A run that is less than a second late is never too late, so stores need not check runs that start in time.
    """
    return start_by is not None and start_by < now and ready_at + LATE < now


def is_missed(run: Run, now: datetime) -> bool:
    """Whether a run that was claimed is too late to start.

    One for which later instants have been skipped (it was in its group, waiting in the queue) starts late rather than
    none of them, unless its job wants no late starts at all.
    """
    if run.start_by is None or now <= run.start_by:
        return False
    return run.strict or run.group is None or run.when_full is not WhenFull.SKIP


def start_by_after(run: Run, settlement: Settlement) -> datetime | None:
    """`start_by` of a run that waits again: None once an attempt has started, because that one was in time."""
    return run.start_by if settlement.attempt is None else None
