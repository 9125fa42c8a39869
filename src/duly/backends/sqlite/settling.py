"""Settling: what becomes of claimed runs, applied where the fence still stands.

Nearly all settlements are first-time successes of runs that this session lent itself. Those are checked and moved by a
handful of statements for the whole batch, whatever its size; everything else is read and decided about one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from duly.backends.sqlite.codec import Record, attempt_row, extra_of
from duly.backends.sqlite.moves import by_ids, count_ended, free_keys, insert_ended, release, wait
from duly.backends.sqlite.unit import WORK, Row, Unit, as_list
from duly.model import OutcomeKind, Settlement, State, to_micros
from duly.rules.settling import as_stored
from duly.rules.statistics import Tally, tally

# How many of these claims stand; how many are to be cancelled, belong to a group, or have a dedupe key.
_CHECK = """
SELECT count(*), total(cancelling), count("group"), total(keyed)
FROM {ns}_claims WHERE fence IN (SELECT value FROM json_each(?))
"""

# Complete first-time successes: everything but the time and the result is in the claim.
_COMPLETE = """
INSERT INTO {ns}_ended (seq, state, finished_at, fence, node, request, started_at, progress)
SELECT c.seq, 'completed', v.column2, c.fence, c.node, c.request, c.started_at, c.progress
FROM (VALUES {rows:(?, ?)}) AS v CROSS JOIN {ns}_claims AS c ON c.fence = v.column1
"""
_COMPLETE_WITH_RESULT = """
INSERT INTO {ns}_ended (seq, state, finished_at, fence, node, request, started_at, progress, result)
SELECT c.seq, 'completed', v.column2, c.fence, c.node, c.request, c.started_at, c.progress, v.column3
FROM (VALUES {rows:(?, ?, ?)}) AS v CROSS JOIN {ns}_claims AS c ON c.fence = v.column1
"""
_GROUPS = """
SELECT "group", count(*) FROM {ns}_claims
WHERE fence IN (SELECT value FROM json_each(?)) AND "group" IS NOT NULL
GROUP BY "group"
"""
_KEYED = "SELECT seq FROM {ns}_claims WHERE fence IN (SELECT value FROM json_each(?)) AND keyed = 1"
_GIVE_BACK = "DELETE FROM {ns}_claims WHERE fence IN (SELECT value FROM json_each(?))"

_KEEP_RESULT = "UPDATE {ns}_ended SET result = ? WHERE seq = ? AND result IS NULL"
_AGAIN = "UPDATE {ns}_runs SET ready_at = ?, extra = ? WHERE seq = ?"
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


def settle(unit: Unit, settlements: Sequence[Settlement]) -> list[str]:
    """Apply settlements; the ids of those whose fence no longer stands, in order."""
    if not settlements:
        return []
    successes = [settled for settled in settlements if _is_first_success(settled)]
    if not successes or not _complete(unit, successes):
        return _settle_each(unit, settlements)
    if len(successes) == len(settlements):
        return []
    return _settle_each(unit, [settled for settled in settlements if not _is_first_success(settled)])


def _is_first_success(settled: Settlement) -> bool:
    return settled.state is State.COMPLETED and settled.attempt is None and settled.reason is None


# --- many at once

def _complete(unit: Unit, successes: Sequence[Settlement]) -> bool:
    """Complete these runs if all of them are this session's and stand; whether they did."""
    lent = unit.memory.lent
    if any(lent.get(settled.fence) != settled.run_id for settled in successes):
        return False
    fences = as_list(settled.fence for settled in successes)
    row = unit.one(_CHECK, fences)
    assert row is not None
    standing, cancelling, grouped, keyed = row
    if standing != len(successes) or cancelling:
        return False
    freed = dict(unit.all(_GROUPS, fences)) if grouped else {}
    if keyed:
        free_keys(unit, [seq for (seq,) in unit.all(_KEYED, fences)])
    _write_completed(unit, successes)
    unit.run(_GIVE_BACK, fences)
    for settled in successes:
        del lent[settled.fence]
    release(unit, freed)
    count_ended(unit, {State.COMPLETED: standing})
    _count(unit, tally(successes))
    return True


def _write_completed(unit: Unit, successes: Sequence[Settlement]) -> None:
    bare: list[Row] = []
    full: list[Row] = []
    for settled in successes:
        if settled.result is None:
            bare.append((settled.fence, to_micros(settled.ended_at)))
        else:
            full.append((settled.fence, to_micros(settled.ended_at), bytearray(settled.result)))
    unit.insert(_COMPLETE, bare)
    unit.insert(_COMPLETE_WITH_RESULT, full)


# --- one by one

def _settle_each(unit: Unit, settlements: Sequence[Settlement]) -> list[str]:
    records = by_ids(unit, [settled.run_id for settled in settlements])
    stale: list[str] = []
    applied: list[Settlement] = []
    for settled in settlements:
        record = records.get(settled.run_id)
        if record is None or record.run.fence != settled.fence:
            stale.append(settled.run_id)
        elif record.run.state is State.RUNNING:
            done = as_stored(record.run, settled)
            records[settled.run_id] = _apply(unit, record, done)
            applied.append(done)
        elif record.run.state is State.COMPLETED and settled.result is not None:
            unit.run(_KEEP_RESULT, settled.result, record.seq)
    count_ended(unit, Counter(done.state for done in applied if done.state is not State.PENDING))
    _count(unit, tally(applied))
    return stale


def _apply(unit: Unit, record: Record, settled: Settlement) -> Record:
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
    )
    after = replace(record, run=run)
    unit.run(_GIVE_BACK, as_list([settled.fence]))
    unit.memory.lent.pop(settled.fence, None)
    if settled.attempt is not None:
        unit.run(_ATTEMPT, *attempt_row(record.seq, settled.attempt))
    if ended:
        insert_ended(unit, record.seq, run, settled.state, settled.reason, to_micros(settled.ended_at))
        if run.dedupe_key is not None:
            free_keys(unit, [record.seq])
        if record.run.member and run.group is not None:
            release(unit, {run.group: 1})
    else:
        unit.run(_AGAIN, to_micros(run.ready_at), extra_of(run), record.seq)
        wait(unit, after)
        unit.rings |= WORK
    return after


# --- counting

def _count(unit: Unit, tallies: Mapping[tuple[str, str], Tally]) -> None:
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
        "" if entry.last_outcome is None else OutcomeKind(entry.last_outcome).value,
    )
