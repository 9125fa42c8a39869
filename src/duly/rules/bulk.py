"""Operations on many runs: whether a filter says enough, and which runs it meant when it was counted.

Somebody counts what a filter matches, looks at the number, and acts on it a minute later. What has happened in between
must not be affected: a run that was created or has ended after `as_of` is left alone, although it matches now.
"""

from __future__ import annotations

from datetime import datetime

from duly.model import Run, RunQuery, State
from duly.rules.lifecycle import REDRIVABLE

CANCELLABLE = frozenset({State.PENDING, State.QUEUED, State.RUNNING})

MOST_COUNTED = 10_000

_EVERYTHING = RunQuery()
_NO_FILTER = frozenset({"order"})


def says_something(query: RunQuery) -> bool:
    """Whether a filter excludes anything. A bulk operation without a filter is refused: it is probably a mistake."""
    return any(
        getattr(query, name) != getattr(_EVERYTHING, name)
        for name in RunQuery.__struct_fields__
        if name not in _NO_FILTER
    )


def stood(run: Run, as_of: datetime) -> bool:
    """Whether a run that matches now was there at that time, and has not ended since."""
    created = run.created_at or run.due
    return created <= as_of and (run.finished_at is None or not run.final or run.finished_at <= as_of)


def may_cancel(run: Run) -> bool:
    return run.state in CANCELLABLE


def may_redrive(run: Run) -> bool:
    return run.state in REDRIVABLE
