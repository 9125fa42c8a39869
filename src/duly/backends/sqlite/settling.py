"""Settling: what becomes of claimed runs, applied where the fence still stands.

Nearly all settlements are first-time successes of runs that this session lent itself. Those are checked and moved by a
handful of statements for the whole batch, whatever its size; everything else is read and decided about one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from duly.backends.sqlite.codec import Record, attempt_row, extra_of
from duly.backends.sqlite.transitions import by_ids, count_ended, free_keys, insert_ended, release, wait_again
from duly.backends.sqlite.unit_of_work import WORK, Row, UnitOfWork, as_list
from duly.model import OutcomeKind, Settlement, State, to_micros
from duly.model.holds import hold_for_group
from duly.rules.misfires import start_by_after
from duly.rules.settling import as_stored
from duly.rules.statistics import Tally, tally

# How many of these runs are claimed, the sum of their fences above the first, and how many are to be cancelled, belong
# to a group while runs are held, or have a dedupe key. A run's fence only grows: the sum is as expected if and only if
# every fence is.
_CHECK = """
SELECT
    count(*), sum(fence - ?2), total(cancelling),
    CASE WHEN EXISTS (SELECT 1 FROM {ns}_held) THEN count("group") ELSE 0 END,
    total(keyed)
FROM {ns}_claims WHERE seq IN (SELECT value FROM json_each(?1))
"""

# Complete first-time successes: everything but the time and the result is in the claim.
_COMPLETE = """
INSERT INTO {ns}_ended (seq, state, finished_at, fence, node, request, started_at, progress)
SELECT c.seq, 'completed', v.column2, c.fence, c.node, c.request, c.started_at, c.progress
FROM (VALUES {rows:(?, ?)}) AS v CROSS JOIN {ns}_claims AS c ON c.seq = v.column1
"""
_COMPLETE_WITH_RESULT = """
INSERT INTO {ns}_ended (seq, state, finished_at, fence, node, request, started_at, progress, result)
SELECT c.seq, 'completed', v.column2, c.fence, c.node, c.request, c.started_at, c.progress, v.column3
FROM (VALUES {rows:(?, ?, ?)}) AS v CROSS JOIN {ns}_claims AS c ON c.seq = v.column1
"""
# The groups of these claims for which runs are held, and how many places become free. ?2 is how such a hold begins.
_AWAITED = """
SELECT "group", count(*) FROM {ns}_claims AS c
WHERE seq IN (SELECT value FROM json_each(?1)) AND "group" IS NOT NULL
    AND EXISTS (SELECT 1 FROM {ns}_held WHERE hold = ?2 || c."group")
GROUP BY "group"
"""
_FREE_KEYS = "DELETE FROM {ns}_keys WHERE seq IN (SELECT value FROM json_each(?))"
_GIVE_BACK = "DELETE FROM {ns}_claims WHERE seq IN (SELECT value FROM json_each(?))"

_KEEP_RESULT = "UPDATE {ns}_ended SET result = ? WHERE seq = ? AND result IS NULL"
_AGAIN = "UPDATE {ns}_runs SET ready_at = ?, extra = ? WHERE seq = ?"
_READY_AT = "UPDATE {ns}_runs SET ready_at = ? WHERE seq = ?"
_ATTEMPT = """
INSERT INTO {ns}_attempts (seq, number, fence, node, started_at, ended_at, outcome, failure)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (seq, fence) DO NOTHING
"""

# Add a batch's counters to those of its jobs; the latest run's start and outcome stay.
_COUNT = """
INSERT INTO {ns}_statistics (job, completed, failed, cancelled, lost, retried, seconds, last_run_at, last_outcome)
VALUES {rows:(?, ?, ?, ?, ?, ?, ?, ?, ?)}
ON CONFLICT (job) DO UPDATE SET
    completed = completed + excluded.completed,
    failed = failed + excluded.failed,
    cancelled = cancelled + excluded.cancelled,
    lost = lost + excluded.lost,
    retried = retried + excluded.retried,
    seconds = seconds + excluded.seconds,
    last_outcome = CASE
        WHEN excluded.last_run_at >= last_run_at THEN excluded.last_outcome ELSE last_outcome
    END,
    last_run_at = max(last_run_at, excluded.last_run_at)
"""
# The same for first-time successes.
_COUNT_COMPLETED = """
INSERT INTO {ns}_statistics (job, completed, failed, cancelled, lost, retried, seconds, last_run_at, last_outcome)
VALUES {rows:(?, ?, 0, 0, 0, 0, ?, ?, ?1)}
ON CONFLICT (job) DO UPDATE SET
    completed = completed + excluded.completed,
    seconds = seconds + excluded.seconds,
    last_outcome = CASE WHEN excluded.last_run_at >= last_run_at THEN ?1 ELSE last_outcome END,
    last_run_at = max(last_run_at, excluded.last_run_at)
