"""Keeping and taking over claims: renewals, the amnesty after an outage, and the reaping of what has expired."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from duly.backends.postgres.codec import read_records
from duly.backends.postgres.unit import Unit
from duly.backends.rows import instant, optional_json
from duly.model import Beat, BeatReply, Claim, Renewal, from_micros

# Somebody reaches the store: $1 now. After a silence of more than $3 an amnesty of $2 begins, all in microseconds. When
# the clock has gone back, what is left of an amnesty is at most $2. Answers the time, and since when it was silent.
_BEAT = """
UPDATE {ns}.pulse SET
    spared_until = CASE
        WHEN now - beat > $3::bigint THEN now + $2::bigint
        WHEN now < beat THEN least(spared_until, now + $2::bigint)
        ELSE spared_until
    END,
    beat = now
FROM (SELECT {now} AS now, (SELECT beat FROM {ns}.pulse) AS before) AS clock
RETURNING now, CASE WHEN now - before > $3::bigint THEN before END
"""

# Extend claims ($3 ids, $4 fences) to $2 after $1, and keep their progress ($5). Waits for nobody: what another
# transaction has locked is passed over. Answers every claim that stands, and whether it was extended.
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
SELECT m.id, m.fence, e.seq IS NOT NULL, coalesce(e.cancelling, m.cancelling)
FROM mine AS m LEFT JOIN extended AS e ON e.seq = m.seq
ORDER BY m.n
"""
# The same for one claim, waiting for whoever has it locked.
_EXTEND_ONE = """
UPDATE {ns}.claims AS c SET expires_at = $1::bigint + $2::bigint, progress = coalesce($5::text, c.progress)
FROM {ns}.runs AS r
WHERE r.id = $3 AND c.seq = r.seq AND c.fence = $4
RETURNING c.cancelling
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


async def renew(unit: Unit, beats: Sequence[Beat], lease: int, silence: int | None, now: int | None) -> Renewal:
    """Extend what is still owned; what is not, and what an operator wants cancelled. Each statement for itself."""
    row = await unit.one(_BEAT, now, lease, silence)
    assert row is not None
    if not beats:
        return Renewal(silent_since=instant(row[1]))
    progress = [optional_json(beat.progress) for beat in beats]
    ids, fences = [beat.run_id for beat in beats], [beat.fence for beat in beats]
    rows = await unit.all(_EXTEND, row[0], lease, ids, fences, progress)
    kept = {(run_id, fence): cancelling for run_id, fence, extended, cancelling in rows if extended}
    texts = {(beat.run_id, beat.fence): text for beat, text in zip(beats, progress, strict=True)}
    for claim in [(run_id, fence) for run_id, fence, extended, _ in rows if not extended]:
        one = await unit.one(_EXTEND_ONE, row[0], lease, *claim, texts[claim])
        if one is not None:
            kept[claim] = one[0]
    return Renewal(tuple(_reply(kept.get((beat.run_id, beat.fence))) for beat in beats), instant(row[1]))


def _reply(cancelling: bool | None) -> BeatReply:
    """The reply to a claim that stands, which may be to be cancelled, or does not (None)."""
    if cancelling is None:
        return BeatReply.LOST
    return BeatReply.CANCEL if cancelling else BeatReply.KEPT


async def reap(unit: Unit, limit: int, lease: int, silence: int | None, now: int | None) -> list[Claim]:
    """Take expired claims over under fresh fences, the longest expired first."""
    rows = [tuple(row) for row in await unit.all(_REAP, now, limit, lease, silence)]
    runs = [record.run for record in read_records([row[:-1] for row in rows])]
    return [
        Claim(replace(run, expires_at=from_micros(row[-1])), run.fence, run.expires_at)
        for run, row in zip(runs, rows, strict=True)
        if run.expires_at is not None
    ]
