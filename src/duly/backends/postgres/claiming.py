"""Claims: lending runs to a node.

Nearly every claim is one statement and one round trip: it locks the first rows of the lines it may take from, skips
what others have locked, and moves the rows into the claims, or into their hold. Only where due runs wait before
their groups is there more to do: their groups are decided about first (`sql.groups`), in one transaction with the
lending. SQLite, which has no statement that changes several tables, claims in its own way.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import Self

from msgspec import Struct
from msgspec.structs import replace

from duly.backends.codec import CAUSES, MIDDLE, SCHEDULED, Kind, Lender, Place, begun, place_of, read_policy
from duly.backends.cursors import cursor_of
from duly.backends.handler_sets import digest_of
from duly.backends.postgres.unit import HERE, PostgresUnit
from duly.backends.sql.groups import decide_about
from duly.backends.sql.moves import by_ids, by_seqs, read_records, unhold
from duly.backends.sql.notify import WORK
from duly.backends.sql.operating import paused
from duly.backends.sql.unit import Row, lent
from duly.backends.tolerance import tolerantly
from duly.model import Cause, Claim, Run, State, from_micros, to_micros
from duly.model.holds import hold_for_handler
from duly.ports import FROZEN
from duly.rules.misfires import LATE
from duly.rules.sharing import scheduled_share

_UNHOLD_SLICE = 1_000
_SIFT_SLICE = 1_000
_SLICE = 32
_DECIDED_AT_ONCE = 500

# What the statements below begin with. $1 now, $2 node, $3 queues.
# lines: every line and rank that has runs, with the first run in it, found by a loose index scan.
# open: those with something due that this node may take from. A scan of one begins at its first run, and does not read
# again the dead index entries that earlier claims left before it.
_SURVEY = """
WITH RECURSIVE {clock},
lines (line, rank, since, head) AS (
    (SELECT line, rank, ready_at, id FROM {ns}.waiting ORDER BY line, rank, ready_at, id LIMIT 1)
    UNION ALL
    SELECT n.line, n.rank, n.ready_at, n.id FROM lines AS l CROSS JOIN LATERAL (
        SELECT line, rank, ready_at, id FROM {ns}.waiting
        WHERE (line, rank) > (l.line, l.rank) ORDER BY line, rank, ready_at, id LIMIT 1
    ) AS n
),
open AS MATERIALIZED (
    SELECT line, rank, {urgency} AS urgency, since, head FROM lines
    WHERE since <= (SELECT now FROM clock)
        AND ($3::text[] IS NULL OR split_part(line, '@', 1) = ANY($3::text[]))
        AND (strpos(line, '@') = 0 OR line = split_part(line, '@', 1) || '@' || $2)
        AND NOT EXISTS (SELECT FROM {ns}.queues WHERE name IN (split_part(line, '@', 1), '*') AND paused)
)
"""

# The hold of a run r that this node may not start, by the set of handlers that the node has: `rules.admission.HOLDS`.
_HOLD = """CASE
    WHEN EXISTS (SELECT FROM {ns}.jobs WHERE blocked)
        AND (SELECT true FROM {ns}.jobs AS j WHERE j.name = r.job AND j.blocked LIMIT 1)
        THEN 'job:' || r.job
    WHEN {handlers}::text IS NOT NULL
        AND (SELECT true FROM {ns}.staff AS s WHERE s.digest = {handlers} AND s.handler = r.handler LIMIT 1) IS NULL
        THEN CASE WHEN strpos(r.line, '@') > 0 THEN 'place' ELSE 'handler:' || r.handler END
END"""
# What is due in a line, from its first run on.
_DUE = """w.line = {0}.line AND w.rank = {0}.rank AND (w.ready_at, w.id) >= ({0}.since, {0}.head)
    AND w.ready_at <= (SELECT now FROM clock)"""

# When the next run is ready that is not ready yet, in the lines that this node takes from.
_LATER = """
    SELECT min(n.ready_at) AS later FROM lines AS l CROSS JOIN LATERAL (
        SELECT w.ready_at FROM {ns}.waiting AS w
        WHERE w.line = l.line AND w.rank = l.rank AND w.ready_at > (SELECT now FROM clock) ORDER BY w.ready_at LIMIT 1
    ) AS n
    WHERE strpos(l.line, '@') = 0 OR l.line = split_part(l.line, '@', 1) || '@' || $2
