"""Placement: runs that are yet to be placed, and whose line is one node's own.

Whom a run is for is told by its line (`names`). Giving it to a node moves it from under its hold into that node's line;
taking it back is the same the other way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from duly.backends.sqlite.codec import read_records
from duly.backends.sqlite.interning import priority_of
from duly.backends.sqlite.operating import paused
from duly.backends.sqlite.transitions import by_ids, by_seqs, hold, leave, pass_on, relocate, wait
from duly.backends.sqlite.unit_of_work import WORK, Row, UnitOfWork, as_list
from duly.backends.sqlite.waiting_index import survey
from duly.model import Assignment, Run, Share, to_micros
from duly.model.holds import UNPLACED
from duly.rules.placement import placing_order

# The ranks among the runs under a hold, found by leaping from one to the next.
_RANKS = """
WITH RECURSIVE ranks (rank) AS (
    SELECT min(rank) FROM {ns}_held WHERE hold = ?1
    UNION ALL
    SELECT (SELECT min(rank) FROM {ns}_held WHERE hold = ?1 AND rank > ranks.rank)
    FROM ranks WHERE ranks.rank IS NOT NULL
)
SELECT rank FROM ranks WHERE rank IS NOT NULL
"""
_DUE_OF_RANK = """
SELECT ready_at, id, seq FROM {ns}_held
WHERE hold = ? AND rank = ? AND ready_at <= ? AND (ready_at, id) > (?, ?) ORDER BY ready_at, id LIMIT ?
"""
_LATER_OF_RANK = """
SELECT ready_at, id, seq FROM {ns}_held
WHERE hold = ? AND rank = ? AND ready_at > ? AND (ready_at, id) > (?, ?) ORDER BY ready_at, id LIMIT ?
"""
_FIRST_OF_RANK = "SELECT ready_at, id, seq FROM {ns}_held WHERE hold = ? AND rank = ? ORDER BY ready_at, id LIMIT ?"
_BY_SEQS = "SELECT {run} FROM json_each(?) AS wanted CROSS JOIN {ns}_runs AS r ON r.seq = wanted.value {standing}"

_IN_LINE = "SELECT seq FROM {ns}_waiting WHERE line = ? ORDER BY ready_at, id LIMIT ?"
_BEFORE_GROUPS = "SELECT seq FROM {ns}_entrants WHERE line = ? ORDER BY ready_at, id LIMIT ?"

_DEPTH = "SELECT count(*), total(ready_at <= ?2) FROM {ns}_waiting WHERE line = ?1"
_DEPTH_BEFORE_GROUPS = "SELECT count(*), total(ready_at <= ?2) FROM {ns}_entrants WHERE line = ?1"
_RUNNING = """
SELECT r.line, count(*) FROM {ns}_claims AS c CROSS JOIN {ns}_runs AS r ON r.seq = c.seq GROUP BY r.line
"""


def first_unplaced(unit: UnitOfWork, limit: int) -> Iterator[Row]:
    """The runs of every priority that are to be placed first: ready time, id and number."""
    for (rank,) in unit.all(_RANKS, UNPLACED):
        yield from unit.all(_FIRST_OF_RANK, UNPLACED, rank, limit)


def held(unit: UnitOfWork, key: str, limit: int, after: Run | None, now: int) -> list[Run]:
    """Runs under a hold, in the order of `placing_order`; those after one of them."""
    seqs = [seq for _, seq in sorted(_in_order(unit, key, limit, after, now))[:limit]]
    return [record.run for record in read_records(unit, unit.all(_BY_SEQS, as_list(seqs)))]


def _in_order(
    unit: UnitOfWork, key: str, limit: int, after: Run | None, now: int
) -> Iterator[tuple[tuple[bool, int, int, str], int]]:
    """At least the first of those runs, with their sort keys."""
    start = (0, "") if after is None else (to_micros(after.ready_at), after.id)
    due = after is None or start[0] <= now
    for (rank,) in unit.all(_RANKS, key):
        priority = priority_of(rank)
        if due and (after is None or priority <= after.priority):
            first = start if after is not None and priority == after.priority else (0, "")
            for ready_at, run_id, seq in unit.all(_DUE_OF_RANK, key, rank, now, *first, limit):
                yield placing_order(ready_at, priority, run_id, now), seq
        later = (now, "") if due else start
        for ready_at, run_id, seq in unit.all(_LATER_OF_RANK, key, rank, now, *later, limit):
            yield placing_order(ready_at, priority, run_id, now), seq


def assign(unit: UnitOfWork, assignments: Sequence[Assignment]) -> list[bool]:
    """Let runs that are yet to be placed wait for their nodes; which were."""
    records = by_ids(unit, [assignment.run_id for assignment in assignments])
    given: list[bool] = []
    for assignment in assignments:
        record = records.get(assignment.run_id)
        still = record is not None and record.run.hold == UNPLACED
        if record is not None and still:
            leave(unit, record)
            line = relocate(unit, record.seq, record.line, assignment.node)
            records[assignment.run_id] = after = replace(record, line=line, run=replace(record.run, hold=None))
            wait(unit, after)
            unit.rings |= WORK
        given.append(still)
    return given


def unassign(unit: UnitOfWork, node: str, limit: int) -> int:
    """Take runs that wait for a node back; how many."""
    seqs: list[int] = []
    for line in survey(unit, unit.at(None)):
        if unit.names.home(unit, line.number)[1] == node:
            sql = _BEFORE_GROUPS if line.entering else _IN_LINE
            seqs += [seq for (seq,) in unit.all(sql, line.number, limit)]
    for record in by_seqs(unit, seqs[:limit]):
        leave(unit, record)
        hold(unit, record, UNPLACED)
        if record.entrant and record.run.group is not None:
            pass_on(unit, record.run.group)
        unit.rings |= WORK
    return len(seqs[:limit])


class _Sum(Struct):
    """What a node has, in the making."""

    due: int = 0
    upcoming: int = 0


def assigned(unit: UnitOfWork, now: int) -> dict[str, Share]:
    """What each node has been assigned."""
    sums: defaultdict[str, _Sum] = defaultdict(_Sum)
    stopped = paused(unit)
    for line in survey(unit, now):
        queue, node = unit.names.home(unit, line.number)
        if node:
            row = unit.one(_DEPTH_BEFORE_GROUPS if line.entering else _DEPTH, line.number, now)
            assert row is not None
            sums[node].due += 0 if queue in stopped else int(row[1])
            sums[node].upcoming += row[0] - int(row[1])
    for number, running in unit.all(_RUNNING):
        node = unit.names.home(unit, number)[1]
        if node:
            sums[node].due += running
    return {node: Share(entry.due, entry.upcoming) for node, entry in sums.items()}
