"""Writing records of another store into an SQL store, as they are. Nobody else uses the store meanwhile."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from duly.backends.codec import Record as StoredRun
from duly.backends.codec import attempt_row, line_of, micros, rank_of
from duly.backends.sql import operating, planning, run_lines, values
from duly.backends.sql.moves import End, by_ids, count_ended, insert_ended, place_waiting
from duly.backends.sql.settling import ATTEMPTS, STATISTICS
from duly.backends.sql.unit import Insert, Unit, columns
from duly.errors import BackendError
from duly.model import JobStatistics, Run, State, to_micros
from duly.model.definitions import definitions_log
from duly.model.transfer import (
    Gone,
    JobEntry,
    KeyEntry,
    Loaded,
    LogEntry,
    QueueEntry,
    RunEntry,
    StatisticsEntry,
    TotalEntry,
    ValueEntry,
    kind_of,
)

_REPLACED = """
ON CONFLICT ({statistics_key}) DO UPDATE SET
    completed = excluded.completed, failed = excluded.failed, cancelled = excluded.cancelled, lost = excluded.lost,
    retried = excluded.retried, seconds = excluded.seconds, last_outcome = excluded.last_outcome,
    last_run_at = excluded.last_run_at
"""
_STATISTICS = Insert(STATISTICS.table, STATISTICS.columns, _REPLACED)
_TOTALS = Insert(
    "totals",
    columns(state="text", node="text", ended="bigint", kept="bigint"),
    "ON CONFLICT ({totals_key}) DO UPDATE SET ended = excluded.ended",
)
_KEYS = Insert(
    "unique_keys",
    columns(handler="text", key="bytea", id="text", created_at="bigint", until="bigint"),
    """
