"""Counting what waits and runs, up to a bound.

Waiting runs are counted line by line, each up to an equal share of the bound; what short lines leave is shared among
the longer ones. Counters that the verbs keep would have to follow the clock, since a pending run becomes queued without
a change, and every claim would pay for them. Held and claimed runs have no index by line: they are counted in the order
of their tables, and beyond the bound the queues of the others are unknown.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from duly.backends.codec import instant
from duly.backends.sql.operating import paused
from duly.backends.sql.unit import Unit
from duly.model import Counts, Depth, State

_ROUNDS = 4
_ENDED = "SELECT state, sum(ended)::bigint FROM {ns}.totals GROUP BY state"
_HELD = """
SELECT {queue}, number FROM (
    SELECT line, count(*) AS number FROM (SELECT line FROM {ns}.held LIMIT $1) AS h GROUP BY line
) AS h
"""
_CLAIMED = """
SELECT {queue}, number FROM (
    SELECT (SELECT r.line FROM {ns}.runs AS r WHERE r.seq = c.seq) AS line, count(*) AS number
    FROM (SELECT seq FROM {ns}.claims LIMIT $1) AS c GROUP BY 1
) AS c WHERE line IS NOT NULL
"""


class _Line(Struct):
    """How many runs of a line are due and not yet due; those beyond the share are not counted."""

    key: Any
    queue: str
    due: int
    later: int
    oldest: int | None


class _Sum(Struct):
    """The contents of one queue during counting."""

    queued: int = 0
    pending: int = 0
    running: int = 0
    oldest: int | None = None
    at_least: frozenset[State] = frozenset()

    def add(self, line: _Line, share: int) -> None:
        self.queued += line.due
        self.pending += line.later
        self.oldest = min((at for at in (self.oldest, line.oldest) if at is not None), default=None)
        more = {State.QUEUED: line.due > share, State.PENDING: line.later > share}
        self.at_least |= {state for state, is_more in more.items() if is_more}

    def depth(self, *, is_paused: bool) -> Depth:
        return Depth(self.queued, self.pending, self.running, instant(self.oldest), is_paused, self.at_least)


async def counts(unit: Unit, now: int | None, scan: int) -> Counts:
    """Runs by state and queue."""
    bound = max(1, scan)
    sums: dict[str, _Sum] = {}
    lines, share = await _waiting(unit, now, bound)
    for line in lines:
        sums.setdefault(line.queue, _Sum()).add(line, share)
    held, claimed = await unit.all(_HELD, bound + 1), await unit.all(_CLAIMED, bound + 1)
    for queue, number in held:
        sums.setdefault(queue, _Sum()).pending += number
    for queue, number in claimed:
        sums.setdefault(queue, _Sum()).running += number
    stopped = await paused(unit)
    for queue in stopped:
        sums.setdefault(queue, _Sum())
    uncounted = {
        state
        for state, rows in ((State.PENDING, held), (State.RUNNING, claimed))
        if sum(number for _, number in rows) > bound
    }
    for entry in sums.values():
        entry.at_least |= uncounted
    states = dict.fromkeys(State, 0) | {State(state): number for state, number in await unit.all(_ENDED)}
    states[State.QUEUED] = sum(entry.queued for entry in sums.values())
    states[State.PENDING] = sum(entry.pending for entry in sums.values())
    states[State.RUNNING] = sum(entry.running for entry in sums.values())
    return Counts(states, {queue: sums[queue].depth(is_paused=queue in stopped) for queue in sorted(sums)})


async def _waiting(unit: Unit, now: int | None, bound: int) -> tuple[list[_Line], int]:
    """All lines that have waiting runs, and the share: up to how many due and later ones the longest are counted."""
    keys = [row[0] for row in await unit.all("{waiting_lines}")]
    short: list[_Line] = []
    longer: list[_Line] = []
    share, left = 0, bound
    for _ in range(_ROUNDS):
        if not keys or max(1, left // len(keys)) <= share:
            break
        share = max(1, left // len(keys))
        lines = [_Line(*row) for row in await unit.all("{line_depths}", now, share + 1, keys)]
        longer = [line for line in lines if max(line.due, line.later) > share]
        keys = [line.key for line in longer]
        short += [line for line in lines if max(line.due, line.later) <= share]
        left = bound - sum(line.due + line.later for line in short)
    return [*short, *longer], share
