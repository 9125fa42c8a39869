"""Writing records of another store into an SQL store, as they are. Nobody else uses the store meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from duly.backends.codec import Record as StoredRun
from duly.backends.codec import attempt_row, line_of, micros, rank_of
from duly.backends.record_kinds import load_records, log_of, pair_of
from duly.backends.sql import operating, planning, run_lines, values
from duly.backends.sql.moves import End, by_ids, count_ended, insert_ended, place_waiting
from duly.backends.sql.settling import ATTEMPTS, STATISTICS
from duly.backends.sql.unit import Insert, Unit, columns
from duly.model import JobStatistics, Run, State, to_micros, transfer
from duly.model.definitions import definitions_log

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


async def load(unit: Unit, records: Sequence[transfer.Loaded]) -> None:
    """Store these records; those that exist are replaced."""
    await load_records(unit, records, _LOADS, _FORGETS)


async def _forget_job(unit: Unit, name: str) -> None:
    for sql in _FORGET_JOB:
        await unit.run(sql, name)
    await values.delete_log(unit, definitions_log(name))


async def _forget_queue(unit: Unit, name: str) -> None:
    await operating.resume(unit, name)


async def _forget_value(unit: Unit, key: str) -> None:
    await values.put(unit, *pair_of(key), None, None)


async def _forget_run(unit: Unit, run_id: str) -> None:
    await _unload(unit, [run_id])


async def _forget_key(unit: Unit, key: str) -> None:
    handler, dedupe_key = pair_of(key)
    await unit.run(_FORGET_KEY, handler, unit.dialect.stored_key(dedupe_key))


async def _jobs(unit: Unit, entries: Sequence[transfer.JobEntry]) -> None:
    await planning.keep(unit, [entry.record for entry in entries], new=False)
    await unit.run(_FORGET_LOGS, [definitions_log(entry.record.name) for entry in entries])
    await _logs(unit, [each for entry in entries for each in log_of(entry)])


async def _queues(unit: Unit, entries: Sequence[transfer.QueueEntry]) -> None:
    for entry in entries:
        await operating.pause(unit, entry.name)


async def _totals(unit: Unit, entries: Sequence[transfer.TotalEntry]) -> None:
    await unit.insert(_TOTALS, [(entry.state.value, "", entry.ended, 0) for entry in entries])


async def _statistics(unit: Unit, entries: Sequence[transfer.StatisticsEntry]) -> None:
    await unit.insert(_STATISTICS, [_counters(entry.job, entry.statistics) for entry in entries])


def _counters(job: str, each: JobStatistics) -> tuple[Any, ...]:
    last_run_at = 0 if each.last_run_at is None else to_micros(each.last_run_at)
    outcome = "" if each.last_outcome is None else each.last_outcome.value
    counted = (each.completed, each.failed, each.cancelled, each.lost, each.retried)
    return (job, "", *counted, each.seconds, last_run_at, outcome)


async def _values(unit: Unit, entries: Sequence[transfer.ValueEntry]) -> None:
    for entry in entries:
        await values.write(unit, entry.kind, entry.name, entry.value, entry.version)


async def _keys(unit: Unit, entries: Sequence[transfer.KeyEntry]) -> None:
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


async def _logs(unit: Unit, entries: Sequence[transfer.LogEntry]) -> None:
    await unit.insert(_LOG, [(each.log, each.sequence, to_micros(each.at), each.value) for each in entries])


# --- runs


async def _runs(unit: Unit, entries: Sequence[transfer.RunEntry]) -> None:
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
_FORGETS: Mapping[str, Callable[[Unit, str], Awaitable[None]]] = {
    "job": _forget_job,
    "queue": _forget_queue,
    "value": _forget_value,
    "run": _forget_run,
    "dedupe_key": _forget_key,
}
