"""What operators do: cancel, redrive, purge, pause and resume queues. Each run is a transaction of its own."""

from __future__ import annotations

from msgspec.structs import replace

from duly.backends.postgres.bell import WORK
from duly.backends.postgres.codec import extra_of
from duly.backends.postgres.moves import by_ids, count_ended, end, lock_groups_of, wait_again
from duly.backends.postgres.unit import Unit
from duly.backends.rows import to_json
from duly.model import CancelReply, RedriveReply, State, from_micros
from duly.rules.lifecycle import REDRIVABLE

_ASK_TO_CANCEL = "UPDATE {ns}.claims SET cancelling = true, reason = $2 WHERE seq = $1 AND fence = $3 RETURNING 1"

_TAKE_KEY = """
INSERT INTO {ns}.keys (handler, key, id) VALUES ($1, $2, $3) ON CONFLICT (handler, key) DO NOTHING RETURNING 1
"""
_GIVE_BACK_KEY = "DELETE FROM {ns}.keys WHERE handler = $1 AND key = $2 AND id = $3"
_NO_LONGER_ENDED = "DELETE FROM {ns}.ended WHERE seq = $1 AND state = $2 RETURNING 1"
_BEGIN_AGAIN = "UPDATE {ns}.runs SET ready_at = $2, extra = $3 WHERE seq = $1"

# The runs that ended in state $1 first, as many as ended before $2, or are more than $3, but no more than $4: their
# ends, their records and their attempts. Who purges at the same time takes others. Answers how many.
_PURGE = """
WITH kept AS MATERIALIZED (
    SELECT coalesce(sum(kept), 0)::bigint AS number FROM {ns}.totals WHERE state = $1
),
older AS MATERIALIZED (
    SELECT count(*) AS number FROM (
        SELECT FROM {ns}.ended WHERE state = $1 AND finished_at < $2::bigint LIMIT $4
    ) AS few
),
doomed AS MATERIALIZED (
    SELECT seq FROM {ns}.ended WHERE state = $1
    ORDER BY finished_at, seq
    LIMIT (
        SELECT greatest(0, least($4::bigint, greatest(older.number, coalesce(kept.number - $3::bigint, 0))))
        FROM kept, older
    )
    FOR UPDATE SKIP LOCKED
),
ends AS (DELETE FROM {ns}.ended WHERE seq = ANY(ARRAY(SELECT seq FROM doomed)) RETURNING 1),
records AS (DELETE FROM {ns}.runs WHERE seq = ANY(ARRAY(SELECT seq FROM doomed))),
histories AS (DELETE FROM {ns}.attempts WHERE seq = ANY(ARRAY(SELECT seq FROM doomed)))
SELECT count(*) FROM ends
"""

_PAUSE = """
INSERT INTO {ns}.queues AS q (name, paused) VALUES ($1, true)
ON CONFLICT (name) DO UPDATE SET paused = true WHERE NOT q.paused
RETURNING 1
"""
_PAUSED = "SELECT name FROM {ns}.queues WHERE paused"
_RESUME = "UPDATE {ns}.queues SET paused = false WHERE name = $1 AND paused RETURNING 1"


async def cancel(unit: Unit, run_id: str, reason: str | None, now: int) -> CancelReply:
    """Cancel a waiting run, ask the worker of a running one."""
    await lock_groups_of(unit, [run_id])
    while True:
        reply = await _cancel(unit, run_id, reason, now)
        if reply is not None:
            return reply


async def _cancel(unit: Unit, run_id: str, reason: str | None, now: int) -> CancelReply | None:
    """One try; None when the run moved on between looking and acting."""
    record = (await by_ids(unit, [run_id])).get(run_id)
    if record is None:
        return CancelReply.UNKNOWN
    if record.run.final:
        return CancelReply.TOO_LATE
    unit.rings |= WORK
    if record.run.state is State.RUNNING:
        why = None if reason is None else to_json(reason)
        asked = await unit.one(_ASK_TO_CANCEL, record.seq, why, record.run.fence)
        return None if asked is None else CancelReply.REQUESTED
    return CancelReply.DONE if await end(unit, record, State.CANCELLED, reason, now) else None


async def redrive(unit: Unit, run_id: str, now: int) -> RedriveReply:
    """Run a failed, lost or cancelled run again."""
    record = (await by_ids(unit, [run_id])).get(run_id)
    if record is None:
        return RedriveReply.UNKNOWN
    run = record.run
    if run.state not in REDRIVABLE:
        return RedriveReply.NOT_ENDED
    key = None if run.dedupe_key is None else run.dedupe_key.encode()
    if key is not None and await unit.one(_TAKE_KEY, run.handler, key, run.id) is None:
        return RedriveReply.DUPLICATE
    if await unit.one(_NO_LONGER_ENDED, record.seq, run.state.value) is None:  # somebody else was first
        if key is not None:
            await unit.run(_GIVE_BACK_KEY, run.handler, key, run.id)
        return RedriveReply.NOT_ENDED
    again = replace(run, ready_at=from_micros(now), failures=0, losses=0, cancelling=False, reason=None)
    await unit.run(_BEGIN_AGAIN, record.seq, now, extra_of(again))
    await wait_again(unit, [replace(record, run=again)])
    await count_ended(unit, {run.state: -1}, kept_only=True)
    unit.rings |= WORK
    return RedriveReply.DONE


async def purge(unit: Unit, state: State, before: int | None, keep: int | None, limit: int) -> int:
    """Delete runs of a final state, the longest ended first; how many."""
    row = await unit.one(_PURGE, state.value, before, keep, limit)
    purged = 0 if row is None else int(row[0])
    if purged:
        await count_ended(unit, {state: -purged}, kept_only=True)
    return purged


async def pause(unit: Unit, queue: str) -> bool:
    """Stop claims from a queue."""
    return await unit.one(_PAUSE, queue) is not None


async def resume(unit: Unit, queue: str) -> bool:
    """Let claims from a queue go on."""
    resumed = await unit.one(_RESUME, queue) is not None
    unit.rings |= WORK if resumed else 0
    return resumed


async def paused(unit: Unit) -> set[str]:
    """The queues that are paused."""
    return {name for (name,) in await unit.all(_PAUSED)}
