"""What operators do: cancel, redrive, purge, pause and resume queues.

The runs of one call are treated together, by a fixed number of statements in one transaction. The callers keep such
calls to some hundred runs, so that nobody waits long for their locks, nor they for the deadline of a call.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from duly.backends.postgres.codec import Record, extra_of
from duly.backends.postgres.notify import WORK
from duly.backends.postgres.transitions import by_ids, count_ended, end, free_keys, lock_groups_of, wait_again
from duly.backends.postgres.unit_of_work import UnitOfWork
from duly.backends.rows import to_json
from duly.model import CancelReply, RedriveReply, Run, State, from_micros
from duly.rules.lifecycle import REDRIVABLE

R = TypeVar("R")

_ASK_TO_CANCEL = """
UPDATE {ns}.claims AS c SET cancelling = true, reason = $3 FROM unnest($1::bigint[], $2::bigint[]) AS i (seq, fence)
WHERE c.seq = i.seq AND c.fence = i.fence
RETURNING c.seq
"""

_TAKE_KEYS = """
INSERT INTO {ns}.keys (handler, key, id)
SELECT * FROM unnest($1::text[], $2::bytea[], $3::text[]) AS i (handler, key, id) ORDER BY handler, key
ON CONFLICT (handler, key) DO NOTHING
RETURNING id
"""
# Those of these runs whose keys, which they have taken, are unique to others at $4.
_UNIQUE_TO_OTHERS = """
SELECT i.id FROM unnest($1::text[], $2::bytea[], $3::text[]) AS i (handler, key, id)
INNER JOIN {ns}.unique_keys AS u ON u.handler = i.handler AND u.key = i.key AND u.id <> i.id AND u.until > $4::bigint
"""
_EXPIRE = """
WITH old AS MATERIALIZED (
    SELECT handler, key FROM {ns}.unique_keys WHERE until <= $1 ORDER BY until LIMIT $2 FOR UPDATE SKIP LOCKED
)
DELETE FROM {ns}.unique_keys AS u USING old WHERE u.handler = old.handler AND u.key = old.key
RETURNING 1
"""
_NO_LONGER_ENDED = """
DELETE FROM {ns}.ended AS e USING unnest($1::bigint[], $2::text[]) AS i (seq, state)
WHERE e.seq = i.seq AND e.state = i.state
RETURNING e.seq
"""
_BEGIN_AGAIN = """
UPDATE {ns}.runs AS r SET ready_at = $2, extra = i.extra FROM unnest($1::bigint[], $3::text[]) AS i (seq, extra)
WHERE r.seq = i.seq
"""

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


async def cancel(unit: UnitOfWork, run_ids: Sequence[str], reason: str | None, now: int) -> list[CancelReply]:
    """Cancel waiting runs, ask the workers of running ones; in order."""
    await unit.alone_with_many(len(run_ids))
    await lock_groups_of(unit, run_ids)
    replies: dict[str, CancelReply] = {}
    left = list(dict.fromkeys(run_ids))
    while left:  # what has moved on between looking and acting is looked at again
        replies |= await _cancel(unit, left, reason, now)
        left = [run_id for run_id in left if run_id not in replies]
    return _each(run_ids, replies, {CancelReply.DONE: CancelReply.TOO_LATE})


async def _cancel(unit: UnitOfWork, run_ids: Sequence[str], reason: str | None, now: int) -> dict[str, CancelReply]:
    """One try, on different runs; those that have moved on meanwhile are left out."""
    found = await by_ids(unit, run_ids)
    replies = {run_id: CancelReply.UNKNOWN for run_id in run_ids if run_id not in found}
    records = [found[run_id] for run_id in run_ids if run_id in found]
    replies |= {record.run.id: CancelReply.TOO_LATE for record in records if record.run.final}
    asked = await _ask_to_cancel(unit, [each for each in records if each.run.state is State.RUNNING], reason)
    waiting = [record for record in records if not record.run.final and record.run.state is not State.RUNNING]
    ended = await end(unit, waiting, State.CANCELLED, reason, now) if waiting else set()
    unit.rings |= WORK if asked or ended else 0
    replies |= {record.run.id: CancelReply.REQUESTED for record in records if record.seq in asked}
    return replies | {record.run.id: CancelReply.DONE for record in waiting if record.seq in ended}


async def _ask_to_cancel(unit: UnitOfWork, running: Sequence[Record], reason: str | None) -> set[int]:
    """Tell the workers of these runs; the numbers of those that still run under the same fence."""
    if not running:
        return set()
    why = None if reason is None else to_json(reason)
    seqs, fences = [record.seq for record in running], [record.run.fence for record in running]
    return {row[0] for row in await unit.all(_ASK_TO_CANCEL, seqs, fences, why)}


async def redrive(unit: UnitOfWork, run_ids: Sequence[str], now: int) -> list[RedriveReply]:
    """Run failed, lost or cancelled runs again; in order."""
    await unit.alone_with_many(len(run_ids))
    replies: dict[str, RedriveReply] = {}
    left = list(dict.fromkeys(run_ids))
    while left:
        replies |= await _redrive(unit, left, now)
        left = [run_id for run_id in left if run_id not in replies]
    return _each(run_ids, replies, {RedriveReply.DONE: RedriveReply.NOT_ENDED})


async def _redrive(unit: UnitOfWork, run_ids: Sequence[str], now: int) -> dict[str, RedriveReply]:
    """One try, on different runs. Of those that share a free dedupe key, the ones after the first are left out."""
    found = await by_ids(unit, run_ids)
    replies = {run_id: RedriveReply.UNKNOWN for run_id in run_ids if run_id not in found}
    records = [found[run_id] for run_id in run_ids if run_id in found]
    replies |= {each.run.id: RedriveReply.NOT_ENDED for each in records if each.run.state not in REDRIVABLE}
    sharing: defaultdict[tuple[str, ...], list[Record]] = defaultdict(list)
    for record in records:
        if record.run.state in REDRIVABLE:
            sharing[_key(record.run)].append(record)
    first = [same[0] for same in sharing.values()]
    free = await _take_keys(unit, [record.run for record in first], now)
    taken = [record for same in sharing.values() if same[0].run.id not in free for record in same]
    begun = await _begin_again(unit, [record for record in first if record.run.id in free], now)
    late = free - begun  # somebody else was first
    await free_keys(unit, sorted(late))
    replies |= {record.run.id: RedriveReply.DUPLICATE for record in taken}
    return replies | dict.fromkeys(late, RedriveReply.NOT_ENDED) | dict.fromkeys(begun, RedriveReply.DONE)


def _key(run: Run) -> tuple[str, ...]:
    """What a run shares with those of its handler and dedupe key; without one, with none."""
    return (run.id,) if run.dedupe_key is None else (run.handler, run.dedupe_key)


async def _take_keys(unit: UnitOfWork, runs: Sequence[Run], now: int) -> set[str]:
    """Take the dedupe keys of these runs, all different; the ids of those that have theirs now, or need none."""
    keyed = [run for run in runs if run.dedupe_key is not None]
    free = {run.id for run in runs if run.dedupe_key is None}
    if keyed:
        keys = [run.handler for run in keyed], [(run.dedupe_key or "").encode() for run in keyed]
        taken = {row[0] for row in await unit.all(_TAKE_KEYS, *keys, [run.id for run in keyed])}
        others = {row[0] for row in await unit.all(_UNIQUE_TO_OTHERS, *keys, [run.id for run in keyed], now)}
        await free_keys(unit, sorted(taken & others))
        free |= taken - others
    return free


async def _begin_again(unit: UnitOfWork, records: Sequence[Record], now: int) -> set[str]:
    """Let ended runs wait again; the ids of those that were still ended."""
    if not records:
        return set()
    states = [record.run.state.value for record in records]
    gone = {row[0] for row in await unit.all(_NO_LONGER_ENDED, [record.seq for record in records], states)}
    again = [replace(record, run=_again(record.run, now)) for record in records if record.seq in gone]
    await unit.run(_BEGIN_AGAIN, [each.seq for each in again], now, [extra_of(each.run) for each in again])
    await wait_again(unit, again)
    ended = Counter(record.run.state for record in records if record.seq in gone)
    await count_ended(unit, {state: -number for state, number in ended.items()}, kept_only=True)
    unit.rings |= WORK if again else 0
    return {record.run.id for record in again}


def _again(run: Run, now: int) -> Run:
    return replace(run, ready_at=from_micros(now), failures=0, losses=0, cancelling=False, reason=None, start_by=None)


def _each(run_ids: Iterable[str], replies: Mapping[str, R], later: Mapping[R, R]) -> list[R]:
    """The replies in order; a run that is named again finds what the first time left."""
    answers: list[R] = []
    seen: set[str] = set()
    for run_id in run_ids:
        reply = replies[run_id]
        answers.append(later.get(reply, reply) if run_id in seen else reply)
        seen.add(run_id)
    return answers


async def purge(unit: UnitOfWork, state: State, before: int | None, keep: int | None, limit: int) -> int:
    """Delete runs of a final state, the longest ended first; how many."""
    row = await unit.one(_PURGE, state.value, before, keep, limit)
    purged = 0 if row is None else int(row[0])
    if purged:
        await count_ended(unit, {state: -purged}, kept_only=True)
    return purged


async def expire(unit: UnitOfWork, limit: int, now: int) -> int:
    """Delete dedupe keys whose time has passed; how many."""
    return len(await unit.all(_EXPIRE, now, limit))


async def pause(unit: UnitOfWork, queue: str) -> bool:
    """Stop claims from a queue."""
    return await unit.one(_PAUSE, queue) is not None


async def resume(unit: UnitOfWork, queue: str) -> bool:
    """Let claims from a queue go on."""
    resumed = await unit.one(_RESUME, queue) is not None
    unit.rings |= WORK if resumed else 0
    return resumed


async def paused(unit: UnitOfWork) -> set[str]:
    """The queues that are paused."""
    return {name for (name,) in await unit.all(_PAUSED)}
