"""The short way to claim: from one line, with nothing to decide.

Most claims take runs from one queue and priority, without groups, holds or missing handlers. For those a statement with
a third of the nodes of `claiming` is enough: per 100 runs it costs the server 0.79 ms instead of 1.01 ms. It finds out
itself, under the same snapshot and locks, whether that is so; if not, it lends nothing, and the full statement is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from duly.backends.codec import CAUSES, Kind, Lender, place_of, read_policy
from duly.backends.postgres.claiming import BEYOND, PREFIX, Asking, Lending, whole
from duly.backends.postgres.unit import PostgresUnit
from duly.backends.sql.unit import Row
from duly.backends.tolerance import tolerantly
from duly.model import Claim

# Lend the first $5 runs of the most urgent open line to node $2 for $6 microseconds, as `claiming` does, if that is all
# there is to do. It is not (`plain` is false, and nothing has changed)
#   if several lines are open and equally urgent, or the first has too few runs: what each gives must be counted;
#   if runs are held for a handler ($8 to $9), or a due run waits before its group: others may come first;
#   if one of the first runs has a group, a job that is paused or removed, or a handler that is not in the set $7 (NULL:
#   all are known), which includes that the store does not know the set;
#   if request $4 of this node, or a later one, has been recorded.
# A request that lends nothing is not recorded: it may be repeated.
_LEND_PLAIN = whole("""
{survey},
plain AS MATERIALIZED (
    SELECT
        max(line) AS line, max(rank) AS rank, max(since) AS since, max(head) AS head,
        (SELECT count(*) FROM open) > 1 AS several
    FROM open WHERE urgency = (SELECT min(urgency) FROM open)
    HAVING count(*) <= 1
        AND NOT EXISTS (SELECT FROM {ns}.held WHERE hold >= $8 AND hold < $9)
        AND NOT EXISTS (SELECT FROM {ns}.waiting WHERE entering AND ready_at <= (SELECT now FROM clock))
        AND NOT EXISTS (SELECT FROM {ns}.requests WHERE node = $2 AND request >= $4)
),
first AS MATERIALIZED (
    SELECT w.* FROM plain AS l CROSS JOIN LATERAL (
        SELECT w.ctid AS place, w.seq, w."group" IS NULL AS alone FROM {ns}.waiting AS w
        WHERE {due:l}
        ORDER BY w.ready_at, w.id LIMIT $5
        FOR UPDATE SKIP LOCKED
    ) AS w
),
found AS MATERIALIZED (
    SELECT
        r.seq, r.id, r.job, r.handler, r.line, r.rank, r.cause, r.due, r.ready_at, r.created_at, r.policy, r.extra,
        r.payload
    FROM {ns}.runs AS r WHERE r.seq = ANY(ARRAY(SELECT seq FROM first))
),
special AS MATERIALIZED (
    SELECT 1 WHERE NOT EXISTS (SELECT FROM plain)
        OR (SELECT several FROM plain) AND (SELECT count(*) FROM first) < $5
        OR EXISTS (SELECT FROM first WHERE NOT alone)
        OR EXISTS (
            SELECT FROM (SELECT DISTINCT handler FROM found) AS f
            WHERE $7::text IS NOT NULL AND (
                SELECT true FROM {ns}.staff AS s WHERE s.digest = $7 AND s.handler = f.handler LIMIT 1
            ) IS NULL
        )
        OR EXISTS (SELECT FROM {ns}.jobs WHERE blocked) AND EXISTS (
            SELECT FROM (SELECT DISTINCT job FROM found) AS f
            WHERE (SELECT true FROM {ns}.jobs AS j WHERE j.name = f.job AND j.blocked LIMIT 1)
        )
),
fresh AS (
    INSERT INTO {ns}.requests AS q (node, request, at) SELECT $2, $4, now FROM clock
    WHERE NOT EXISTS (SELECT FROM special) AND EXISTS (SELECT FROM first)
    ON CONFLICT (node) DO UPDATE SET request = excluded.request, at = excluded.at WHERE q.request < excluded.request
    RETURNING 1
),
numbered AS MATERIALIZED (
    SELECT nextval('{ns}.fences') AS fence, f.*
    FROM (SELECT * FROM found WHERE EXISTS (SELECT FROM fresh) ORDER BY ready_at, id) AS f
),
gone AS (
    DELETE FROM {ns}.waiting WHERE ctid = ANY(ARRAY(SELECT place FROM first WHERE EXISTS (SELECT FROM fresh)))
),
lent AS (
    INSERT INTO {ns}.claims (seq, fence, node, request, started_at, expires_at, keyed)
    SELECT seq, fence, $2, $4, clock.now, clock.now + $6, coalesce(strpos(extra, '"dedupe_key"') > 0, false)
    FROM clock, numbered
),
next AS MATERIALIZED ({later})
SELECT
    NOT EXISTS (SELECT FROM special) AND (EXISTS (SELECT FROM fresh) OR NOT EXISTS (SELECT FROM first)),
    clock.now, next.later,
    f.fence, f.seq, f.id, f.job, f.handler, f.line, f.rank, f.cause, f.due, f.ready_at, f.created_at, f.policy, f.extra,
    f.payload
