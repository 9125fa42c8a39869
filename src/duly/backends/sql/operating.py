"""What operators do: cancel, redrive, purge, pause and resume queues.

The runs of one call are treated together, by a fixed number of statements in one transaction. The callers keep such
calls to some hundred runs, so that others do not wait long for their locks and no call reaches its deadline.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from duly.backends.codec import Record, extra_of
from duly.backends.sql.moves import AGAIN, by_ids, count_ended, end, free_keys, wait_again
from duly.backends.sql.notify import WORK
from duly.backends.sql.unit import Column, Delete, Unit, Update, columns
from duly.model import CancelReply, RedriveReply, Run, State, from_micros
from duly.ports import FROZEN
from duly.rules.lifecycle import REDRIVABLE

R = TypeVar("R")

_ASK_TO_CANCEL = Update(
    "claims", (Column("seq"), Column("fence")), columns(reason="text"), constants="cancelling = {true}"
)
_NEW_PAYLOAD = Update("runs", (Column("seq"),), columns(payload="bytea"), answers=False)
_NO_LONGER_ENDED = Delete("ended", columns(seq="bigint", state="text"))

_KEPT = "SELECT coalesce(sum(kept), 0)::bigint FROM {ns}.totals WHERE state = $1"
_OLDER = "SELECT count(*) FROM (SELECT 1 FROM {ns}.ended WHERE state = $1 AND finished_at < $2 LIMIT $3) AS few"
# The earliest ended runs of a state. Concurrent purges take other runs.
_FIRST_ENDED = """
SELECT seq FROM {ns}.ended WHERE state = $1 ORDER BY finished_at, seq LIMIT $2 FOR UPDATE SKIP LOCKED
"""
_DELETE = "DELETE FROM {{ns}}.{table} WHERE seq = ANY($1::bigint[])"
_DELETE_RECORDS = tuple(_DELETE.format(table=table) for table in ("run_lines", "attempts", "runs"))
# Their logs, their attempts, their records, and at last their ends, which find the others.
_PURGE = (*_DELETE_RECORDS, _DELETE.format(table="ended"))
_PAUSE = """
INSERT INTO {ns}.queues AS q (name, paused) VALUES ($1, {true})
ON CONFLICT (name) DO UPDATE SET paused = {true} WHERE NOT q.paused
RETURNING 1
"""
_PAUSED = "SELECT name FROM {ns}.queues WHERE {paused}"
_RESUME = "UPDATE {ns}.queues SET paused = {false} WHERE name = $1 AND {paused} RETURNING 1"


async def cancel(unit: Unit, run_ids: Sequence[str], reason: str | None, now: int) -> list[CancelReply]:
    """Cancel waiting runs, ask the workers of running ones; in order."""
    await unit.locks.many(len(run_ids))
    await unit.locks.groups_of(run_ids)
    replies: dict[str, CancelReply] = {}
    left = list(dict.fromkeys(run_ids))
    while left:  # a run that changed between reading and writing is read again
        replies |= await _cancel(unit, left, reason, now)
        left = [run_id for run_id in left if run_id not in replies]
    return _each(run_ids, replies, {CancelReply.DONE: CancelReply.TOO_LATE})


async def _cancel(unit: Unit, run_ids: Sequence[str], reason: str | None, now: int) -> dict[str, CancelReply]:
    """One attempt, on distinct runs; those that changed meanwhile are left out."""
    found = await by_ids(unit, run_ids)
    replies = {run_id: CancelReply.UNKNOWN for run_id in run_ids if run_id not in found}
    records = [found[run_id] for run_id in run_ids if run_id in found]
    replies |= {record.run.id: CancelReply.TOO_LATE for record in records if record.run.final}
    running = [record for record in records if record.run.state is State.RUNNING]
    why = unit.dialect.reason(reason)
    asked = await unit.change(_ASK_TO_CANCEL, [(record.seq, record.run.fence, why) for record in running])
    waiting = [record for record in records if not record.run.final and record.run.state is not State.RUNNING]
    ended = await end(unit, waiting, State.CANCELLED, reason, now) if waiting else set()
    unit.rings |= WORK if asked or ended else 0
    replies |= {record.run.id: CancelReply.REQUESTED for record in running if record.seq in asked}
    return replies | {record.run.id: CancelReply.DONE for record in waiting if record.seq in ended}


async def redrive(unit: Unit, run_ids: Sequence[str], payload: bytes | None, now: int) -> list[RedriveReply]:
    """Run failed, lost or cancelled runs again, with their own payload or this one; in order."""
    await unit.locks.many(len(run_ids))
    replies: dict[str, RedriveReply] = {}
    left = list(dict.fromkeys(run_ids))
    while left:
        replies |= await _redrive(unit, left, payload, now)
        left = [run_id for run_id in left if run_id not in replies]
    return _each(run_ids, replies, {RedriveReply.DONE: RedriveReply.NOT_ENDED})


async def _redrive(unit: Unit, run_ids: Sequence[str], payload: bytes | None, now: int) -> dict[str, RedriveReply]:
    """One attempt, on distinct runs. Of those that share a free dedupe key, the ones after the first are left out."""
    found = await by_ids(unit, run_ids)
    replies = {run_id: RedriveReply.UNKNOWN for run_id in run_ids if run_id not in found}
    records = [found[run_id] for run_id in run_ids if run_id in found]
    replies |= {each.run.id: RedriveReply.NOT_ENDED for each in records if each.run.state not in REDRIVABLE}
    sharing: defaultdict[tuple[str, ...], list[Record]] = defaultdict(list)
    for record in records:
        if record.run.state in REDRIVABLE:
            sharing[_key(record.run)].append(record)
    first = [same[0] for same in sharing.values()]
    keyed = [(record.seq, record.run) for record in first if record.run.dedupe_key is not None]
    taken = await unit.dialect.take_keys(unit, keyed, now) if keyed else set()
    free = [record for record in first if record.run.dedupe_key is None or record.seq in taken]
    begun = await _begin_again(unit, free, payload, now)
    await free_keys(unit, [record for record in free if record.seq not in begun])  # another call was first
    for same in sharing.values():
        if same[0] not in free:
            replies |= {record.run.id: RedriveReply.DUPLICATE for record in same}
    return replies | {each.run.id: _redriven(each.seq in begun) for each in free}


def _redriven(begun: bool) -> RedriveReply:
    return RedriveReply.DONE if begun else RedriveReply.NOT_ENDED


def _key(run: Run) -> tuple[str, ...]:
    """What a run shares with those of its handler and dedupe key; without one, with none."""
    return (run.id,) if run.dedupe_key is None else (run.handler, run.dedupe_key)


async def _begin_again(unit: Unit, records: Sequence[Record], payload: bytes | None, now: int) -> set[int]:
    """Let ended runs wait again; the numbers of those that were still ended."""
    gone = await unit.change(_NO_LONGER_ENDED, [(record.seq, record.run.state.value) for record in records])
    ended = [record for record in records if record.seq in gone]
    again = [replace(record, run=_again(record.run, now)) for record in ended]
    await unit.change(AGAIN, [(each.seq, now, extra_of(each.run)) for each in again])
    if payload is not None:
        await unit.change(_NEW_PAYLOAD, [(each.seq, payload) for each in again])
    await wait_again(unit, again)
    no_longer = Counter(record.run.state for record in ended)
    await count_ended(unit, {state: -number for state, number in no_longer.items()}, kept_only=True)
    unit.rings |= WORK if again else 0
    return gone


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


async def backfill(unit: Unit, runs: Sequence[Run], now: int) -> list[bool]:
    """Add runs whose id is new or that of a skipped run, which is deleted; in order, whether each was added."""
    await unit.locks.many(len(runs))
    found = await by_ids(unit, [run.id for run in runs])
    skipped = [record for record in found.values() if record.run.state is State.SKIPPED]
    gone = await unit.change(_NO_LONGER_ENDED, [(record.seq, State.SKIPPED.value) for record in skipped])
    for sql in _DELETE_RECORDS:
        await unit.run(sql, list(gone))
    await count_ended(unit, {State.SKIPPED: -len(gone)}, kept_only=True)
    answers = await unit.dialect.add(unit, runs, now)
    unit.rings |= WORK
    return [put.created for put in answers]


async def purge(unit: Unit, state: State, before: int | None, keep: int | None, limit: int) -> int:
    """Delete runs of a final state, the longest ended first; how many."""
    older = None if before is None else await unit.one(_OLDER, state.value, before, limit)
    kept = None if keep is None else await unit.one(_KEPT, state.value)
    beyond = 0 if kept is None or keep is None else kept[0] - keep
    number = min(limit, max(0 if older is None else older[0], beyond))
    if number <= 0:
        return 0
    seqs = [row[0] for row in await unit.all(_FIRST_ENDED, state.value, number)]
    for sql in _PURGE:
        await unit.run(sql, seqs)
    await count_ended(unit, {state: -len(seqs)}, kept_only=True)
    return len(seqs)


async def expire(unit: Unit, limit: int, now: int) -> int:
    """Delete dedupe keys whose time has passed; how many."""
    return len(await unit.all("{expire_keys}", now, limit))


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
    return {row[0] for row in await unit.all(_PAUSED)}


async def is_paused(unit: Unit, queue: str) -> bool:
    """Whether no claim takes runs of a queue: it is paused, or the store is frozen."""
    return not {queue, FROZEN}.isdisjoint(await paused(unit))
