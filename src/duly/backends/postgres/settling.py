"""The fast path of settling, and what keeps claims alive: renewals, the amnesty after an outage, taking over.

Nearly all settlements are first-time successes of runs that this session lent. One statement checks and moves them all,
whatever their number: one round trip, where `sql.settling` takes ten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from duly.backends.codec import instant, optional_json
from duly.backends.postgres.unit import PostgresUnit
from duly.backends.sql.moves import read_records
from duly.backends.sql.notify import ENDED, WORK
from duly.backends.sql.settling import ADD_TO_STATISTICS, first_success
from duly.backends.sql.unit import Lent
from duly.model import Beat, BeatReply, Claim, EndedProcess, Renewal, Settlement, from_micros, to_micros
from duly.model.holds import hold_for_group

# Complete first-time successes: numbers, fences, ends, jobs (one, if they are all of the same: a list of texts is the
# dearest to send), results (NULL: there are none). Applies to each whose
# claim is valid and has no further state (no wish to cancel, no progress); frees keys and places in groups ($7 is the
# prefix of their holds), counts, and notifies ($6, or $8 if a held run moved up). Returns how many, which ones (unless
# all), and whether a held run moved up. A fence is given out once, so a fence identifies its run. The fences are in
# order, so that the position of each is found by binary search (width_bucket), without a join.
_COMPLETE = """
WITH gone AS (
    DELETE FROM {ns}.claims AS c
    WHERE c.seq = ANY($1::bigint[]) AND c.fence = ANY($2::bigint[]) AND NOT c.cancelling AND c.progress IS NULL
    RETURNING
        c.seq, c.fence, c.node, c.request, c.started_at, c.keyed, c."group",
        ($3::bigint[])[width_bucket(c.fence, $2::bigint[])] AS ended_at,
        ($4::text[])[CASE cardinality($4) WHEN 1 THEN 1 ELSE width_bucket(c.fence, $2::bigint[]) END] AS job,
        ($5::bytea[])[width_bucket(c.fence, $2::bigint[])] AS result
),
over AS (
    INSERT INTO {ns}.ended (seq, state, finished_at, fence, node, request, started_at, result)
    SELECT seq, 'completed', ended_at, fence, node, request, started_at, result FROM gone
),
freed AS (
    DELETE FROM {ns}.keys WHERE id = ANY(ARRAY(
        SELECT id FROM {ns}.runs WHERE seq = ANY(ARRAY(SELECT seq FROM gone WHERE keyed))
    ))
),
totalled AS (
    INSERT INTO {ns}.totals AS t (state, node, ended, kept)
    SELECT 'completed', node, count(*), count(*) FROM gone GROUP BY node ORDER BY node
    ON CONFLICT (state, node) DO UPDATE SET ended = t.ended + excluded.ended, kept = t.kept + excluded.kept
),
tallied AS MATERIALIZED (
    SELECT job, node, count(*) AS number, sum(ended_at - started_at) / 1e6 AS seconds, max(started_at) AS last
    FROM gone GROUP BY job, node ORDER BY job, node
),
added AS (
    UPDATE {ns}.statistics AS s SET
        completed = s.completed + t.number,
        seconds = s.seconds + t.seconds,
        last_outcome = CASE WHEN t.last >= s.last_run_at THEN 'succeeded' ELSE s.last_outcome END,
        last_run_at = greatest(s.last_run_at, t.last)
    FROM tallied AS t WHERE s.job = t.job AND s.node = t.node
    RETURNING s.job, s.node
),
begun AS (
    INSERT INTO {ns}.statistics AS t (
        job, node, completed, failed, cancelled, lost, retried, seconds, last_run_at, last_outcome
    )
    SELECT job, node, number, 0, 0, 0, 0, seconds, last, 'succeeded'
    FROM tallied WHERE (job, node) NOT IN (SELECT job, node FROM added)
    {add}
)
SELECT
    number,
    CASE WHEN number < cardinality($1) THEN seqs END,
    coalesce(moved_up, 0) > 0,
    CASE WHEN number > 0 THEN pg_notify({channel}, CASE WHEN moved_up > 0 THEN $8 ELSE $6 END) END