ON CONFLICT (handler, key) DO UPDATE
SET id = excluded.id, created_at = excluded.created_at, until = excluded.until
""",
)
_LOG = Insert(
    "log",
    columns(log="text", sequence="bigint", at="bigint", value="bytea"),
    "ON CONFLICT (log, sequence) DO UPDATE SET at = excluded.at, value = excluded.value",
)
_FORGET_JOB = tuple(f"DELETE FROM {{ns}}.{table} WHERE name = $1" for table in ("jobs", "plans"))
_FORGET_LOGS = "DELETE FROM {ns}.log WHERE log = ANY($1::text[])"
_FORGET_KEY = "DELETE FROM {ns}.unique_keys WHERE handler = $1 AND key = $2"
_FORGET_RUNS = tuple(
    f"DELETE FROM {{ns}}.{table} WHERE seq = ANY($1::bigint[])"
    for table in ("held", "claims", "ended", "attempts", "run_lines", "runs")
)


async def load(unit: Unit, records: Sequence[Loaded]) -> None:
    """Store these records; those that exist are replaced."""
    by_kind: defaultdict[str, list[Any]] = defaultdict(list)
    for record in records:
        by_kind[kind_of(record)].append(record)
    for gone in by_kind.pop("gone", ()):
        await _forget(unit, gone)
    for kind, some in by_kind.items():
        await _LOADS[kind](unit, some)


async def _forget(unit: Unit, gone: Gone) -> None:
    first, _, second = gone.key.partition("\0")
    match gone.kind:
        case "job":
            for sql in _FORGET_JOB:
                await unit.run(sql, gone.key)
            await values.delete_log(unit, definitions_log(gone.key))
        case "queue":
            await operating.resume(unit, gone.key)
        case "value":
            await values.put(unit, first, second, None, None)
        case "run":
            await _unload(unit, [gone.key])
        case "dedupe_key":
            await unit.run(_FORGET_KEY, first, unit.dialect.stored_key(second))
        case _:
            raise BackendError(f"a record of kind {gone.kind!r} cannot be removed")


async def _jobs(unit: Unit, entries: Sequence[JobEntry]) -> None:
    await planning.keep(unit, [entry.record for entry in entries], new=False)
    logs = {definitions_log(entry.record.name): entry.earlier for entry in entries}
    await unit.run(_FORGET_LOGS, list(logs))
    earlier = [LogEntry(log, each.sequence, each.at, each.value) for log, some in logs.items() for each in some]
    await _logs(unit, earlier)


async def _queues(unit: Unit, entries: Sequence[QueueEntry]) -> None:
    for entry in entries:
        await operating.pause(unit, entry.name)


async def _totals(unit: Unit, entries: Sequence[TotalEntry]) -> None:
    await unit.insert(_TOTALS, [(entry.state.value, "", entry.ended, 0) for entry in entries])


async def _statistics(unit: Unit, entries: Sequence[StatisticsEntry]) -> None:
    await unit.insert(_STATISTICS, [_counters(entry.job, entry.statistics) for entry in entries])


def _counters(job: str, each: JobStatistics) -> tuple[Any, ...]:
    last_run_at = 0 if each.last_run_at is None else to_micros(each.last_run_at)
    outcome = "" if each.last_outcome is None else each.last_outcome.value
    counted = (each.completed, each.failed, each.cancelled, each.lost, each.retried)
    return (job, "", *counted, each.seconds, last_run_at, outcome)


async def _values(unit: Unit, entries: Sequence[ValueEntry]) -> None:
    for entry in entries:
        await values.write(unit, entry.kind, entry.name, entry.value, entry.version)


async def _keys(unit: Unit, entries: Sequence[KeyEntry]) -> None:
    rows = [
        (
            entry.handler,
            unit.dialect.stored_key(entry.dedupe_key),
            entry.run_id,
            to_micros(entry.created_at),
            to_micros(entry.until),
        )
        for entry in entries
    ]
    await unit.insert(_KEYS, rows)


async def _logs(unit: Unit, entries: Sequence[LogEntry]) -> None:
    await unit.insert(_LOG, [(each.log, each.sequence, to_micros(each.at), each.value) for each in entries])


# --- runs


async def _runs(unit: Unit, entries: Sequence[RunEntry]) -> None:
    """Replace what exists, then write the record, where the run stands, its key, its attempts and its log."""
    await _unload(unit, [entry.run.id for entry in entries])
    seqs = await unit.dialect.add_records(unit, [_bare(entry.run) for entry in entries])
    stored = [StoredRun(seqs[each.run.id], line_of(each.run), rank_of(each.run), each.run) for each in entries]
    ended = [record for record in stored if record.run.final]
    await insert_ended(unit, [_end(record) for record in ended])
    await count_ended(unit, Counter(record.run.state for record in ended), kept_only=True)
    waiting = [record for record in stored if not record.run.final]
    await place_waiting(unit, waiting)
    keyed = [(record.seq, record.run) for record in waiting if record.run.dedupe_key is not None]
    if keyed:
        await unit.dialect.take_keys(unit, keyed, await unit.at(None))
    await unit.insert(
        ATTEMPTS, [attempt_row(seqs[each.run.id], attempt) for each in entries for attempt in each.attempts]
    )
    await run_lines.put_chunks(unit, [(seqs[each.run.id], chunk) for each in entries for chunk in each.lines])


def _bare(run: Run) -> Run:
    """The run without what its end has as well."""
    return replace(run, fence=0, node=None, reason=None, failures=0, losses=0) if run.final else run


def _end(record: StoredRun) -> End:
    run = record.run
    return End(record.seq, run, run.state, run.reason, micros(run.finished_at) or 0)


async def _unload(unit: Unit, run_ids: Iterable[str]) -> None:
    """Delete runs with everything about them, without a consequence for others."""
    found = list((await by_ids(unit, run_ids)).values())
    if not found:
        return
    seqs = [record.seq for record in found]
    await unit.run("{free_keys}", seqs)
    for sql in ("{leave_line}", "{leave_entrants}"):
        await unit.all(sql, seqs)
    for sql in _FORGET_RUNS:
        await unit.run(sql, seqs)
    kept: Mapping[State, int] = Counter(record.run.state for record in found if record.run.final)
    await count_ended(unit, {state: -number for state, number in kept.items()}, kept_only=True)


_LOADS: Mapping[str, Callable[[Unit, Any], Awaitable[None]]] = {
    "job": _jobs,
    "queue": _queues,
    "total": _totals,
    "statistics": _statistics,
    "value": _values,
    "run": _runs,
    "dedupe_key": _keys,
    "log": _logs,
}
