"""Settling: the outcome of claimed runs, applied where the fence is still valid.

Nearly all settlements are first-time successes of runs that this session lent: each dialect has a fast path for those.
Everything else is read and decided about here, and then written in bulk as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from duly.backends.codec import Record, attempt_row, extra_of
from duly.backends.sql.moves import AGAIN, End, by_ids, count_ended, free_keys, insert_ended, release, wait_again
from duly.backends.sql.notify import WORK
from duly.backends.sql.unit import Column, Insert, Lent, Unit, Update, columns
from duly.model import Run, Settlement, State, to_micros
from duly.rules.misfires import start_by_after
from duly.rules.settling import as_stored
from duly.rules.statistics import Tally, tally

_GIVE_BACK = "DELETE FROM {ns}.claims WHERE seq = ANY($1::bigint[])"
_KEEP_RESULTS = Update("ended", (Column("seq"),), columns(result="bytea"), condition="result IS NULL", answers=False)
_READY_AT = Update("runs", (Column("seq"),), columns(ready_at="bigint"), answers=False)
ATTEMPTS = Insert(
    "attempts",
    columns(
        seq="bigint",
        number="int",
        fence="bigint",
        node="text",
        started_at="bigint",
        ended_at="bigint",
        outcome="text",
        failure="text",
    ),
    "ON CONFLICT (seq, fence) DO NOTHING",
)
ADD_TO_STATISTICS = """
ON CONFLICT ({statistics_key}) DO UPDATE SET
    completed = t.completed + excluded.completed,
    failed = t.failed + excluded.failed,
    cancelled = t.cancelled + excluded.cancelled,
    lost = t.lost + excluded.lost,
    retried = t.retried + excluded.retried,
    seconds = t.seconds + excluded.seconds,
    last_outcome = CASE WHEN excluded.last_run_at >= t.last_run_at THEN excluded.last_outcome ELSE t.last_outcome END,
    last_run_at = greatest(t.last_run_at, excluded.last_run_at)
"""
STATISTICS = Insert(
    "statistics",
    columns(
        job="text",
        node="text",
        completed="bigint",
        failed="bigint",
        cancelled="bigint",
        lost="bigint",
        retried="bigint",
        seconds="float8",
        last_run_at="bigint",
        last_outcome="text",
    ),
    ADD_TO_STATISTICS,
)


def first_success(settled: Settlement, lent: Mapping[int, Lent]) -> Lent | None:
    """The run that this settles, if it is a success at the first attempt of a run that this session lent."""
    known = lent.get(settled.fence)
    if (
        known is not None
        and known[0] == settled.run_id
        and settled.state is State.COMPLETED
        and settled.attempt is None
        and settled.reason is None
    ):
        return known
    return None


class _Applied(Struct, frozen=True):
    """One settlement with the run that it applies to: as it was, and as it is afterwards."""

    settled: Settlement
    before: Record
    after: Record


async def settle_each(unit: Unit, settlements: Sequence[Settlement]) -> list[Settlement]:
    """Apply settlements; returns those whose fence is no longer valid."""
    ids = [settled.run_id for settled in settlements]
    await unit.locks.groups_of(ids)
    await unit.locks.claims(ids)
    records = await by_ids(unit, ids)
    stale: list[Settlement] = []
    applied: list[_Applied] = []
    results: list[tuple[int, bytes]] = []
    for settled in settlements:
        record = records.get(settled.run_id)
        if record is None or record.run.fence != settled.fence:
            stale.append(settled)
        elif record.run.state is State.RUNNING:
            done = as_stored(record.run, settled)
            after = replace(record, run=_after(record.run, done))
            applied.append(_Applied(done, record, after))
            records[settled.run_id] = after
        elif record.run.state is State.COMPLETED and settled.result is not None:
            results.append((record.seq, settled.result))
    if applied:
        await _write(unit, applied)
    await unit.change(_KEEP_RESULTS, results)
    return stale


def _after(run: Run, settled: Settlement) -> Run:
    return replace(
        run,
        state=settled.state,
        ready_at=settled.ready_at,
        failures=settled.failures,
        losses=settled.losses,
        reason=settled.reason,
        result=settled.result,
        failure=settled.failure,
        member=run.member and settled.state is State.PENDING,
        expires_at=None,
        start_by=start_by_after(run, settled),
    )


async def _write(unit: Unit, applied: Sequence[_Applied]) -> None:
    """Move claimed runs to where their settlements say."""
    await unit.run(_GIVE_BACK, [each.before.seq for each in applied])
    for each in applied:
        unit.memory.lent.pop(each.settled.fence, None)
    attempts = [(each.before.seq, each.settled.attempt) for each in applied]
    await unit.insert(ATTEMPTS, [attempt_row(seq, attempt) for seq, attempt in attempts if attempt is not None])
    await _put_back(unit, [each for each in applied if each.settled.state is State.PENDING])
    await _end(unit, [each for each in applied if each.settled.state is not State.PENDING])
    await _count(unit, tally(each.settled for each in applied))


async def _put_back(unit: Unit, applied: Sequence[_Applied]) -> None:
    if applied:
        records = [each.after for each in applied]
        await unit.change(AGAIN, [(each.seq, to_micros(each.run.ready_at), extra_of(each.run)) for each in records])
        await wait_again(unit, records, [each.settled.hold for each in applied])
        unit.rings |= WORK


async def _end(unit: Unit, applied: Sequence[_Applied]) -> None:
    if not applied:
        return
    moved = [each.after for each in applied if each.after.run.ready_at != each.before.run.ready_at]
    await unit.change(_READY_AT, [(record.seq, to_micros(record.run.ready_at)) for record in moved])
    ends = [
        End(each.after.seq, each.after.run, each.settled.state, each.settled.reason, to_micros(each.settled.ended_at))
        for each in applied
    ]
    await insert_ended(unit, ends)
    await free_keys(unit, [each.after for each in applied])
    left = [each.before.run.group for each in applied if each.before.run.member]
    await release(unit, [group for group in left if group is not None])
    await count_ended(unit, Counter(each.settled.state for each in applied), applied[0].settled.node)


async def _count(unit: Unit, tallies: Mapping[tuple[str, str], Tally]) -> None:
    await unit.insert(STATISTICS, [_counters(*key, tallies[key]) for key in sorted(tallies)])


def _counters(job: str, node: str, entry: Tally) -> tuple[object, ...]:
    return (
        job,
        node,
        entry.completed,
        entry.failed,
        entry.cancelled,
        entry.lost,
        entry.retried,
        entry.seconds,
        0 if entry.last_run_at is None else to_micros(entry.last_run_at),
        "" if entry.last_outcome is None else entry.last_outcome.value,
    )