"""


def settle(unit: UnitOfWork, settlements: Sequence[Settlement]) -> list[Settlement]:
    """Apply settlements; those whose fence no longer stands."""
    first, others = _sorted_out(settlements, unit.memory.lent)
    if first.seqs and not _complete(unit, first):
        return _settle_each(unit, settlements)
    return _settle_each(unit, others) if others else []


# --- many at once


_NONE = (0, 0.0, 0)


class _First(Struct):
    """First-time successes of runs that this session lent, as the statements want them."""

    seqs: list[int] = []
    fences: list[int] = []
    bare: list[Row] = []
    full: list[Row] = []
    sums: dict[str, tuple[int, float, int]] = {}  # by job: how many, their seconds, the latest start


def _sorted_out(
    settlements: Sequence[Settlement], lent: Mapping[int, tuple[str, int]]
) -> tuple[_First, list[Settlement]]:
    """Such successes, and all others. Two settlements of one claim are left to be looked at one by one."""
    first = _First()
    others: list[Settlement] = []
    nobody = ("", 0)
    start_before, started_at = None, 0
    for settled in settlements:
        run_id, seq = lent.get(settled.fence, nobody)
        if (
            run_id != settled.run_id
            or settled.state is not State.COMPLETED
            or settled.attempt is not None
            or settled.reason is not None
        ):
            others.append(settled)
            continue
        if settled.started_at is not start_before:  # runs that were lent together share it
            start_before, started_at = settled.started_at, to_micros(settled.started_at)
        ended_at = to_micros(settled.ended_at)
        first.seqs.append(seq)
        first.fences.append(settled.fence)
        if settled.result is None:
            first.bare.append((seq, ended_at))
        else:
            first.full.append((seq, ended_at, bytearray(settled.result)))
        number, seconds, latest = first.sums.get(settled.job, _NONE)
        first.sums[settled.job] = (number + 1, seconds + (ended_at - started_at) / 1e6, max(latest, started_at))
    return first, others


def _complete(unit: UnitOfWork, first: _First) -> bool:
    """Complete these runs if all of their claims stand; whether they did."""
    seqs = as_list(first.seqs)
    lowest = min(first.fences)
    row = unit.one(_CHECK, seqs, lowest)
    assert row is not None
    claimed, above, cancelling, grouped, keyed = row
    if claimed != len(first.seqs) or above != sum(first.fences) - lowest * claimed or cancelling:
        return False
    freed: dict[str, int] = dict(unit.all(_AWAITED, seqs, hold_for_group(""))) if grouped else {}
    if keyed:
        unit.run(_FREE_KEYS, seqs)
    unit.insert(_COMPLETE, first.bare)
    unit.insert(_COMPLETE_WITH_RESULT, first.full)
    unit.run(_GIVE_BACK, seqs)
    for fence in first.fences:
        del unit.memory.lent[fence]
    release(unit, freed)
    count_ended(unit, {State.COMPLETED: claimed})
    sums = [(job, *parts) for job, parts in first.sums.items()]
    unit.insert(_COUNT_COMPLETED, sums, OutcomeKind.SUCCEEDED.value)
    return True


# --- one by one


def _settle_each(unit: UnitOfWork, settlements: Sequence[Settlement]) -> list[Settlement]:
    records = by_ids(unit, [settled.run_id for settled in settlements])
    stale: list[Settlement] = []
    applied: list[Settlement] = []
    for settled in settlements:
        record = records.get(settled.run_id)
        if record is None or record.run.fence != settled.fence:
            stale.append(settled)
        elif record.run.state is State.RUNNING:
            done = as_stored(record.run, settled)
            records[settled.run_id] = _apply(unit, record, done)
            applied.append(done)
        elif record.run.state is State.COMPLETED and settled.result is not None:
            unit.run(_KEEP_RESULT, settled.result, record.seq)
    count_ended(unit, Counter(done.state for done in applied if done.state is not State.PENDING))
    _count(unit, tally(applied))
    return stale


def _apply(unit: UnitOfWork, record: Record, settled: Settlement) -> Record:
    """Move one claimed run to where its settlement says; the record as it is afterwards."""
    ended = settled.state is not State.PENDING
    run = replace(
        record.run,
        state=settled.state,
        ready_at=settled.ready_at,
        failures=settled.failures,
        losses=settled.losses,
        reason=settled.reason,
        result=settled.result,
        failure=settled.failure,
        member=record.run.member and not ended,
        expires_at=None,
        start_by=start_by_after(record.run, settled),
    )
    after = replace(record, run=run)
    unit.run(_GIVE_BACK, as_list([record.seq]))
    unit.memory.lent.pop(settled.fence, None)
    if settled.attempt is not None:
        unit.run(_ATTEMPT, *attempt_row(record.seq, settled.attempt))
    if ended:
        if run.ready_at != record.run.ready_at:
            unit.run(_READY_AT, to_micros(run.ready_at), record.seq)
        insert_ended(unit, record.seq, run, settled.state, settled.reason, to_micros(settled.ended_at))
        if run.dedupe_key is not None:
            free_keys(unit, [record.seq])
        if record.run.member and run.group is not None:
            release(unit, {run.group: 1})
    else:
        unit.run(_AGAIN, to_micros(run.ready_at), extra_of(run), record.seq)
        wait_again(unit, after, settled.hold)
        unit.rings |= WORK
    return after


# --- counting


def _count(unit: UnitOfWork, tallies: Mapping[tuple[str, str], Tally]) -> None:
    unit.insert(_COUNT, [_counters(job, entry) for (job, _), entry in tallies.items()])


def _counters(job: str, entry: Tally) -> Row:
    assert entry.last_run_at is not None
    return (
        job,
        entry.completed,
        entry.failed,
        entry.cancelled,
        entry.lost,
        entry.retried,
        entry.seconds,
        to_micros(entry.last_run_at),
        "" if entry.last_outcome is None else entry.last_outcome.value,
    )