"""


def whole(sql: str) -> str:
    """A statement with what several claiming statements have in common."""
    common = {
        "{survey}": _SURVEY,
        "{hold:$4}": _HOLD.replace("{handlers}", "$4"),
        "{hold:$8}": _HOLD.replace("{handlers}", "$8"),
        "{due:l}": _DUE.format("l"),
        "{due:s}": _DUE.format("s"),
        "{later}": _LATER,
        "{share}": _SHARE,
        "{slice}": str(_SLICE),
        "{late}": str(LATE),
        "{scheduled}": str(SCHEDULED),
    }
    for word, text in common.items():
        sql = sql.replace(word, text)
    return sql


# As `rules.sharing.scheduled_share` says: of room, by request $4.
_SHARE = "CASE WHEN room >= 4 THEN (room + 3) / 4 WHEN $4::bigint % 4 < room THEN 1 ELSE 0 END"

# What this node cannot start is for others: nodes that have the handler, or the leader, which places runs. They may
# have claimed just now, and skipped the rows that were locked here.
_RING_FOR_OTHERS = """(
    SELECT pg_notify({channel}, '{work}') FROM {rows} WHERE hold IS NOT NULL AND NOT starts_with(hold, 'job:') LIMIT 1
)""".replace("{work}", str(WORK))

# Lend the first $6 runs of the open lines to node $2 for $7 microseconds, and hold those among them whose job is paused
# or removed, or whose handler is not among the set $8 (NULL: all are known). Nothing is lent
#   if that set is unknown: `fresh` is then NULL;
#   if request $4 of this node is a repeat ($5: it lent nothing that is still running, so it may lend);
#   if runs are held for a handler that this node has ($12: ignore that, a slice of them has been put back);
#   if groups have to be decided about first ($9: ignore that, the relevant ones have been).
# Rows are locked in the order in which they are to be lent, those that others have locked are skipped; fences are drawn
# after the locks. How many of the rows are in which line is counted first: one line needs no counting.
#
# If that leaves the scheduled runs of the last priority with less than their share ($13 to $15: a priority and how many
# runs of it, scheduled ones among them, this request has lent before), the first of those that come later take the
# places of the last others (`rules.sharing`). More urgent priorities have no more than was taken from them.
#
# A run that waits to enter its group is lent at once if it is alone before an empty group, which admits it under any
# rule: `alone` checks that after the group was locked. Groups must be decided about first if one of the
# first runs is before a group that is not like that, or too late to enter one (`missed`, as `rules.misfires` says), or
# a member of a group that others want to enter, or if a few due runs wait before groups in other lines. A burst in
# other lines is left to the nodes that take from them.
_LEND = """
{survey},
staffed AS MATERIALIZED (
    SELECT 1 WHERE $8::text IS NULL OR EXISTS (SELECT FROM {ns}.staff WHERE digest = $8 AND handler = '')
),
fresh AS (
    INSERT INTO {ns}.requests AS q (node, request, at) SELECT $2, $4, now FROM clock WHERE EXISTS (SELECT FROM staffed)
    ON CONFLICT (node) DO UPDATE SET request = greatest(q.request, excluded.request), at = excluded.at
    WHERE q.request < excluded.request OR $5
    RETURNING 1
),
holds (hold) AS (
    (SELECT hold FROM {ns}.held WHERE hold >= $10 AND hold < $11 ORDER BY hold LIMIT 1)
    UNION ALL
    SELECT n.hold FROM holds AS h CROSS JOIN LATERAL (
        SELECT hold FROM {ns}.held WHERE hold > h.hold AND hold < $11 ORDER BY hold LIMIT 1
    ) AS n
),
back AS MATERIALIZED (
    SELECT 1 FROM holds AS h
    WHERE $8::text IS NULL
        OR (SELECT true FROM {ns}.staff WHERE digest = $8 AND handler = substr(h.hold, length($10) + 1) LIMIT 1)
    LIMIT 1
),
chosen AS MATERIALIZED (
    SELECT * FROM open WHERE EXISTS (SELECT FROM fresh) AND ($12 OR NOT EXISTS (SELECT FROM back))
),
counted AS (
    SELECT l.* FROM chosen AS l CROSS JOIN LATERAL (
        SELECT w.ready_at, w.id FROM {ns}.waiting AS w
        WHERE {due:l}
            AND NOT (w.entering AND $9)
        ORDER BY w.ready_at, w.id LIMIT $6
    ) AS w
    WHERE (SELECT count(*) FROM chosen) > 1
    ORDER BY l.urgency, w.ready_at, w.id LIMIT $6
),
shares AS (
    SELECT chosen.*, $6::bigint AS share FROM chosen WHERE (SELECT count(*) FROM chosen) = 1
    UNION ALL
    SELECT counted.*, count(*) FROM counted GROUP BY line, rank, urgency, since, head
),
in_order AS MATERIALIZED (
    SELECT w.*, s.urgency, s.rank < {scheduled} AS scheduled FROM shares AS s CROSS JOIN LATERAL (
        SELECT w.ctid AS place, w.seq, w.entering, w."group", w.ready_at, w.id FROM {ns}.waiting AS w
        WHERE {due:s}
            AND NOT (w.entering AND $9)
        ORDER BY w.ready_at, w.id LIMIT s.share
        FOR UPDATE SKIP LOCKED
    ) AS w
),
edge AS MATERIALIZED (
    SELECT urgency, greatest(0, {share} - scheduled) AS owed FROM (
        SELECT
            urgency,
            count(*) + max(CASE WHEN urgency = $13 THEN $14::bigint ELSE 0 END) AS room,
            count(*) FILTER (WHERE scheduled) + max(CASE WHEN urgency = $13 THEN $15::bigint ELSE 0 END) AS scheduled
        FROM in_order
        WHERE urgency = (SELECT max(urgency) FROM in_order HAVING count(*) = $6)
            AND EXISTS (SELECT FROM chosen WHERE rank < {scheduled})
            AND EXISTS (SELECT FROM chosen WHERE rank >= {scheduled})
        GROUP BY urgency
    ) AS last
),
late AS MATERIALIZED (
    SELECT w.* FROM edge AS e INNER JOIN chosen AS l ON l.urgency = e.urgency AND l.rank < {scheduled}
    CROSS JOIN LATERAL (
        SELECT w.ctid AS place, w.seq, w.entering, w."group", w.ready_at, w.id FROM {ns}.waiting AS w
        WHERE {due:l}
            AND NOT (w.entering AND $9) AND NOT EXISTS (SELECT FROM in_order AS i WHERE i.seq = w.seq)
        ORDER BY w.ready_at, w.id LIMIT e.owed
        FOR UPDATE SKIP LOCKED
    ) AS w
    ORDER BY w.ready_at, w.id LIMIT (SELECT owed FROM edge)
),
first AS MATERIALIZED (
    SELECT place, seq, entering, "group", ready_at FROM in_order
    WHERE NOT EXISTS (SELECT FROM late) OR seq NOT IN (
        SELECT i.seq FROM in_order AS i INNER JOIN edge AS e ON e.urgency = i.urgency WHERE NOT i.scheduled
        ORDER BY i.ready_at DESC, i.id DESC LIMIT (SELECT count(*) FROM late)
    )
    UNION ALL
    SELECT place, seq, entering, "group", ready_at FROM late
),
entering AS MATERIALIZED (
    SELECT count(*) AS number, count(DISTINCT "group") AS groups, array_agg("group") AS names FROM first WHERE entering
),
missed AS MATERIALIZED (
    SELECT 1 FROM first AS f INNER JOIN {ns}.runs AS r ON r.seq = f.seq, clock
    WHERE f.entering AND f.ready_at < now - {late} AND (substring(r.extra FROM '"start_by":(-?[0-9]+)'))::bigint < now
    LIMIT 1
),
undecided AS MATERIALIZED (
    SELECT 1 FROM {ns}.waiting
    WHERE entering AND ready_at <= (SELECT now FROM clock) AND (SELECT number FROM entering) <= {slice}
    ORDER BY ready_at, id LIMIT {slice} + 1
),
in_the_way AS MATERIALIZED (
    SELECT 1 FROM entering AS e CROSS JOIN (SELECT count(*) AS number FROM undecided) AS u
    WHERE NOT $9 AND e.number + u.number > 0 AND (
        (u.number <= {slice} AND u.number > e.number)
        OR e.number > e.groups
        OR EXISTS (SELECT FROM missed)
        OR EXISTS (
            SELECT FROM first AS m INNER JOIN {ns}.waiting AS w ON w."group" = m."group"
            WHERE NOT m.entering AND w.entering AND w.ready_at <= (SELECT now FROM clock)
        )
        OR (e.number > 0 AND NOT {ns}.alone(e.names, (SELECT now FROM clock)))
    )
),
taken AS MATERIALIZED (
    SELECT place, seq FROM first WHERE NOT EXISTS (SELECT FROM in_the_way)
),
found AS (
    SELECT
        r.seq, r.id, r.job, r.handler, r.line, r.rank, r.cause, r.due, r.ready_at, r.created_at, r."group", r.policy,
        r.extra, r.payload,
        {hold:$8} AS hold
    FROM {ns}.runs AS r WHERE r.seq = ANY(ARRAY(SELECT seq FROM taken))
),
judged AS MATERIALIZED (
    SELECT CASE WHEN f.hold IS NULL THEN nextval('{ns}.fences') END AS fence, f.*
    FROM (SELECT * FROM found ORDER BY {urgency}, ready_at, id) AS f
),
gone AS (
    DELETE FROM {ns}.waiting WHERE ctid = ANY(ARRAY(SELECT place FROM taken))
),
held AS (
    INSERT INTO {ns}.held (seq, line, rank, ready_at, id, "group", member, hold)
    SELECT
        seq, CASE WHEN hold = 'place' THEN split_part(line, '@', 1) || '@' ELSE line END, {urgency}, ready_at, id,
        "group", "group" IS NOT NULL, hold
    FROM judged WHERE hold IS NOT NULL
    RETURNING 1
),
nobodys AS (
    UPDATE {ns}.runs AS r SET line = split_part(r.line, '@', 1) || '@'
    WHERE r.seq = ANY(ARRAY(SELECT seq FROM judged WHERE hold = 'place'))
),
lent AS (
    INSERT INTO {ns}.claims (seq, fence, node, request, started_at, expires_at, "group", keyed)
    SELECT
        seq, fence, $2, $4, clock.now, clock.now + $7, "group", coalesce(strpos(extra, '"dedupe_key"') > 0, false)
    FROM clock, judged WHERE hold IS NULL
),
before AS MATERIALIZED (
    SELECT ready_at FROM {ns}.waiting
    WHERE entering AND ready_at <= (SELECT now FROM clock) AND seq NOT IN (SELECT seq FROM taken)
        AND (SELECT count(*) FROM judged WHERE hold IS NULL) < $6
    ORDER BY ready_at, id LIMIT 1
),
next AS MATERIALIZED ({later})
SELECT
    clock.now, CASE WHEN EXISTS (SELECT FROM staffed) THEN EXISTS (SELECT FROM fresh) END, EXISTS (SELECT FROM back),
    EXISTS (SELECT FROM in_the_way),
    (SELECT ready_at FROM before), next.later, (SELECT count(*) FROM held),
    f.fence, f.seq, f.id, f.job, f.handler, f.line, f.rank, f.cause, f.due, f.ready_at, f.created_at, f."group",
    f.policy, f.extra, f.payload, {ring_for_others}