FROM clock CROSS JOIN next
LEFT JOIN numbered AS f ON true
""")

_LONGEST_REST = 64


class PlainClaims:
    """Whether to try the short statement: after each failed attempt, twice as many claims use the full one.

    One per session.
    """

    def __init__(self) -> None:
        self._rest = self._left = 0

    @property
    def promising(self) -> bool:
        """Whether to try; each call counts towards the next attempt."""
        self._left = max(0, self._left - 1)
        return self._left == 0

    async def lend(self, unit: PostgresUnit, asking: Asking, limit: int) -> Lending | None:
        """Lend plain runs; None if that is not all there is to do, and nothing has been done."""
        lent = await _lend(unit, asking, limit)
        self._rest = self._left = 0 if lent is not None else min(_LONGEST_REST, max(1, 2 * self._rest))
        return lent


async def _lend(unit: PostgresUnit, asking: Asking, limit: int) -> Lending | None:
    rows = await unit.all(
        _LEND_PLAIN,
        asking.now,
        asking.node,
        asking.queues,
        asking.request,
        limit,
        asking.lease,
        asking.staff,
        PREFIX,
        BEYOND,
    )
    plain, now, later, fence = rows[0][:4]
    if not plain:
        return None
    lent = [] if fence is None else rows
    claims = tolerantly(partial(_claims, asking, now), lent, partial(_bare_claim, asking, now))
    unit.memory.remember({row[3]: (row[5], row[4], row[15] is not None) for row in lent})
    return Lending(claims, now, True, False, False, None, later, 0)


def _bare_claim(asking: Asking, now: int, row: Row, why: str) -> Claim:
    """A claim of a run whose policy and extras cannot be read."""
    *known, _, _, payload = row
    [claim] = _claims(asking, now, [(*known, None, None, payload)])
    return replace(claim, run=replace(claim.run, damage=why))


def _claims(asking: Asking, now: int, rows: Sequence[Row]) -> list[Claim]:
    lender = Lender(asking.node, asking.request, now, now + asking.lease)
    before: tuple[str, str, str, str | None] | None = None
    place = place_of(rows[0][8], rows[0][9])  # they are all from one line
    claims: list[Claim] = []
    for _, _, _, fence, _, run_id, job, handler, _, _, cause, due, ready_at, created_at, policy, extra, payload in rows:
        if before != (job, handler, cause, policy):
            before = job, handler, cause, policy
            kind = Kind(job, handler, CAUSES[cause], read_policy(policy))
        claims.append(lender.claim(kind, place, run_id, due, ready_at, created_at, None, extra, payload, fence))
    return claims
