"""The fast path of settling, and what keeps claims alive: renewals, the amnesty after an outage, taking over.

Nearly all settlements are first-time successes of runs that this session lent. Those are checked and moved by a handful
of statements for the whole batch, whatever its size: 8.5 µs of CPU time per run. `sql.settling`, which reads each run
and writes its history, takes 32 µs (10,000 runs, batches of 100).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from duly.backends.codec import to_json
from duly.backends.sql.moves import by_seqs, count_ended, release
from duly.backends.sql.settling import first_success, settle_each
from duly.backends.sql.unit import Row
from duly.backends.sqlite.unit import SqliteUnit, as_list
from duly.model import (
    Beat,
    BeatReply,
    Claim,
    EndedProcess,
    OutcomeKind,
    Renewal,
    Settlement,
    State,
    from_micros,
    to_micros,
)
from duly.model.holds import hold_for_group

# Complete first-time successes whose claims stand: everything but the time and the result is in the claim. The numbers
# come in order, so that the rows are appended.
_COMPLETE = """
INSERT INTO {ns}.ended (seq, state, finished_at, fence, node, request, started_at, progress)
SELECT c.seq, 'completed', v.column3, c.fence, c.node, c.request, c.started_at, c.progress
FROM (VALUES {rows:(?, ?, ?)}) AS v
CROSS JOIN {ns}.claims AS c ON c.seq = v.column1 AND c.fence = v.column2 AND c.cancelling = 0
"""
_COMPLETE_WITH_RESULT = """
INSERT INTO {ns}.ended (seq, state, finished_at, fence, node, request, started_at, progress, result)
SELECT c.seq, 'completed', v.column3, c.fence, c.node, c.request, c.started_at, c.progress, v.column4
FROM (VALUES {rows:(?, ?, ?, ?)}) AS v
CROSS JOIN {ns}.claims AS c ON c.seq = v.column1 AND c.fence = v.column2 AND c.cancelling = 0
"""
# Undo that: if one claim is not valid, the whole batch is treated one by one. A run that had ended before has no claim,
# so it stays.
_NOT_COMPLETE = """
DELETE FROM {ns}.ended WHERE seq IN (
    SELECT c.seq FROM json_each(?) AS wanted CROSS JOIN {ns}.claims AS c ON c.seq = wanted.value
)
"""
# The groups of these claims for which runs are held, once for each place that becomes free. ?2 begins such a hold.
_AWAITED = """
SELECT "group" FROM {ns}.claims AS c
WHERE seq IN (SELECT value FROM json_each(?1)) AND "group" IS NOT NULL
    AND EXISTS (SELECT 1 FROM {ns}.held WHERE hold = ?2 || c."group")
"""
_GIVE_BACK = "DELETE FROM {ns}.claims WHERE seq IN (SELECT value FROM json_each(?))"

# Add a batch's counters to those of its jobs; the latest run's start and outcome stay.
_COUNT_COMPLETED = """
INSERT INTO {ns}.statistics (job, completed, failed, cancelled, lost, retried, seconds, last_run_at, last_outcome)
VALUES {rows:(?, ?, 0, 0, 0, 0, ?, ?, ?1)}
ON CONFLICT (job) DO UPDATE SET
    completed = completed + excluded.completed,
    seconds = seconds + excluded.seconds,
    last_outcome = CASE WHEN excluded.last_run_at >= last_run_at THEN ?1 ELSE last_outcome END,
    last_run_at = max(last_run_at, excluded.last_run_at)