FROM (
    SELECT
        count(*) AS number, array_agg(seq) AS seqs,
        {ns}.release(array_agg($7::text || "group") FILTER (WHERE "group" IS NOT NULL)) AS moved_up
    FROM gone
) AS done
""".replace("{add}", ADD_TO_STATISTICS)

# Record a heartbeat: $1 now. After a silence of more than $3 an amnesty of $2 begins, all in microseconds. When
# the clock has gone back, what is left of an amnesty is at most $2. Does not wait: if the row is locked, another node
# is recording the same; if that is rolled back, the next renewal records it. Returns the time, and to the caller that
# ends a silence also since when it was silent.
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

# Extend claims ($3 ids, $4 fences) to $2 after $1, and store their progress ($5). Does not wait: rows that another
# transaction has locked are skipped. Returns every valid claim, whether it was extended, and if so, whether it is to be
# cancelled.
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

# Take over the claims that {found} selects, in their order, for $3. Clears their requests: a repeat of such a request
# must not return the new fence.
_TAKING_OVER = """
WITH {clock},
found AS MATERIALIZED ({found}),
numbered AS MATERIALIZED (
    SELECT x.seq, nextval('{ns}.fences') AS fence FROM (SELECT seq FROM found ORDER BY expires_at, seq) AS x
),
taken AS (
    UPDATE {ns}.claims AS c SET fence = n.fence, expires_at = clock.now + $3::bigint, request = 0
    FROM numbered AS n, clock WHERE c.seq = n.seq
    RETURNING c.*
)
SELECT {run}, x.expires_at
FROM taken AS c INNER JOIN found AS x ON x.seq = c.seq
CROSS JOIN LATERAL (SELECT * FROM {ns}.runs AS at WHERE at.seq = c.seq LIMIT 1) AS r
LEFT JOIN {ns}.waiting AS w ON false
LEFT JOIN {ns}.held AS h ON false
LEFT JOIN {ns}.ended AS e ON false
ORDER BY c.fence
"""

# The $2 claims that have expired for the longest time, unless an amnesty lasts or it has been silent for more than $4.
_REAP = _TAKING_OVER.replace(
    "{found}",
    """
    SELECT c.seq, c.expires_at FROM {ns}.claims AS c
    WHERE c.expires_at <= (SELECT now FROM clock)
        AND EXISTS (
            SELECT FROM {ns}.pulse, clock WHERE now >= spared_until AND ($4::bigint IS NULL OR now - beat <= $4::bigint)
        )
    ORDER BY c.expires_at, c.seq LIMIT $2
    FOR UPDATE SKIP LOCKED
""",
)

# The first $2 claims that requests $5 to $6 of node $4 have made. One that is locked may belong to a transaction that
# the process left open: the server ends it soon.
_TAKE_OVER = _TAKING_OVER.replace(
    "{found}",
    """
    SELECT c.seq, c.expires_at FROM {ns}.claims AS c
    WHERE c.node = $4 AND c.request BETWEEN $5 AND $6
    ORDER BY c.expires_at, c.seq LIMIT $2
    FOR UPDATE SKIP LOCKED
""",
)


# --- settling


class First(Struct, frozen=True):
    """First-time successes of runs that this session lent."""

    settled: list[Settlement]
    seqs: list[int]


def sorted_out(settlements: Sequence[Settlement], lent: Mapping[int, Lent]) -> tuple[First, list[Settlement]]:
    """Such successes, and all others. Two settlements of one claim are left to be treated one by one."""
    first = First([], [])
    others: list[Settlement] = []
    seen: set[int] = set()
    for settled in sorted(settlements, key=lambda settled: settled.fence):
        known = None if settled.fence in seen else first_success(settled, lent)
        if known is None:
            others.append(settled)
            continue
        seen.add(settled.fence)
        first.settled.append(settled)
        first.seqs.append(known[1])
    return first, others


async def complete(unit: PostgresUnit, first: First) -> list[Settlement]:
    """Complete these runs; returns those whose claim is not valid, or has further state."""
    results = [settled.result for settled in first.settled]
    jobs = [settled.job for settled in first.settled]
    row = await unit.one(
        _COMPLETE,
        first.seqs,
        [settled.fence for settled in first.settled],
        [to_micros(settled.ended_at) for settled in first.settled],
        jobs[:1] if jobs.count(jobs[0]) == len(jobs) else jobs,
        None if results.count(None) == len(results) else results,
        str(ENDED),
        hold_for_group(""),
        str(ENDED | WORK),
    )
    assert row is not None
    unit.affects_others |= row[2]
    done = set(first.seqs if row[0] == len(first.seqs) else row[1] or ())
    left: list[Settlement] = []
    for seq, settled in zip(first.seqs, first.settled, strict=True):
        if seq in done:
            unit.memory.lent.pop(settled.fence, None)
        else:
            left.append(settled)
    return left


# --- keeping claims alive


async def renew(unit: PostgresUnit, beats: Sequence[Beat], lease: int, silence: int | None, now: int | None) -> Renewal:
    """Extend claims that are still owned; returns the lost ones and those to cancel. No common transaction."""
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
    """The reply for a valid claim. One that is locked may have ended meanwhile: the next renewal shows that."""
    if not extended:
        return BeatReply.BUSY
    return BeatReply.CANCEL if cancelling else BeatReply.KEPT


async def reap(unit: PostgresUnit, limit: int, lease: int, silence: int | None, now: int | None) -> list[Claim]:
    """Take over expired claims under new fences, the longest expired first."""
    return _taken_over(await unit.all(_REAP, now, limit, lease, silence))


async def take_over(unit: PostgresUnit, process: EndedProcess, limit: int, lease: int, now: int | None) -> list[Claim]:
    """Take over the claims of a process that has ended under new fences."""
    requests = (process.first, process.last)
    return _taken_over(await unit.all(_TAKE_OVER, now, limit, lease, process.node, *requests))


def _taken_over(found: Sequence[Sequence[Any]]) -> list[Claim]:
    """The claims under their new fences; their runs have the expiry that they had before."""
    rows = [tuple(row) for row in found]
    runs = [record.run for record in read_records([row[:-1] for row in rows])]
    return [
        Claim(replace(run, expires_at=from_micros(row[-1])), run.fence, run.expires_at)
        for run, row in zip(runs, rows, strict=True)
        if run.expires_at is not None
    ]
