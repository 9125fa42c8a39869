"""The line: which runs wait, in which order they are due, and when the next one is.

A line is all waiting runs of one queue, priority and kind (of a schedule or not), by ready time, then id. There are few
lines, so the distinct ones are found by leaping from one to the next instead of walking over their runs, and a claim
looks only at the heads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import merge
from itertools import chain

from msgspec import Struct

from duly.backends.sqlite.interning import SPAN, is_scheduled, rank_of
from duly.backends.sqlite.unit_of_work import Row, UnitOfWork
from duly.rules.sharing import shared

# The lines that have runs, of those that may start (0) and of those that wait to enter their group (1), with the ready
# time of the first run and of the first that is not ready yet.
_SURVEY = """
WITH RECURSIVE
waiting_lines (line) AS (
    SELECT min(line) FROM {ns}_waiting
    UNION ALL
    SELECT (SELECT min(line) FROM {ns}_waiting WHERE line > waiting_lines.line)
    FROM waiting_lines WHERE waiting_lines.line IS NOT NULL
),
entrant_lines (line) AS (
    SELECT min(line) FROM {ns}_entrants
    UNION ALL
    SELECT (SELECT min(line) FROM {ns}_entrants WHERE line > entrant_lines.line)
    FROM entrant_lines WHERE entrant_lines.line IS NOT NULL
)
SELECT 0, l.line,
    (SELECT min(ready_at) FROM {ns}_waiting WHERE line = l.line),
    (SELECT min(ready_at) FROM {ns}_waiting WHERE line = l.line AND ready_at > ?1)
FROM waiting_lines AS l WHERE l.line IS NOT NULL
UNION ALL
SELECT 1, l.line,
    (SELECT min(ready_at) FROM {ns}_entrants WHERE line = l.line),
    (SELECT min(ready_at) FROM {ns}_entrants WHERE line = l.line AND ready_at > ?1)
FROM entrant_lines AS l WHERE l.line IS NOT NULL
"""

# The first runs of a line that are ready, with what a claim needs.
_READY = """
SELECT w.ready_at, w.id, w.line, 0, w.seq, w.kind, w."group", r.due, r.created_at, r.extra, r.payload
FROM {ns}_waiting AS w CROSS JOIN {ns}_runs AS r ON r.seq = w.seq
WHERE w.line = ? AND w.ready_at <= ?
ORDER BY w.ready_at, w.id
LIMIT ?
"""
_READY_TO_ENTER = """
SELECT n.ready_at, n.id, n.line, 1, n.seq, n.kind, n."group", r.due, r.created_at, r.extra, r.payload
FROM {ns}_entrants AS n CROSS JOIN {ns}_runs AS r ON r.seq = n.seq
WHERE n.line = ? AND n.ready_at <= ?
ORDER BY n.ready_at, n.id
LIMIT ?
"""

_DUE_ENTRANTS = """
SELECT ready_at, id, line, seq, kind, "group", (SELECT extra FROM {ns}_runs AS r WHERE r.seq = e.seq)
FROM {ns}_entrants AS e
WHERE line = ? AND ready_at <= ?
ORDER BY ready_at, id
LIMIT ?
"""

_SOME_DUE = "SELECT 1 FROM {ns}_entrants WHERE line = ? AND ready_at <= ? LIMIT ?"

# Take the head of a line off, up to and with one run.
_LEAVE = "DELETE FROM {ns}_waiting WHERE line = ? AND (ready_at, id) <= (?, ?)"
_LEAVE_ENTERING = "DELETE FROM {ns}_entrants WHERE line = ? AND (ready_at, id) <= (?, ?)"

# Positions in a row of _READY.
READY_AT, ID, LINE, ENTERING, SEQ, KIND, GROUP, DUE, CREATED_AT, EXTRA, PAYLOAD = range(11)


class WaitingLine(Struct, frozen=True):
    """One line: whether its runs wait to enter their group, its number, its first run, its first one not ready yet."""

    entering: bool
    number: int
    head: int
    later: int | None

    @property
    def queue(self) -> int:
        return self.number // SPAN

    @property
    def rank(self) -> int:
        """The smaller, the more urgent."""
        return rank_of(self.number)

    @property
    def scheduled(self) -> bool:
        """Whether its runs are those of schedules."""
        return is_scheduled(self.number)


def survey(unit: UnitOfWork, now: int) -> list[WaitingLine]:
    """All lines that have runs."""
    return [
        WaitingLine(bool(entering), number, head, later) for entering, number, head, later in unit.all(_SURVEY, now)
    ]


def earliest_later(lines: Iterable[WaitingLine]) -> int | None:
    """When the next run is ready that is not ready yet."""
    return min((line.later for line in lines if line.later is not None), default=None)


def ready(unit: UnitOfWork, lines: Sequence[WaitingLine], limit: int, owed: int, now: int) -> list[Row]:
    """The first runs of lines of one rank that are ready, in order; `owed` scheduled ones among them, if there are."""
    scheduled = [line for line in lines if line.scheduled]
    if not scheduled or len(scheduled) == len(lines):
        return _ready(unit, lines, limit, now)
    planned = _ready(unit, scheduled, limit, now)
    others = _ready(unit, [line for line in lines if not line.scheduled], limit, now)
    first, other = shared(planned, others, limit, owed)
    return [*merge(planned[:first], others[:other])]


def _ready(unit: UnitOfWork, lines: Sequence[WaitingLine], limit: int, now: int) -> list[Row]:
    heads = [unit.all(_READY_TO_ENTER if line.entering else _READY, line.number, now, limit) for line in lines]
    return heads[0] if len(heads) == 1 else sorted(chain.from_iterable(heads))[:limit]


def leave(unit: UnitOfWork, rows: Sequence[Row]) -> None:
    """Take runs that `ready` gave off their lines: all that it gave, in order, or the first of them."""
    last = {(row[LINE], row[ENTERING]): row for row in rows}
    for (line, entering), row in last.items():
        unit.run(_LEAVE_ENTERING if entering else _LEAVE, line, row[READY_AT], row[ID])


def due_entrants(unit: UnitOfWork, lines: Iterable[WaitingLine], limit: int, now: int) -> list[Row]:
    """The entrants of these lines that have been due for the longest time."""
    due = (line.number for line in lines if line.entering and line.head <= now)
    heads = chain.from_iterable(unit.all(_DUE_ENTRANTS, number, now, limit) for number in due)
    return sorted(heads)[:limit]


def fewer_due_entrants(unit: UnitOfWork, lines: Iterable[WaitingLine], number: int, now: int) -> bool:
    """Whether there are fewer due entrants than so many."""
    due = (line.number for line in lines if line.entering and line.head <= now)
    return sum(len(unit.all(_SOME_DUE, line, now, number)) for line in due) < number


def next_due(unit: UnitOfWork, now: int) -> int | None:
    """The earliest ready time among runs that are pending: not ready yet, or not decided about by their group yet."""
    lines = survey(unit, now)
    undecided = (line.head for line in lines if line.entering and line.head <= now)
    return min(undecided, default=earliest_later(lines))