FROM clock CROSS JOIN next
LEFT JOIN judged AS f ON f.hold IS NULL
"""
_LEND = whole(_LEND).replace("{ring_for_others}", _RING_FOR_OTHERS.replace("{rows}", "judged"))

# Hold those of the first $5 runs of the open lines whose job is paused or removed, or whose handler is not in the set
# $4, as far as they come before the first $6 that may start: so that a claim, which takes no more rows than it may
# lend, does not have to ask again and again. Where both scheduled and other runs wait, up to $7 of those $6 may lose
# their places to later scheduled ones: then as far as they certainly come before one that is lent. Returns how many.
_SIFT = """
{survey},
first AS MATERIALIZED (
    SELECT w.place, w.seq, l.rank, l.urgency, w.ready_at, w.id FROM open AS l CROSS JOIN LATERAL (
        SELECT w.ctid AS place, w.seq, w.ready_at, w.id FROM {ns}.waiting AS w
        WHERE {due:l} AND NOT w.entering
        ORDER BY w.ready_at, w.id LIMIT $5
    ) AS w
    ORDER BY l.urgency, w.ready_at, w.id LIMIT $5
),
mixed AS MATERIALIZED (
    SELECT 1 WHERE EXISTS (SELECT FROM first WHERE rank >= {scheduled})
        AND EXISTS (SELECT FROM open WHERE rank < {scheduled})
),
judged AS MATERIALIZED (
    SELECT first.*, (
        SELECT {hold:$4} FROM {ns}.runs AS r WHERE r.seq = first.seq
    ) AS hold
    FROM first
),
found AS MATERIALIZED (
    SELECT place, seq, hold FROM (
        SELECT *, count(*) FILTER (WHERE hold IS NULL) OVER (ORDER BY urgency, ready_at, id) AS startable FROM judged
    ) AS j
    WHERE hold IS NOT NULL
        AND startable < $6::bigint - (SELECT CASE WHEN EXISTS (SELECT FROM mixed) THEN $7::bigint ELSE 0 END)
),
taken AS MATERIALIZED (
    SELECT ctid AS place FROM {ns}.waiting
    WHERE ctid = ANY(ARRAY(SELECT place FROM found))
    FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM {ns}.waiting WHERE ctid = ANY(ARRAY(SELECT place FROM taken))
    RETURNING seq, line, rank, ready_at, id, "group"
),
held AS (
    INSERT INTO {ns}.held (seq, line, rank, ready_at, id, "group", member, hold)
    SELECT
        g.seq, CASE WHEN f.hold = 'place' THEN split_part(g.line, '@', 1) || '@' ELSE g.line END, {urgency},
        g.ready_at, g.id, g."group", g."group" IS NOT NULL, f.hold
    FROM gone AS g INNER JOIN found AS f ON f.seq = g.seq
    RETURNING seq, line
),
nobodys AS (
    UPDATE {ns}.runs AS r SET line = h.line FROM held AS h WHERE r.seq = h.seq AND r.line <> h.line
)
SELECT count(*), {ring_for_others} FROM held
"""
_SIFT = whole(_SIFT).replace("{ring_for_others}", _RING_FOR_OTHERS.replace("{rows}", "found"))

# The groups to decide about: those of the first $4 runs in the open lines, so that the next claims of a burst find them
# decided, of the first $4 scheduled ones, and those of the entrants that have been due for the longest time ($5 of
# them); as far as entrants are due before them.
_GROUPS = whole("""
{survey}
SELECT DISTINCT "group", (SELECT now FROM clock) FROM (
    (
        SELECT w."group" FROM open AS l CROSS JOIN LATERAL (
            SELECT w."group", w.ready_at, w.id FROM {ns}.waiting AS w
            WHERE {due:l}
            ORDER BY w.ready_at, w.id LIMIT $4
        ) AS w
        ORDER BY l.urgency, w.ready_at, w.id LIMIT $4
    )
    UNION ALL
    (
        SELECT w."group" FROM open AS l CROSS JOIN LATERAL (
            SELECT w."group", w.ready_at, w.id FROM {ns}.waiting AS w
            WHERE {due:l}
            ORDER BY w.ready_at, w.id LIMIT $4
        ) AS w
        WHERE l.rank < {scheduled}
        ORDER BY l.urgency, w.ready_at, w.id LIMIT $4
    )
    UNION ALL
    (
        SELECT "group" FROM {ns}.waiting
        WHERE entering AND ready_at <= (SELECT now FROM clock) ORDER BY ready_at, id LIMIT $5
    )
) AS g
WHERE "group" IS NOT NULL
    AND EXISTS (
        SELECT FROM {ns}.waiting AS e
        WHERE e."group" = g."group" AND e.entering AND e.ready_at <= (SELECT now FROM clock)
    )
