"""What SQLite does its own way beyond the words of statements: adding, dedupe keys, searching by number, leases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from duly.backends.codec import MIDDLE, urgency_of
from duly.backends.sql.unit import Conditions, Row
from duly.backends.sqlite import adding
from duly.backends.sqlite.claiming import survey
from duly.backends.sqlite.unit import SqliteUnit
from duly.model import Put, Run, RunQuery, to_micros
from duly.model.holds import UNPLACED
from duly.rules.placement import placing_order

_FEW_KINDS = 20
_KINDS = "SELECT number, handler, cause FROM {ns}.kinds"

_SOONEST = "SELECT ready_at, id, seq FROM {ns}.waiting WHERE line = ? ORDER BY ready_at, id LIMIT ?"
_SOONEST_TO_ENTER = "SELECT ready_at, id, seq FROM {ns}.entrants WHERE line = ? ORDER BY ready_at, id LIMIT ?"
# Walk over all that waits: an index by kind would make every claim pay for what few people ask.
_SOONEST_OF_JOB = """
SELECT ready_at, id, seq FROM (
    SELECT ready_at, id, seq, kind FROM {ns}.waiting
    UNION ALL
    SELECT ready_at, id, seq, kind FROM {ns}.entrants
    UNION ALL
    SELECT ready_at, id, seq, kind FROM {ns}.held WHERE hold = ?3
)
WHERE kind IN (SELECT number FROM {ns}.kinds WHERE job = ?1)
ORDER BY ready_at, id
LIMIT ?2
"""

# The ranks among the runs under a hold, found by leaping from one to the next.
_RANKS = """
WITH RECURSIVE ranks (rank) AS (
    SELECT min(rank) FROM {ns}.held WHERE hold = ?1
    UNION ALL
    SELECT (SELECT min(rank) FROM {ns}.held WHERE hold = ?1 AND rank > ranks.rank)
    FROM ranks WHERE ranks.rank IS NOT NULL
)
SELECT rank FROM ranks WHERE rank IS NOT NULL
"""
_OF_RANK = "SELECT ready_at, id, seq FROM {ns}.held WHERE hold = ? AND rank = ? "
_FIRST_OF_RANK = _OF_RANK + "ORDER BY ready_at, id LIMIT ?"
_DUE_OF_RANK = _OF_RANK + "AND ready_at <= ? AND (ready_at, id) > (?, ?) ORDER BY ready_at, id LIMIT ?"
_LATER_OF_RANK = _OF_RANK + "AND ready_at > ? AND (ready_at, id) > (?, ?) ORDER BY ready_at, id LIMIT ?"

_LEASE = "SELECT holder, fence, expires_at FROM {ns}.leases WHERE name = ?"
_SET_LEASE = """
INSERT INTO {ns}.leases (name, holder, fence, expires_at) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (name) DO UPDATE SET holder = ?2, fence = ?3, expires_at = ?4
"""


class SqliteDialect:
    """One for all: it has no state."""

    async def add(self, unit: SqliteUnit, runs: Sequence[Run], now: int) -> list[Put]:
        return await adding.add(unit, runs, now)

    async def take_keys(self, unit: SqliteUnit, runs: Sequence[tuple[int, Run]], now: int) -> set[int]:
        return adding.take_keys(unit, runs, now)

    def reason(self, text: str | None) -> str | None:
        return text

    async def know_line(self, unit: SqliteUnit, line: str) -> None:
        unit.names.number_of(unit, line)

    # --- searching

    async def soonest(self, unit: SqliteUnit, limit: int, job: str | None, now: int) -> list[int]:
        rows = _soonest(unit, limit, now) if job is None else unit.select(_SOONEST_OF_JOB, job, limit, UNPLACED)
        return [seq for _, _, seq in sorted(rows)[:limit]]

    async def first_held(self, unit: SqliteUnit, key: str, limit: int, after: Run | None, now: int) -> list[int]:
        return [seq for _, seq in sorted(_held_in_order(unit, key, limit, after, now))[:limit]]

    async def matching(self, unit: SqliteUnit, query: RunQuery) -> list[Conditions]:
        """The newest of few kinds are found by the index of kinds, which knows their order; for many, among all."""
        shared: Conditions = []
        if query.queue is not None:
            numbers = unit.names.queues_of(unit, query.queue)
            shared.append(("r.line / 1000 = ANY(?::int[])", (numbers,)))
        kinds = _kinds(unit, query)
        if kinds is None:
            return [shared]
        if not kinds or len(kinds) > _FEW_KINDS:
            return [[("r.kind = ANY(?::int[])", (kinds,)), *shared]]
        return [[("r.kind = ?", (kind,)), *shared] for kind in kinds]

    # --- leases

    async def acquire(self, unit: SqliteUnit, name: str, holder: str, ttl: int, now: datetime | None) -> Row | None:
        at = unit.micros(now)
        present = unit.select_one(_LEASE, name)
        held = present is not None and present[0] != "" and present[2] > at
        if present is not None and held and present[0] != holder:
            return None
        fence = present[1] if present is not None and held else unit.fences(1)
        unit.execute(_SET_LEASE, name, holder, fence, at + ttl)
        return fence, at + ttl


DIALECT = SqliteDialect()


def _kinds(unit: SqliteUnit, query: RunQuery) -> list[int] | None:
    """The kinds that match what a query says about job, handler and cause; None when it says nothing."""
    if query.job is None and query.handler is None and query.cause is None:
        return None
    rows = unit.select(_KINDS) if query.job is None else unit.select(_KINDS + " WHERE job = ?", query.job)
    return [
        number
        for number, handler, cause in rows
        if (query.handler is None or handler == query.handler) and (query.cause is None or cause == query.cause)
    ]


def _soonest(unit: SqliteUnit, limit: int, now: int) -> Iterator[Row]:
    for place in survey(unit, now):
        yield from unit.select(_SOONEST_TO_ENTER if place.entering else _SOONEST, place.number, limit)
    for (rank,) in unit.select(_RANKS, UNPLACED):
        yield from unit.select(_FIRST_OF_RANK, UNPLACED, rank, limit)


def _held_in_order(
    unit: SqliteUnit, key: str, limit: int, after: Run | None, now: int
) -> Iterator[tuple[tuple[bool, int, int, str], int]]:
    """At least the first of those runs, with their sort keys."""
    start = (0, "") if after is None else (to_micros(after.ready_at), after.id)
    due = after is None or start[0] <= now
    for (rank,) in unit.select(_RANKS, key):
        priority = MIDDLE - urgency_of(rank)
        if due and (after is None or priority <= after.priority):
            first = start if after is not None and priority == after.priority else (0, "")
            for ready_at, run_id, seq in unit.select(_DUE_OF_RANK, key, rank, now, *first, limit):
                yield placing_order(ready_at, priority, run_id, now), seq
        later = (now, "") if due else start
        for ready_at, run_id, seq in unit.select(_LATER_OF_RANK, key, rank, now, *later, limit):
            yield placing_order(ready_at, priority, run_id, now), seq
