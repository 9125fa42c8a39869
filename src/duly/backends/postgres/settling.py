"""Settling: what becomes of claimed runs, applied where the fence still stands.

Nearly all settlements are first-time successes of runs that this session lent itself. One statement checks and moves
them all, whatever their number; everything else is locked, read and decided about, and then written in bulk as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from duly.backends.postgres.codec import Record, extra_of
from duly.backends.postgres.notify import ENDED, WORK
from duly.backends.postgres.transitions import (
    End,
    by_ids,
    count_ended,
    free_keys,
    insert_ended,
    lock_groups_of,
    release,
    wait_again,
)
from duly.backends.postgres.unit_of_work import Lent, UnitOfWork
from duly.backends.rows import optional_json
from duly.model import Attempt, Run, Settlement, State, to_micros
from duly.model.holds import hold_for_group
from duly.rules.misfires import start_by_after
from duly.rules.settling import as_stored
from duly.rules.statistics import Tally, tally

_ADD_TO_STATISTICS = """
ON CONFLICT (job, node) DO UPDATE SET
    completed = s.completed + excluded.completed,
    failed = s.failed + excluded.failed,
    cancelled = s.cancelled + excluded.cancelled,
    lost = s.lost + excluded.lost,
    retried = s.retried + excluded.retried,
    seconds = s.seconds + excluded.seconds,
    last_outcome = CASE WHEN excluded.last_run_at >= s.last_run_at THEN excluded.last_outcome ELSE s.last_outcome END,
    last_run_at = greatest(s.last_run_at, excluded.last_run_at)