""")

# The groups of the $2 entrants that have been due for the longest time.
_DUE_GROUPS = """
WITH {clock}
SELECT "group", now FROM clock LEFT JOIN LATERAL (
    SELECT "group" FROM {ns}.waiting WHERE entering AND ready_at <= clock.now ORDER BY ready_at, id LIMIT $2
) AS w ON true
"""
# The earliest ready time among runs that are pending: not ready at $1, or not decided about by their group yet.
_NEXT_DUE = """
WITH RECURSIVE {lines}
SELECT least(
    (SELECT min(ready_at) FROM {ns}.waiting WHERE entering),
    (
        SELECT min(n.ready_at) FROM lines AS l CROSS JOIN LATERAL (
            SELECT ready_at FROM {ns}.waiting AS w
            WHERE w.line = l.line AND w.rank = l.rank AND w.ready_at > $1 ORDER BY w.ready_at LIMIT 1
        ) AS n
    )
)
"""

_LENT_BEFORE = """
SELECT {run} FROM {ns}.runs AS r {standing}
WHERE r.seq = ANY(ARRAY(SELECT seq FROM {ns}.claims WHERE node = $1 AND request = $2)) AND c.request = $2
ORDER BY c.fence
"""

# The holds that begin with a text, found by a loose index scan.
_HANDLER_HOLDS = """
WITH RECURSIVE holds (hold) AS (
    SELECT min(hold) FROM {ns}.held WHERE hold >= $1 AND hold < $2
    UNION ALL
    SELECT (SELECT min(hold) FROM {ns}.held WHERE hold > holds.hold AND hold < $2)
    FROM holds WHERE holds.hold IS NOT NULL
)
SELECT hold FROM holds WHERE hold IS NOT NULL
"""

# No fence may be given out twice, even by an older copy of the store: a connection that may lead to one starts at the
# clock, 2**20 per second. Under a lock, since two concurrent connections must not set each other back.
_RAISE_FENCES = """
SELECT setval('{ns}.fences', least(
    (extract(epoch FROM clock_timestamp()) * 1048576)::bigint, 4503599627370496
))
FROM {ns}.fences, pg_advisory_xact_lock(hashtextextended($1, 0))
WHERE last_value < (extract(epoch FROM clock_timestamp()) * 1048576)::bigint
"""

# Lend run $2, held under $3, to node $4 by request $5 for $6 microseconds, if it may start now. A member of a group
# stays a member, so its group need not be locked. Returns its number.
_CLAIM_HELD = """
WITH {clock},
gone AS (
    DELETE FROM {ns}.held AS h USING {ns}.runs AS r, clock
    WHERE r.id = $2 AND h.seq = r.seq AND h.hold = $3 AND h.ready_at <= clock.now
        AND (h."group" IS NULL OR h.member)
        AND NOT EXISTS (SELECT FROM {ns}.jobs AS j WHERE j.name = r.job AND j.blocked)
        AND NOT EXISTS (
            SELECT FROM {ns}.queues AS q WHERE q.name IN (split_part(r.line, '@', 1), '*') AND q.paused
        )
    RETURNING h.seq, h."group", coalesce(strpos(r.extra, '"dedupe_key"') > 0, false) AS keyed
)
INSERT INTO {ns}.claims (seq, fence, node, request, started_at, expires_at, "group", keyed)
SELECT gone.seq, nextval('{ns}.fences'), $4, $5, clock.now, clock.now + $6, gone."group", gone.keyed FROM gone, clock
RETURNING seq
"""

# Lend those of the runs $3, created at $4, that wait and may start on node $2, for $6 microseconds by request $5.
# Nothing is lent if that request is a repeat ($8: it lent nothing that is still running, so it may lend), or if groups
# have to be decided about first ($7: ignore that, they have been).
_BEGIN = """
WITH {clock},
fresh AS (
    INSERT INTO {ns}.requests AS q (node, request, at) SELECT $2, $5, now FROM clock
    ON CONFLICT (node) DO UPDATE SET request = greatest(q.request, excluded.request), at = excluded.at
    WHERE q.request < excluded.request OR $8
    RETURNING 1
),
first AS MATERIALIZED (
    SELECT r.*, w.at, w.entering, given.place
    FROM unnest($3::text[], $4::bigint[]) WITH ORDINALITY AS given (id, created_at, place)
    CROSS JOIN LATERAL (
        SELECT seq, id, line, rank, ready_at, "group", job, extra FROM {ns}.runs
        WHERE runs.id = given.id AND runs.created_at = given.created_at LIMIT 1
    ) AS r
    CROSS JOIN LATERAL (
        SELECT w.ctid AS at, w.entering FROM {ns}.waiting AS w
        WHERE {_HERE} AND w.ready_at <= (SELECT now FROM clock) AND NOT (w.entering AND $7)
        LIMIT 1 FOR UPDATE SKIP LOCKED
    ) AS w
    WHERE EXISTS (SELECT FROM fresh)
        AND coalesce(strpos(r.extra, '"fence":'), 0) = 0
        AND coalesce((substring(r.extra FROM '"start_by":(-?[0-9]+)'))::bigint >= (SELECT now FROM clock), true)
        AND (strpos(r.line, '@') = 0 OR r.line = split_part(r.line, '@', 1) || '@' || $2)
        AND NOT EXISTS (SELECT FROM {ns}.jobs AS j WHERE j.name = r.job AND j.blocked)
        AND NOT EXISTS (
            SELECT FROM {ns}.queues AS q WHERE q.name IN (split_part(r.line, '@', 1), '*') AND q.paused
        )
),
in_the_way AS MATERIALIZED (
    SELECT 1 FROM (
        SELECT count(*) AS number, count(DISTINCT "group") AS groups, array_agg("group") AS names
        FROM first WHERE entering
    ) AS e
    WHERE e.number > 0 AND (e.number > e.groups OR NOT {ns}.alone(e.names, (SELECT now FROM clock)))
),
taken AS MATERIALIZED (
    SELECT nextval('{ns}.fences') AS fence, f.* FROM (
        SELECT * FROM first WHERE NOT EXISTS (SELECT FROM in_the_way) ORDER BY place
    ) AS f
),
gone AS (
    DELETE FROM {ns}.waiting WHERE ctid = ANY(ARRAY(SELECT at FROM taken))
),
lent AS (
    INSERT INTO {ns}.claims (seq, fence, node, request, started_at, expires_at, "group", keyed)
    SELECT
        seq, fence, $2, $5, clock.now, clock.now + $6, "group", coalesce(strpos(extra, '"dedupe_key"') > 0, false)
    FROM taken, clock
)
SELECT clock.now, EXISTS (SELECT FROM fresh), EXISTS (SELECT FROM in_the_way), taken.fence, taken.seq, taken.id
FROM clock LEFT JOIN taken ON true
""".replace("{_HERE}", HERE)

_WEEK = 7 * 86400 * 1_000_000

# Store the names $2 as the set $3; a repeat only records that it is still needed.
_KNOW_HANDLERS = """
WITH {clock}
INSERT INTO {ns}.staff (digest, handler, at)
SELECT $3, name, clock.now FROM clock, unnest($2::text[]) AS name
ON CONFLICT (digest, handler) DO UPDATE SET at = excluded.at
"""
_FORGET_HANDLERS = """
WITH {clock}
DELETE FROM {ns}.staff WHERE at < (SELECT now FROM clock) - $2
"""

PREFIX = hold_for_handler("")
BEYOND = PREFIX[:-1] + chr(ord(PREFIX[-1]) + 1)


class Asking(Struct, frozen=True):
    """The node that asks, and for what. `now` is None, or given by a test; durations and instants in microseconds."""

    node: str
    queues: list[str] | None
    handlers: Collection[str] | None
    staff: str | None
    request: int
    now: int | None
    lease: int


class Taking(Struct, frozen=True):
    """A request for runs by id. `now` is None, or given by a test; durations in microseconds."""

    node: str
    request: int
    now: int | None
    lease: int


async def claim_held(unit: PostgresUnit, key: str, run_id: str, taking: Taking) -> Claim | None:
    """Lend one run that is held under a key, or the one that the same call lent before."""
    await unit.one(_CLAIM_HELD, taking.now, run_id, key, taking.node, taking.request, taking.lease)
    record = (await by_ids(unit, [run_id])).get(run_id)
    if record is None or record.run.state is not State.RUNNING or record.run.expires_at is None:
        return None
    run = record.run
    return Claim(run, run.fence, record.run.expires_at) if (run.node, run.request) == _who(taking) else None


def _who(taking: Taking) -> tuple[str, int]:
    return taking.node, taking.request


# Scheduled runs that are ready after ($1, $4) and by $2, $3 at most.
_COMING = """
WITH RECURSIVE {lines}
SELECT n.ready_at, n.id, n.seq FROM lines AS l CROSS JOIN LATERAL (
    SELECT seq, ready_at, id FROM {ns}.waiting AS w
    WHERE w.line = l.line AND w.rank = l.rank AND (w.ready_at, w.id) > ($1, $4::text) AND w.ready_at <= $2
    ORDER BY w.ready_at, w.id LIMIT $3
) AS n
WHERE l.rank < {scheduled}
ORDER BY n.ready_at, n.id LIMIT $3
""".replace("{scheduled}", str(SCHEDULED))
_BLOCKED = "SELECT name FROM {ns}.jobs WHERE blocked AND name = ANY($1::text[])"


async def coming(
    unit: PostgresUnit, after: tuple[int, str], until: int, share: tuple[int, int, int], node: str, now: int
) -> tuple[list[Run], str | None]:
    """What `Queue.read_ahead` returns, for any queue and handler. The share: how many, from which number, each n-th."""
    limit, start, step = share
    rows = await unit.all(_COMING, after[0], until, step * limit + 1, after[1])
    taken = rows[: step * limit]
    runs = [record.run for record in await by_seqs(unit, [row[2] for row in taken[start::step]], now)]
    stopped = await paused(unit)
    blocked = {row[0] for row in await unit.all(_BLOCKED, list({run.job for run in runs}))}
    found = [
        run
        for run in runs
        if run.fence == 0
        and run.assignee in (None, node)
        and stopped.isdisjoint((run.queue, FROZEN))
        and run.job not in blocked
        and run.damage is None
    ]
    return found, cursor_of(taken[-1][0], taken[-1][1]) if len(rows) > len(taken) > 0 else None


class Beginning(Struct, frozen=True):
    """What one statement began, by id. `in_the_way`: groups have to be decided about first."""

    claims: dict[str, Claim]
    now: int
    fresh: bool
    in_the_way: bool


async def begin(
    unit: PostgresUnit, runs: Sequence[Run], taking: Taking, *, again: bool, decided: bool = False
) -> Beginning:
    """Lend runs that the asking node has read ahead; one statement."""
    wanted = {run.id: run for run in runs}
    created = [None if run.created_at is None else to_micros(run.created_at) for run in wanted.values()]
    given = (list(wanted), created, taking.request, taking.lease, decided, again)
    rows = await unit.all(_BEGIN, taking.now, taking.node, *given)
    now, fresh, in_the_way = tuple(rows[0])[:3]
    taken = [] if rows[0][3] is None else rows
    times = (from_micros(now), from_micros(now + taking.lease))
    claims = {row[5]: begun(wanted[row[5]], row[3], taking.node, taking.request, *times) for row in taken}
    unit.memory.remember({row[3]: lent(wanted[row[5]], row[4]) for row in taken})
    return Beginning(claims, now, fresh, in_the_way)


async def decide_and_begin(unit: PostgresUnit, runs: Sequence[Run], taking: Taking, now: int) -> Beginning:
    """Decide about the groups of these runs, then lend them. Needs a transaction."""
    groups = sorted({run.group for run in runs if run.group is not None})
    await unit.locks.groups(groups)
    await decide_about(unit, groups, now)
    return await begin(unit, runs, taking, again=True, decided=True)


class Lending(Struct):
    """The result of one statement. `later` is the time at which the next run becomes ready.

    `fresh` is None where the set of handlers is unknown to the store.
    """

    claims: list[Claim]
    now: int
    fresh: bool | None
    back: bool
    in_the_way: bool
    undecided: int | None
    later: int | None
    held: int

    @property
    def next_due(self) -> int | None:
        return self.later if self.undecided is None else self.undecided


class Step(Struct, frozen=True):
    """The progress of a claim. `again`: a repeat that may lend; `put_back`: runs held for handlers were put back.

    `lent` and `scheduled` are how many runs of `urgency`, the last priority that was reached, it has lent, and how many
    of those are scheduled.
    """

    again: bool = False
    put_back: bool = False
    urgency: int = -1
    lent: int = 0
    scheduled: int = 0

    @classmethod
    def after(cls, claims: Sequence[Claim], *, put_back: bool) -> Self:
        """The step after these were lent."""
        if not claims:
            return cls(again=True, put_back=put_back)
        last = [claim.run for claim in claims if claim.run.priority == claims[-1].run.priority]
        scheduled = sum(run.cause is Cause.SCHEDULE for run in last)
        return cls(True, put_back, MIDDLE - last[0].priority, len(last), scheduled)

    def owed(self, room: int, request: int) -> int:
        """How many of the next `room` runs may be scheduled ones that come before their turn, at most."""
        of_this = scheduled_share(room + self.lent, request) - self.scheduled
        return max(of_this, scheduled_share(room, request))


async def lend(unit: PostgresUnit, asking: Asking, limit: int, step: Step, *, decided: bool = False) -> Lending:
    """Lend with one statement."""
    rows = await unit.all(
        _LEND,
        asking.now,
        asking.node,
        asking.queues,
        asking.request,
        step.again,
        limit,
        asking.lease,
        asking.staff,
        decided,
        PREFIX,
        BEYOND,
        step.put_back,
        step.urgency,
        step.lent,
        step.scheduled,
    )
    now, fresh, back, in_the_way, undecided, later, held = tuple(rows[0])[:7]
    unit.affects_others |= held > 0
    lent = [] if rows[0][7] is None else rows
    claims = tolerantly(partial(_claims, asking, now), lent, partial(_bare_claim, asking, now))
    unit.memory.remember({row[7]: (row[9], row[8], row[18] is not None or row[20] is not None) for row in lent})
    return Lending(claims, now, fresh, back, in_the_way, undecided, later, held)


async def decide_and_lend(unit: PostgresUnit, asking: Asking, limit: int, step: Step) -> Lending:
    """Decide about the groups of what is about to be lent, then lend. Needs a transaction."""
    rows = await unit.all(_GROUPS, asking.now, asking.node, asking.queues, max(limit, _DECIDED_AT_ONCE), _SLICE)
    if rows:
        groups = [row[0] for row in rows]
        await unit.locks.groups(groups)
        await decide_about(unit, groups, rows[0][1])
    return await lend(unit, asking, limit, step, decided=True)


async def promote(unit: PostgresUnit, limit: int, now: int | None) -> tuple[int, int | None]:
    """Decide about the groups of the entrants that have been due for the longest time; how many, and what is next."""
    rows = await unit.all(_DUE_GROUPS, now, limit)
    groups, at = sorted({row[0] for row in rows if row[0] is not None}), rows[0][1]
    looked_at = 0
    if groups:
        await unit.locks.groups(groups)
        looked_at = await decide_about(unit, groups, at, limit)
    row = await unit.one(_NEXT_DUE, at)
    return looked_at, None if row is None else row[0]


async def sift(unit: PostgresUnit, asking: Asking, limit: int, step: Step) -> None:
    """Hold what this node may not start, as far as it comes before the first `limit` runs that it may."""
    owed = step.owed(limit, asking.request)
    await unit.run(_SIFT, asking.now, asking.node, asking.queues, asking.staff, _SIFT_SLICE, limit, owed)


async def lent_before(unit: PostgresUnit, asking: Asking | Taking) -> list[Claim]:
    """The runs that this request of the node lent and that are still running."""
    runs = [record.run for record in read_records(await unit.all(_LENT_BEFORE, asking.node, asking.request))]
    return [Claim(run, run.fence, run.expires_at) for run in runs if run.expires_at is not None]


async def unhold_handlers(unit: PostgresUnit, handlers: Collection[str] | None, limit: int) -> None:
    """Put back runs that were held for a handler that the asking node has; in slices, the most urgent first."""
    for (key,) in await unit.all(_HANDLER_HOLDS, PREFIX, BEYOND):
        if handlers is None or key.removeprefix(PREFIX) in handlers:
            await unhold(unit, key, max(_UNHOLD_SLICE, limit))


async def raise_fences(unit: PostgresUnit, namespace: str) -> None:
    """Advance fences to the clock, if they are behind it. Needs a transaction."""
    await unit.run(_RAISE_FENCES, f"duly fences {namespace}")


# --- handler sets: a node sends its set once instead of with every claim, since it may have thousands


def named(handlers: Collection[str] | None) -> str | None:
    """The name of the set of these handlers; None: all are known."""
    return None if handlers is None else digest_of(handlers)


async def know_handlers(unit: PostgresUnit, digest: str, handlers: Collection[str], now: int | None) -> None:
    """Store a set, and delete those that no node has used for a week: a node that needs one stores it again."""
    await unit.run(_FORGET_HANDLERS, now, _WEEK)
    await unit.run(_KNOW_HANDLERS, now, ["", *sorted(handlers)], digest)


# --- claims as the executor needs them


def _bare_claim(asking: Asking, now: int, row: Row, why: str) -> Claim:
    """A claim of a run whose policy and extras cannot be read."""
    [claim] = _claims(asking, now, [(*tuple(row)[:19], None, None, row[21])])
    return replace(claim, run=replace(claim.run, damage=why))


def _claims(asking: Asking, now: int, rows: Sequence[Row]) -> list[Claim]:
    lender = Lender(asking.node, asking.request, now, now + asking.lease)
    kinds: dict[tuple[str, str, str, str | None], Kind] = {}
    places: dict[tuple[str, int], Place] = {}
    claims: list[Claim] = []
    for row in rows:
        fence, _, run_id, job, handler, line, rank, cause, due, ready_at = row[7:17]
        created_at, group, policy, extra, payload = row[17:22]
        kind, place = kinds.get((job, handler, cause, policy)), places.get((line, rank))
        if kind is None:
            kind = kinds[job, handler, cause, policy] = Kind(job, handler, CAUSES[cause], read_policy(policy))
        if place is None:
            place = places[line, rank] = place_of(line, rank)
        claims.append(lender.claim(kind, place, run_id, due, ready_at, created_at, group, extra, payload, fence))
    return claims
