"""Placement: runs that are yet to be placed, and whose line is one node's own.

Whom a run is for is told by its line (`codec`). Giving it to a node moves it from under its hold into that node's line;
taking it back is the same the other way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from msgspec import Struct

from duly.backends.postgres.codec import MIDDLE, queue_of, read_records
from duly.backends.postgres.notify import WORK
from duly.backends.postgres.operating import paused
from duly.backends.postgres.transitions import by_seqs, hold, leave, lines_of, move_up
from duly.backends.postgres.unit_of_work import UnitOfWork
from duly.model import Assignment, Run, Share, State, to_micros
from duly.model.holds import UNPLACED

# The first $2 runs under hold $3: due ones by rank, ready time and id, then the others by time; after the run of rank
# $4, ready time $5 and id $6, if one is given. Ranks are found by leaping from one to the next.
_HELD = """
WITH RECURSIVE {clock},
ranks (rank) AS (
    SELECT min(rank) FROM {ns}.held WHERE hold = $3
    UNION ALL
    SELECT (SELECT min(rank) FROM {ns}.held WHERE hold = $3 AND rank > ranks.rank) FROM ranks WHERE rank IS NOT NULL
),
first AS MATERIALIZED (
    SELECT f.*, ranks.rank AS urgency, false AS later FROM clock, ranks CROSS JOIN LATERAL (
        SELECT seq, ready_at, id FROM {ns}.held AS h
        WHERE h.hold = $3 AND h.rank = ranks.rank AND h.ready_at <= clock.now
            AND ($4::int IS NULL OR h.rank > $4 OR (h.rank = $4 AND (h.ready_at, h.id) > ($5::bigint, $6::text)))
        ORDER BY h.ready_at, h.id LIMIT $2
    ) AS f
    WHERE $4::int IS NULL OR $5::bigint <= clock.now
    UNION ALL
    SELECT f.*, 0, true FROM clock, ranks CROSS JOIN LATERAL (
        SELECT seq, ready_at, id FROM {ns}.held AS h
        WHERE h.hold = $3 AND h.rank = ranks.rank AND h.ready_at > clock.now
            AND ($4::int IS NULL OR (h.ready_at, h.id) > ($5::bigint, $6::text))
        ORDER BY h.ready_at, h.id LIMIT $2
    ) AS f
),
chosen AS (
    SELECT * FROM first ORDER BY later, urgency, ready_at, id LIMIT $2
)
SELECT {run} FROM chosen AS s INNER JOIN {ns}.runs AS r ON r.seq = s.seq {standing}
ORDER BY s.later, s.urgency, s.ready_at, s.id
"""

# Let runs ($1 ids) that are still under hold $3 wait for nodes ($2). Answers which were.
_ASSIGN = """
WITH gone AS (
    DELETE FROM {ns}.held AS h
    USING unnest($1::text[], $2::text[]) AS i (id, node) INNER JOIN {ns}.runs AS r ON r.id = i.id
    WHERE h.seq = r.seq AND h.hold = $3
    RETURNING
        h.seq, split_part(h.line, '@', 1) || '@' || i.node AS line, r.rank, h.ready_at, h.id, h."group", h.member
),
placed AS (
    INSERT INTO {ns}.waiting (seq, line, rank, ready_at, id, "group", entering)
    SELECT seq, line, rank, ready_at, id, "group", "group" IS NOT NULL AND NOT member FROM gone
),
moved AS (
    UPDATE {ns}.runs AS r SET line = gone.line FROM gone WHERE r.seq = gone.seq
)
SELECT id FROM gone
"""

# The lines of nodes, found by leaping from one to the next: what waits in each, and how much of it is due.
_NODES = """
WITH RECURSIVE {clock},
lines AS (
    (SELECT line FROM {ns}.waiting ORDER BY line LIMIT 1)
    UNION ALL
    SELECT n.line FROM lines AS l CROSS JOIN LATERAL (
        SELECT line FROM {ns}.waiting WHERE line > l.line ORDER BY line LIMIT 1
    ) AS n
)
SELECT l.line, n.all_of_them, n.due FROM clock, lines AS l CROSS JOIN LATERAL (
    SELECT count(*) AS all_of_them, count(*) FILTER (WHERE w.ready_at <= clock.now) AS due
    FROM {ns}.waiting AS w WHERE w.line = l.line
) AS n
WHERE strpos(l.line, '@') > 0
"""
_RUNNING = """
SELECT r.line, count(*) FROM {ns}.claims AS c INNER JOIN {ns}.runs AS r ON r.seq = c.seq
WHERE strpos(r.line, '@') > 0
GROUP BY r.line
"""
_WAITING_FOR = """
SELECT seq, "group" FROM {ns}.waiting WHERE line = ANY($1::text[]) ORDER BY line, rank, ready_at, id LIMIT $2
"""


async def held(unit: UnitOfWork, key: str, limit: int, after: Run | None, now: int | None) -> list[Run]:
    """Runs under a hold, in the order of `rules.placement.placing_order`; those after one of them."""
    start: tuple[int | None, int | None, str | None] = (None, None, None)
    if after is not None:
        start = (MIDDLE - after.priority, to_micros(after.ready_at), after.id)
    rows = await unit.all(_HELD, now, limit, key, *start)
    return [record.run for record in read_records(rows)]


async def assign(unit: UnitOfWork, assignments: Sequence[Assignment]) -> list[bool]:
    """Let runs that are yet to be placed wait for their nodes; which were."""
    first = {each.run_id: each for each in reversed(assignments)}
    rows = await unit.all(_ASSIGN, list(first), [each.node for each in first.values()], UNPLACED)
    given = {row[0] for row in rows}
    unit.rings |= WORK if given else 0
    answers: list[bool] = []
    for each in assignments:
        answers.append(each.run_id in given)
        given.discard(each.run_id)
    return answers


async def unassign(unit: UnitOfWork, node: str, limit: int) -> int:
    """Take runs that wait for a node back; how many. Needs a transaction."""
    lines = [row[0] for row in await unit.all(_NODES, None) if _node(row[0]) == node]
    rows = await unit.all(_WAITING_FOR, lines, limit)
    await unit.lock_groups({row[1] for row in rows if row[1] is not None})
    records = [record for record in await by_seqs(unit, [row[0] for row in rows]) if record.run.state is State.PENDING]
    before = await lines_of(unit, records)
    left = await leave(unit, [record for record in records if record.run.hold is None])
    taken = [record for record in records if record.seq in left]
    await hold(unit, taken, [UNPLACED] * len(taken))
    await move_up(unit, [record for record in taken if record.entrant], before)
    unit.rings |= WORK if taken else 0
    return len(taken)


class _Sum(Struct):
    """What a node has, in the making."""

    due: int = 0
    upcoming: int = 0


async def assigned(unit: UnitOfWork, now: int | None) -> dict[str, Share]:
    """What each node has been assigned."""
    sums: defaultdict[str, _Sum] = defaultdict(_Sum)
    resting = await paused(unit)
    for line, waiting, due in await unit.all(_NODES, now):
        sums[_node(line)].due += 0 if queue_of(line) in resting else due
        sums[_node(line)].upcoming += waiting - due
    for line, running in await unit.all(_RUNNING):
        sums[_node(line)].due += running
    return {node: Share(entry.due, entry.upcoming) for node, entry in sums.items() if node}


def _node(line: str) -> str:
    return line.partition("@")[2]
