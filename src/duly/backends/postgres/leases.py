"""Keeping and taking over claims: renewals, the amnesty after an outage, and the reaping of what has expired."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from duly.backends.postgres.codec import read_records
from duly.backends.postgres.unit_of_work import UnitOfWork
from duly.backends.rows import instant, optional_json
from duly.model import Beat, BeatReply, Claim, Renewal, from_micros

# Somebody reaches the store: $1 now. After a silence of more than $3 an amnesty of $2 begins, all in microseconds. When
# the clock has gone back, what is left of an amnesty is at most $2. Waits for nobody: if the row is locked, somebody
# else is just saying the same; should that be rolled back, the next renewal says it. Answers the time, and to the one
# who ends a silence since when it was silent.
_BEAT = """
WITH {clock},
mine AS MATERIALIZED (
    SELECT beat FROM {ns}.pulse FOR UPDATE SKIP LOCKED
),
beaten AS (
    UPDATE {ns}.pulse AS p SET
        spared_until = CASE
            WHEN now - p.beat > $3::bigint THEN now + $2::bigint
            WHEN now < p.beat THEN least(p.spared_until, now + $2::bigint)
            ELSE p.spared_until
        END,
        beat = now
    FROM clock WHERE EXISTS (SELECT FROM mine)
)
SELECT now, (SELECT beat FROM mine WHERE now - beat > $3::bigint) FROM clock
"""

# Extend claims ($3 ids, $4 fences) to $2 after $1, and keep their progress ($5). Waits for nobody: what another
# transaction has locked is passed over. Answers every claim that stands, whether it was extended, and if so, whether
# it is to be cancelled.
_EXTEND = """
WITH mine AS MATERIALIZED (
    SELECT i.n, i.id, i.fence, i.progress, c.seq, c.cancelling
    FROM unnest($3::text[], $4::bigint[], $5::text[]) WITH ORDINALITY AS i (id, fence, progress, n)
    INNER JOIN {ns}.runs AS r ON r.id = i.id AND r.id = ANY($3::text[])
    CROSS JOIN LATERAL (
        SELECT seq, cancelling FROM {ns}.claims AS at WHERE at.seq = r.seq AND at.fence = i.fence LIMIT 1
    ) AS c
),
free AS MATERIALIZED (
    SELECT c.seq FROM {ns}.claims AS c WHERE c.seq = ANY(ARRAY(SELECT seq FROM mine)) FOR UPDATE SKIP LOCKED
),
extended AS (
    UPDATE {ns}.claims AS c SET expires_at = $1::bigint + $2::bigint, progress = coalesce(m.progress, c.progress)
    FROM mine AS m
    WHERE c.seq = m.seq AND c.fence = m.fence AND c.seq = ANY(ARRAY(SELECT seq FROM free))
    RETURNING c.seq, c.cancelling
)
SELECT m.id, m.fence, e.seq IS NOT NULL, e.cancelling
FROM mine AS m LEFT JOIN extended AS e ON e.seq = m.seq
ORDER BY m.n
"""

# Take over the $2 claims that have expired for the longest time, for $3, unless an amnesty lasts or it has been silent
# for more than $4. No longer lent by the request that lent them: a repeat of that must not learn the reaper's fence.
_REAP = """
WITH {clock},
expired AS MATERIALIZED (
    SELECT c.seq, c.expires_at FROM {ns}.claims AS c
    WHERE c.expires_at <= (SELECT now FROM clock)
        AND EXISTS (
            SELECT FROM {ns}.pulse, clock WHERE now >= spared_until AND ($4::bigint IS NULL OR now - beat <= $4::bigint)
        )
    ORDER BY c.expires_at, c.seq LIMIT $2
    FOR UPDATE SKIP LOCKED
),
numbered AS MATERIALIZED (
    SELECT x.seq, nextval('{ns}.fences') AS fence FROM (SELECT seq FROM expired ORDER BY expires_at, seq) AS x
),
taken AS (
    UPDATE {ns}.claims AS c SET fence = n.fence, expires_at = clock.now + $3::bigint, request = 0
    FROM numbered AS n, clock WHERE c.seq = n.seq
    RETURNING c.*
)
SELECT {run}, x.expires_at
FROM taken AS c INNER JOIN expired AS x ON x.seq = c.seq
CROSS JOIN LATERAL (SELECT * FROM {ns}.runs AS at WHERE at.seq = c.seq LIMIT 1) AS r
LEFT JOIN {ns}.waiting AS w ON false
LEFT JOIN {ns}.held AS h ON false
LEFT JOIN {ns}.ended AS e ON false
ORDER BY c.fence
"""


async def renew(unit: UnitOfWork, beats: Sequence[Beat], lease: int, silence: int | None, now: int | None) -> Renewal:
    """Extend what is still owned; what is not, and what an operator wants cancelled. Each statement for itself."""
    row = await unit.one(_BEAT, now, lease, silence)
    assert row is not None
    if not beats:
        return Renewal(silent_since=instant(row[1]))
    progress = [optional_json(beat.progress) for beat in beats]
    ids, fences = [beat.run_id for beat in beats], [beat.fence for beat in beats]
    rows = await unit.all(_EXTEND, row[0], lease, ids, fences, progress)
    replies = {(run_id, fence): _reply(extended, cancelling) for run_id, fence, extended, cancelling in rows}
    return Renewal(tuple(replies.get((beat.run_id, beat.fence), BeatReply.LOST) for beat in beats), instant(row[1]))


def _reply(extended: bool, cancelling: bool | None) -> BeatReply:
    """The reply about a claim that stands. One that is locked may have ended meanwhile: the next renewal tells."""
    if not extended:
        return BeatReply.BUSY
    return BeatReply.CANCEL if cancelling else BeatReply.KEPT


async def reap(unit: UnitOfWork, limit: int, lease: int, silence: int | None, now: int | None) -> list[Claim]:
    """Take expired claims over under fresh fences, the longest expired first."""
    rows = [tuple(row) for row in await unit.all(_REAP, now, limit, lease, silence)]
    runs = [record.run for record in read_records([row[:-1] for row in rows])]
    return [
        Claim(replace(run, expires_at=from_micros(row[-1])), run.fence, run.expires_at)
        for run, row in zip(runs, rows, strict=True)
        if run.expires_at is not None
    ]
