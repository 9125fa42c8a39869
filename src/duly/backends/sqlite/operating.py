"""What operators do: cancel, redrive, purge, pause and resume queues."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from duly.backends.sqlite.codec import Record, extra_of
from duly.backends.sqlite.transitions import by_ids, count_ended, end, wait_again
from duly.backends.sqlite.unit_of_work import WORK, UnitOfWork
from duly.model import CancelReply, RedriveReply, State, from_micros
from duly.rules.lifecycle import REDRIVABLE

_ASK_TO_CANCEL = "UPDATE {ns}_claims SET cancelling = 1, reason = ? WHERE seq = ?"

_TWIN = "SELECT 1 FROM {ns}_keys WHERE handler = ? AND key = ?"
_UNIQUE_TWIN = "SELECT 1 FROM {ns}_unique WHERE handler = ? AND key = ? AND until > ? AND id <> ?"
_KEEP_KEY = "INSERT INTO {ns}_keys (handler, key, seq) VALUES (?, ?, ?)"
_BEGIN_AGAIN = "UPDATE {ns}_runs SET ready_at = ?, extra = ? WHERE seq = ?"
_NO_LONGER_ENDED = "DELETE FROM {ns}_ended WHERE seq = ?"

_KEPT = "SELECT kept FROM {ns}_totals WHERE state = ?"
_OLDER = "SELECT count(*) FROM (SELECT 1 FROM {ns}_ended WHERE state = ? AND finished_at < ? LIMIT ?)"
# The runs that ended in a state first: their attempts, their records, and at last their ends, which find the others.
_PURGE_ATTEMPTS = """
DELETE FROM {ns}_attempts
WHERE seq IN (SELECT seq FROM {ns}_ended WHERE state = ? ORDER BY finished_at, seq LIMIT ?)
"""
_PURGE_RUNS = """
DELETE FROM {ns}_runs
WHERE seq IN (SELECT seq FROM {ns}_ended WHERE state = ? ORDER BY finished_at, seq LIMIT ?)
"""
_PURGE_ENDED = """
DELETE FROM {ns}_ended
WHERE seq IN (SELECT seq FROM {ns}_ended WHERE state = ? ORDER BY finished_at, seq LIMIT ?)
"""

_EXPIRE = """
DELETE FROM {ns}_unique WHERE (handler, key) IN (
    SELECT handler, key FROM {ns}_unique WHERE until <= ? ORDER BY until LIMIT ?
)
"""

_PAUSE = """
INSERT INTO {ns}_queues (name, paused) VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET paused = 1 WHERE paused = 0
"""
_PAUSED = "SELECT name FROM {ns}_queues WHERE paused = 1"
_RESUME = "UPDATE {ns}_queues SET paused = 0 WHERE name = ? AND paused = 1"


def cancel(unit: UnitOfWork, run_ids: Sequence[str], reason: str | None, now: int) -> list[CancelReply]:
    """Cancel waiting runs, ask the workers of running ones."""
    unit.rings |= WORK
    return [_cancel(unit, by_ids(unit, [run_id]).get(run_id), reason, now) for run_id in run_ids]


def _cancel(unit: UnitOfWork, record: Record | None, reason: str | None, now: int) -> CancelReply:
    if record is None:
        return CancelReply.UNKNOWN
    if record.run.final:
        return CancelReply.TOO_LATE
    if record.run.state is State.RUNNING:
        unit.run(_ASK_TO_CANCEL, reason, record.seq)
        return CancelReply.REQUESTED
    end(unit, record, State.CANCELLED, reason, now)
    return CancelReply.DONE


def redrive(unit: UnitOfWork, run_ids: Sequence[str], now: int) -> list[RedriveReply]:
    """Run failed, lost or cancelled runs again."""
    unit.rings |= WORK
    return [_redrive(unit, by_ids(unit, [run_id]).get(run_id), now) for run_id in run_ids]


def _redrive(unit: UnitOfWork, record: Record | None, now: int) -> RedriveReply:
    if record is None:
        return RedriveReply.UNKNOWN
    run = record.run
    if run.state not in REDRIVABLE:
        return RedriveReply.NOT_ENDED
    if run.dedupe_key is not None:
        if unit.one(_TWIN, run.handler, run.dedupe_key) is not None:
            return RedriveReply.DUPLICATE
        if unit.one(_UNIQUE_TWIN, run.handler, run.dedupe_key, now, run.id) is not None:
            return RedriveReply.DUPLICATE
        unit.run(_KEEP_KEY, run.handler, run.dedupe_key, record.seq)
    again = replace(run, ready_at=from_micros(now), failures=0, losses=0, cancelling=False, reason=None, start_by=None)
    unit.run(_NO_LONGER_ENDED, record.seq)
    unit.run(_BEGIN_AGAIN, now, extra_of(again), record.seq)
    wait_again(unit, replace(record, run=again))
    count_ended(unit, {run.state: -1}, kept_only=True)
    return RedriveReply.DONE


def purge(unit: UnitOfWork, state: State, before: int | None, keep: int | None, limit: int) -> int:
    """Delete runs of a final state, the longest ended first; how many."""
    number = min(limit, max(_older(unit, state, before, limit), _beyond(unit, state, keep)))
    if number <= 0:
        return 0
    unit.run(_PURGE_ATTEMPTS, state.value, number)
    unit.run(_PURGE_RUNS, state.value, number)
    purged = unit.run(_PURGE_ENDED, state.value, number)
    count_ended(unit, {state: -purged}, kept_only=True)
    return purged


def _older(unit: UnitOfWork, state: State, before: int | None, limit: int) -> int:
    row = None if before is None else unit.one(_OLDER, state.value, before, limit)
    return 0 if row is None else int(row[0])


def _beyond(unit: UnitOfWork, state: State, keep: int | None) -> int:
    row = None if keep is None else unit.one(_KEPT, state.value)
    return 0 if row is None or keep is None else int(row[0]) - keep


def expire(unit: UnitOfWork, limit: int, now: int) -> int:
    """Delete dedupe keys whose time has passed; how many."""
    return unit.run(_EXPIRE, now, limit)


def pause(unit: UnitOfWork, queue: str) -> bool:
    """Stop claims from a queue."""
    return unit.run(_PAUSE, queue) > 0


def resume(unit: UnitOfWork, queue: str) -> bool:
    """Let claims from a queue go on."""
    resumed = unit.run(_RESUME, queue) > 0
    unit.rings |= WORK if resumed else 0
    return resumed


def paused(unit: UnitOfWork) -> set[str]:
    """The queues that are paused."""
    return {name for (name,) in unit.all(_PAUSED)}