"""

BEAT = "beat"
SPARED_UNTIL = "spared_until"

_STANDING = """
SELECT r.id, c.seq, c.fence, c.cancelling
FROM json_each(?) AS wanted
CROSS JOIN {ns}.runs AS r ON r.id = wanted.value
CROSS JOIN {ns}.claims AS c ON c.seq = r.seq
"""
_EXTEND = "UPDATE {ns}.claims SET expires_at = ? WHERE seq IN (SELECT value FROM json_each(?))"
_PROGRESS = "UPDATE {ns}.claims SET progress = ? WHERE seq = ?"
_EXPIRED = "SELECT seq, expires_at FROM {ns}.claims WHERE expires_at <= ? ORDER BY expires_at, seq LIMIT ?"
# Clear the request: a repeat of it must not return the new fence.
_TAKE_OVER = "UPDATE {ns}.claims SET fence = ?, expires_at = ?, request = 0 WHERE seq = ?"
_OF_PROCESS = """
SELECT seq, expires_at FROM {ns}.claims WHERE node = ? AND request BETWEEN ? AND ? ORDER BY expires_at, seq LIMIT ?
"""
_BEGINNING = "SELECT applied_at FROM {ns}.schema WHERE version = 1"


# --- settling


async def settle(unit: SqliteUnit, settlements: Sequence[Settlement]) -> list[Settlement]:
    """Apply settlements; returns those whose fence is no longer valid."""
    first, others = _sorted_out(unit, settlements)
    if first.seqs and not await _complete(unit, first):
        return await settle_each(unit, settlements)
    return await settle_each(unit, others) if others else []


class _First(Struct):
    """First-time successes of runs that this session lent, as the statements want them."""

    seqs: list[int] = []
    fences: list[int] = []
    bare: list[Row] = []
    full: list[Row] = []
    sums: dict[str, list[Any]] = {}  # by job: how many, their seconds, the latest start
    bound: bool = False  # whether one may have a dedupe key, or a place in a group, to give back


def _sorted_out(unit: SqliteUnit, settlements: Sequence[Settlement]) -> tuple[_First, list[Settlement]]:
    """Such successes, and all others. Two settlements of one claim are left to be treated one by one."""
    first = _First()
    others: list[Settlement] = []
    lent = unit.memory.lent
    start_before = job_before = None
    started_at = 0
    sums: list[Any] = []
    for settled in settlements:
        known = first_success(settled, lent)
        if known is None:
            others.append(settled)
            continue
        _, seq, bound = known
        fence = settled.fence
        first.bound |= bound
        if settled.started_at is not start_before:  # runs that were lent together share it
            start_before, started_at = settled.started_at, to_micros(settled.started_at)
        ended_at = to_micros(settled.ended_at)
        first.seqs.append(seq)
        first.fences.append(fence)
        if settled.result is None:
            first.bare.append((seq, fence, ended_at))
        else:
            first.full.append((seq, fence, ended_at, bytearray(settled.result)))
        if settled.job != job_before:
            job_before = settled.job
            sums = first.sums.setdefault(job_before, [0, 0.0, 0])
        sums[0] += 1
        sums[1] += (ended_at - started_at) / 1e6
        sums[2] = max(sums[2], started_at)
    return first, others


async def _complete(unit: SqliteUnit, first: _First) -> bool:
    """Complete these runs if all of their claims are valid; returns whether they are."""
    if len(set(first.fences)) != len(first.fences):
        return False
    first.bare.sort()
    first.full.sort()
    completed = unit.insert_many(_COMPLETE, first.bare) + unit.insert_many(_COMPLETE_WITH_RESULT, first.full)
    if completed != len(first.seqs):
        unit.execute(_NOT_COMPLETE, as_list(first.seqs))
        return False
    seqs = as_list(first.seqs)
    if first.bound:
        await _free(unit, seqs)
    unit.execute(_GIVE_BACK, seqs)
    for fence in first.fences:
        del unit.memory.lent[fence]
    await count_ended(unit, {State.COMPLETED: completed})
    sums = [(job, *parts) for job, parts in first.sums.items()]
    unit.insert_many(_COUNT_COMPLETED, sums, OutcomeKind.SUCCEEDED.value)
    return True


async def _free(unit: SqliteUnit, seqs: str) -> None:
    """Free the dedupe keys of these runs, and give their places in groups to runs held for them."""
    unit.execute("{free_keys}", seqs)
    await release(unit, [group for (group,) in unit.select(_AWAITED, seqs, hold_for_group(""))])


# --- keeping claims alive


def renew(unit: SqliteUnit, beats: Sequence[Beat], silence: int | None, now: int, expires_at: int) -> Renewal:
    """Extend claims that are still owned; returns the lost ones and those to cancel."""
    last = _last_beat(unit)
    silent = silence is not None and now - last > silence
    if silent or (now < last and (unit.meta(SPARED_UNTIL) or 0) > expires_at):
        unit.set_meta(SPARED_UNTIL, expires_at)
    silent_since = from_micros(last) if silent else None
    unit.set_meta(BEAT, now)
    if not beats:
        return Renewal(silent_since=silent_since)
    rows = unit.select(_STANDING, as_list(beat.run_id for beat in beats))
    standing = {(run_id, fence): (seq, cancelling) for run_id, seq, fence, cancelling in rows}
    kept = {(beat.run_id, beat.fence): beat for beat in beats if (beat.run_id, beat.fence) in standing}
    unit.execute(_EXTEND, expires_at, as_list(standing[claim][0] for claim in kept))
    progress = [(beat.progress, standing[claim][0]) for claim, beat in kept.items() if beat.progress is not None]
    unit.execute_many(_PROGRESS, [(to_json(each), seq) for each, seq in progress])
    return Renewal(tuple(_reply(standing.get((beat.run_id, beat.fence))) for beat in beats), silent_since)


def _reply(standing: tuple[int, bool] | None) -> BeatReply:
    if standing is None:
        return BeatReply.LOST
    return BeatReply.CANCEL if standing[1] else BeatReply.KEPT


async def reap(unit: SqliteUnit, limit: int, silence: int | None, now: int, expires_at: int) -> list[Claim]:
    """Take over expired claims under new fences, the longest expired first."""
    expired = unit.select(_EXPIRED, now, limit)
    silent = silence is not None and now - _last_beat(unit) > silence
    if not expired or silent or now < (unit.meta(SPARED_UNTIL) or 0):
        return []
    return await _taken_over(unit, expired, expires_at)


async def take_over(unit: SqliteUnit, process: EndedProcess, limit: int, expires_at: int) -> list[Claim]:
    """Take over the claims of a process that has ended under new fences."""
    found = unit.select(_OF_PROCESS, process.node, process.first, process.last, limit)
    return await _taken_over(unit, found, expires_at) if found else []


async def _taken_over(unit: SqliteUnit, claims: Sequence[Row], expires_at: int) -> list[Claim]:
    """Put these claims (number, expiry) under new fences."""
    first = unit.fences(len(claims))
    unit.execute_many(_TAKE_OVER, [(fresh, expires_at, seq) for fresh, (seq, _) in enumerate(claims, first)])
    before: dict[int, int] = dict(claims)
    until = from_micros(expires_at)
    return [
        Claim(replace(record.run, expires_at=from_micros(before[record.seq])), record.run.fence, until)
        for record in await by_seqs(unit, list(before))
    ]


def _last_beat(unit: SqliteUnit) -> int:
    """The time of the last heartbeat; the creation of the store if there was none."""
    beat = unit.meta(BEAT)
    if beat is not None:
        return beat
    row = unit.select_one(_BEGINNING)
    assert row is not None
    return int(row[0])