"""

# Complete first-time successes: numbers, fences, ends, jobs, results (NULL: there are none). Applies to each whose
# claim stands and has nothing besides to tell (no wish to cancel, no progress); gives keys back and places in groups
# free ($7 is how their holds begin), counts, and rings ($6, or $8 if somebody moved up). Answers how many, which unless
# it was all, and whether somebody moved up. A fence is given out once, so one that is among those offered is that of
# its own run. They are in order, so that the place of each is found by halving (width_bucket), without a join.
_COMPLETE = """
WITH gone AS (
    DELETE FROM {ns}.claims AS c
    WHERE c.seq = ANY($1::bigint[]) AND c.fence = ANY($2::bigint[]) AND NOT c.cancelling AND c.progress IS NULL
    RETURNING
        c.seq, c.fence, c.node, c.request, c.started_at, c.keyed, c."group",
        ($3::bigint[])[width_bucket(c.fence, $2::bigint[])] AS ended_at,
        ($4::text[])[width_bucket(c.fence, $2::bigint[])] AS job,
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
    INSERT INTO {ns}.statistics AS s (
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
    CASE WHEN number > 0 THEN pg_notify({bell}, CASE WHEN moved_up > 0 THEN $8 ELSE $6 END) END
FROM (
    SELECT
        count(*) AS number, array_agg(seq) AS seqs,
        {ns}.release(array_agg($7::text || "group") FILTER (WHERE "group" IS NOT NULL)) AS moved_up
    FROM gone
) AS done
""".replace("{add}", _ADD_TO_STATISTICS)

_LOCK = """
SELECT seq FROM {ns}.claims
WHERE seq = ANY(ARRAY(SELECT seq FROM {ns}.runs WHERE id = ANY($1::text[]))) ORDER BY seq FOR UPDATE
"""
_GIVE_BACK = "DELETE FROM {ns}.claims WHERE seq = ANY($1::bigint[])"
_KEEP_RESULTS = """
UPDATE {ns}.ended AS e SET result = i.result FROM unnest($1::bigint[], $2::bytea[]) AS i (seq, result)
WHERE e.seq = ANY($1::bigint[]) AND e.seq = i.seq AND e.result IS NULL
"""
_AGAIN = """
UPDATE {ns}.runs AS r SET ready_at = i.ready_at, extra = i.extra
FROM unnest($1::bigint[], $2::bigint[], $3::text[]) AS i (seq, ready_at, extra)
WHERE r.seq = ANY($1::bigint[]) AND r.seq = i.seq
"""
_READY_AT = """
UPDATE {ns}.runs AS r SET ready_at = i.ready_at FROM unnest($1::bigint[], $2::bigint[]) AS i (seq, ready_at)
WHERE r.seq = ANY($1::bigint[]) AND r.seq = i.seq
"""
_ATTEMPTS = """
INSERT INTO {ns}.attempts (seq, number, fence, node, started_at, ended_at, outcome, failure)
SELECT * FROM unnest(
    $1::bigint[], $2::int[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[], $7::text[], $8::text[]
)
ON CONFLICT (seq, fence) DO NOTHING
"""
_COUNT = """
INSERT INTO {ns}.statistics AS s (
    job, node, completed, failed, cancelled, lost, retried, seconds, last_run_at, last_outcome
)
SELECT * FROM unnest(
    $1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::float8[],
    $9::bigint[], $10::text[]
)
{add}
""".replace("{add}", _ADD_TO_STATISTICS)


# --- many at once


class First(Struct, frozen=True):
    """First-time successes of runs that this session lent."""

    settled: list[Settlement]
    seqs: list[int]


def sorted_out(settlements: Sequence[Settlement], lent: Mapping[int, Lent]) -> tuple[First, list[Settlement]]:
    """Such successes, and all others. Two settlements of one claim are left to be looked at one by one."""
    first = First([], [])
    others: list[Settlement] = []
    seen: set[int] = set()
    for settled in sorted(settlements, key=lambda settled: settled.fence):
        known = lent.get(settled.fence)
        if (
            known is None
            or known.run_id != settled.run_id
            or settled.state is not State.COMPLETED
            or settled.attempt is not None
            or settled.reason is not None
            or settled.fence in seen
        ):
            others.append(settled)
            continue
        seen.add(settled.fence)
        first.settled.append(settled)
        first.seqs.append(known.seq)
    return first, others


async def complete(unit: UnitOfWork, first: First) -> list[Settlement]:
    """Complete these runs; those whose claim did not stand, or has more to it."""
    results = [settled.result for settled in first.settled]
    row = await unit.one(
        _COMPLETE,
        first.seqs,
        [settled.fence for settled in first.settled],
        [to_micros(settled.ended_at) for settled in first.settled],
        [settled.job for settled in first.settled],
        None if results.count(None) == len(results) else results,
        str(ENDED),
        hold_for_group(""),
        str(ENDED | WORK),
    )
    assert row is not None
    unit.stirs |= row[2]
    done = set(first.seqs if row[0] == len(first.seqs) else row[1] or ())
    left: list[Settlement] = []
    for seq, settled in zip(first.seqs, first.settled, strict=True):
        if seq in done:
            unit.memory.lent.pop(settled.fence, None)
        else:
            left.append(settled)
    return left


# --- one by one


class Applied(Struct, frozen=True):
    """One settlement with the run that it applies to: as it was, and as it is afterwards."""

    settled: Settlement
    before: Record
    after: Record


async def settle_each(unit: UnitOfWork, settlements: Sequence[Settlement]) -> list[Settlement]:
    """Apply settlements; those whose fence no longer stands. Needs a transaction."""
    ids = [settled.run_id for settled in settlements]
    await lock_groups_of(unit, ids)
    await unit.run(_LOCK, ids)
    records = await by_ids(unit, ids)
    stale: list[Settlement] = []
    applied: list[Applied] = []
    results: list[tuple[int, bytes]] = []
    for settled in settlements:
        record = records.get(settled.run_id)
        if record is None or record.run.fence != settled.fence:
            stale.append(settled)
        elif record.run.state is State.RUNNING:
            done = as_stored(record.run, settled)
            after = replace(record, run=_after(record, done))
            applied.append(Applied(done, record, after))
            records[settled.run_id] = after
        elif record.run.state is State.COMPLETED and settled.result is not None:
            results.append((record.seq, settled.result))
    await _write(unit, applied)
    if results:
        await unit.run(_KEEP_RESULTS, [seq for seq, _ in results], [result for _, result in results])
    return stale


def _after(record: Record, settled: Settlement) -> Run:
    return replace(
        record.run,
        state=settled.state,
        ready_at=settled.ready_at,
        failures=settled.failures,
        losses=settled.losses,
        reason=settled.reason,
        result=settled.result,
        failure=settled.failure,
        member=record.run.member and settled.state is State.PENDING,
        expires_at=None,
        start_by=start_by_after(record.run, settled),
    )


async def _write(unit: UnitOfWork, applied: Sequence[Applied]) -> None:
    """Move claimed runs to where their settlements say."""
    if not applied:
        return
    await unit.run(_GIVE_BACK, [each.before.seq for each in applied])
    for each in applied:
        unit.memory.lent.pop(each.settled.fence, None)
    attempts = [(each.before.seq, each.settled.attempt) for each in applied if each.settled.attempt is not None]
    await _keep_attempts(unit, attempts)
    await _put_back(unit, [each for each in applied if each.settled.state is State.PENDING])
    await _end(unit, [each for each in applied if each.settled.state is not State.PENDING])
    await _count(unit, tally(each.settled for each in applied))


async def _put_back(unit: UnitOfWork, applied: Sequence[Applied]) -> None:
    records = [each.after for each in applied]
    if records:
        ready = [to_micros(record.run.ready_at) for record in records]
        await unit.run(_AGAIN, [record.seq for record in records], ready, [extra_of(record.run) for record in records])
        await wait_again(unit, records, [each.settled.hold for each in applied])
        unit.rings |= WORK


async def _end(unit: UnitOfWork, applied: Sequence[Applied]) -> None:
    moved = [each.after for each in applied if each.after.run.ready_at != each.before.run.ready_at]
    if moved:
        ready = [to_micros(record.run.ready_at) for record in moved]
        await unit.run(_READY_AT, [record.seq for record in moved], ready)
    ends = [
        End(each.after.seq, each.after.run, each.settled.state, each.settled.reason, to_micros(each.settled.ended_at))
        for each in applied
    ]
    await insert_ended(unit, ends)
    await free_keys(unit, [each.after.run.id for each in applied if each.after.run.dedupe_key is not None])
    left = [each.before.run.group for each in applied if each.before.run.member]
    await release(unit, [group for group in left if group is not None])
    if applied:
        await count_ended(unit, Counter(each.settled.state for each in applied), applied[0].settled.node)


async def _keep_attempts(unit: UnitOfWork, attempts: Sequence[tuple[int, Attempt]]) -> None:
    if attempts:
        await unit.run(
            _ATTEMPTS,
            [seq for seq, _ in attempts],
            [attempt.number for _, attempt in attempts],
            [attempt.fence for _, attempt in attempts],
            [attempt.node for _, attempt in attempts],
            [to_micros(attempt.started_at) for _, attempt in attempts],
            [to_micros(attempt.ended_at) for _, attempt in attempts],
            [attempt.outcome.value for _, attempt in attempts],
            [optional_json(attempt.failure) for _, attempt in attempts],
        )


async def _count(unit: UnitOfWork, tallies: Mapping[tuple[str, str], Tally]) -> None:
    keys = sorted(tallies)
    if keys:
        entries = [tallies[key] for key in keys]
        await unit.run(
            _COUNT,
            [job for job, _ in keys],
            [node for _, node in keys],
            [entry.completed for entry in entries],
            [entry.failed for entry in entries],
            [entry.cancelled for entry in entries],
            [entry.lost for entry in entries],
            [entry.retried for entry in entries],
            [entry.seconds for entry in entries],
            [0 if entry.last_run_at is None else to_micros(entry.last_run_at) for entry in entries],
            ["" if entry.last_outcome is None else entry.last_outcome.value for entry in entries],
        )
