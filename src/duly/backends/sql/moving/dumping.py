"""Reading everything that an SQL store contains, in one transaction that sees one moment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from functools import partial
from typing import Any, Protocol, TypeVar

from duly.backends.codec import micros, read_attempt
from duly.backends.record_kinds import Dump, dump_page
from duly.backends.sql import listing, planning, run_lines
from duly.backends.sql.moves import read_records
from duly.backends.sql.operating import paused
from duly.backends.sql.unit import Task, Unit
from duly.model import FINAL, Attempt, Entry, State, from_micros, transfer
from duly.model.definitions import DEFINITIONS, definitions_log
from duly.ports import FROZEN

T = TypeVar("T")

_ENDED = "SELECT state, count(*) FROM {ns}.ended GROUP BY state"
_TOTALS = "SELECT state, sum(ended)::bigint FROM {ns}.totals GROUP BY state ORDER BY state"
_VALUES = """
SELECT kind, key, value, version FROM {ns}.items WHERE (kind, key) > ($1, $2) ORDER BY kind, key LIMIT $3
"""
_RUNS = "SELECT {run} FROM {ns}.runs AS r {standing} WHERE r.seq > $1 ORDER BY r.seq LIMIT $2"
_RUNS_OF = "SELECT {run} FROM {ns}.runs AS r {standing} WHERE r.seq = ANY($1::bigint[]) ORDER BY r.seq"
# The runs that a copy must look at again: those that have not ended, and those that ended since $1.
_CHANGED = """
SELECT w.seq FROM {all_waiting}
UNION ALL
SELECT seq FROM {ns}.claims
UNION ALL
SELECT seq FROM {ns}.ended WHERE finished_at >= $1
"""
_ATTEMPTS = """
SELECT seq, number, fence, node, started_at, ended_at, outcome, failure FROM {ns}.attempts
WHERE seq = ANY($1::bigint[]) ORDER BY seq, fence
"""
_KEYS = """
SELECT handler, key, id, created_at, until FROM {ns}.unique_keys
WHERE (handler, key) > ($1, $2) ORDER BY handler, key LIMIT $3
"""
_LOGS = f"""
SELECT log, sequence, at, value FROM {{ns}}.log
WHERE (log, sequence) > ($1, $2) AND at >= $4 AND substr(log, 1, {len(DEFINITIONS)}) <> '{DEFINITIONS}'
ORDER BY log, sequence LIMIT $3
"""
_ENTRIES = """
SELECT log, sequence, at, value FROM {ns}.log WHERE log = ANY($1::text[]) ORDER BY log, sequence
"""
_MOST_RUNS = 250  # in a page: each can have a log of 64 KiB, or more


class Read(Protocol):
    """Does a task in the transaction of a snapshot."""

    def __call__(self, task: Task[T], /) -> Awaitable[T]: ...


class SqlSnapshot:
    """One transaction, for as long as it is open."""

    exact = True

    def __init__(self, read: Read, at: datetime, fence: int, ended: dict[State, int], since: datetime | None) -> None:
        self.at = at
        self.fence = fence
        self.ended = ended
        self._read = read
        self._since = since
        self._changed: list[int] | None = None

    @classmethod
    async def of(cls, read: Read, since: datetime | None) -> SqlSnapshot:
        """The snapshot of a transaction that has begun."""

        async def look(unit: Unit) -> tuple[int, int, dict[State, int]]:
            ended = {State(row[0]): int(row[1]) for row in await unit.all(_ENDED)}
            return await unit.at(None), await unit.dialect.fence(unit), ended

        at, fence, ended = await read(look)
        return cls(read, from_micros(at), fence, {state: ended.get(state, 0) for state in FINAL}, since)

    async def dump(self, cursor: str | None, limit: int) -> transfer.DumpPage:
        changed = self._since is not None
        dumps: dict[str, Dump] = {
            "job": self._in(_jobs),
            "queue": self._whole(_queues),
            "total": self._whole(_totals),
            "statistics": self._whole(_statistics),
            "value": self._in(_values),
            "run": self._runs_changed if changed else self._in(_runs),
            "dedupe_key": self._in(_keys),
            "log": self._in(partial(_logs, since=micros(self._since) or 0)),
        }
        return await dump_page(dumps, cursor, limit)

    def _in(self, dump: Callable[[Unit, Any, int], Coroutine[Any, Any, tuple[list[Any], Any]]]) -> Dump:
        async def some(place: Any, limit: int) -> tuple[list[Any], Any]:
            async def task(unit: Unit) -> tuple[list[Any], Any]:
                return await dump(unit, place, limit)

            return await self._read(task)

        return some

    def _whole(self, dump: Callable[[Unit], Coroutine[Any, Any, list[Any]]]) -> Dump:
        """The dump of a kind that has few records: all of them at once."""

        async def all_of_them(_: Any, __: int) -> tuple[list[Any], Any]:
            return await self._read(dump), None

        return all_of_them

    async def _runs_changed(self, place: int | None, limit: int) -> tuple[list[transfer.RunEntry], int | None]:
        """Their numbers are read once: a scan of all that waits for every page would take too long."""
        if self._changed is None:
            since = micros(self._since)

            async def search(unit: Unit) -> list[int]:
                return sorted({row[0] for row in await unit.all(_CHANGED, since)})

            self._changed = await self._read(search)
        start, limit = place or 0, min(limit, _MOST_RUNS)
        some = self._changed[start : start + limit]

        async def task(unit: Unit) -> list[transfer.RunEntry]:
            return await _entries(unit, await unit.all(_RUNS_OF, some))

        following = start + limit
        return await self._read(task), following if following < len(self._changed) else None


async def _jobs(unit: Unit, after: str | None, limit: int) -> tuple[list[transfer.JobEntry], str | None]:
    records = await planning.find_jobs(unit, None, after or "", limit)
    earlier: defaultdict[str, list[Entry]] = defaultdict(list)
    for log, sequence, at, value in await unit.all(_ENTRIES, [definitions_log(record.name) for record in records]):
        earlier[log].append(Entry(sequence, from_micros(at), value))
    entries = [transfer.JobEntry(record, tuple(earlier.get(definitions_log(record.name), ()))) for record in records]
    return entries, records[-1].name if len(records) == limit else None


async def _queues(unit: Unit) -> list[transfer.QueueEntry]:
    return [transfer.QueueEntry(name) for name in sorted(await paused(unit) - {FROZEN})]


async def _totals(unit: Unit) -> list[transfer.TotalEntry]:
    return [transfer.TotalEntry(State(state), int(ended)) for state, ended in await unit.all(_TOTALS) if ended]


async def _statistics(unit: Unit) -> list[transfer.StatisticsEntry]:
    counted = await listing.statistics(unit, None)
    return [transfer.StatisticsEntry(job, counted[job]) for job in sorted(counted)]


async def _values(unit: Unit, place: Any, limit: int) -> tuple[list[transfer.ValueEntry], Any]:
    kind, key = place or ("", "")
    rows = await unit.all(_VALUES, kind, key, limit)
    return [transfer.ValueEntry(*row) for row in rows], tuple(rows[-1])[:2] if len(rows) == limit else None


async def _runs(unit: Unit, after: int | None, limit: int) -> tuple[list[transfer.RunEntry], int | None]:
    most = min(limit, _MOST_RUNS)
    rows = await unit.all(_RUNS, after or 0, most)
    return await _entries(unit, rows), rows[-1][0] if len(rows) == most else None


async def _entries(unit: Unit, rows: Any) -> list[transfer.RunEntry]:
    """Runs with their attempts and logs, from rows of `{run}`."""
    records = read_records(rows)
    seqs = [record.seq for record in records]
    attempts: defaultdict[int, list[Attempt]] = defaultdict(list)
    for row in await unit.all(_ATTEMPTS, seqs):
        attempts[row[0]].append(read_attempt(tuple(row)[1:]))
    lines = await run_lines.chunks(unit, seqs)
    return [
        transfer.RunEntry(record.run, tuple(attempts.get(record.seq, ())), tuple(lines.get(record.seq, ())))
        for record in records
    ]


async def _keys(unit: Unit, place: Any, limit: int) -> tuple[list[transfer.KeyEntry], Any]:
    handler, key = place or ("", "")
    rows = await unit.all(_KEYS, handler, unit.dialect.stored_key(key), limit)
    entries = [
        transfer.KeyEntry(handler, unit.dialect.key_text(key), run_id, from_micros(created_at), from_micros(until))
        for handler, key, run_id, created_at, until in rows
    ]
    return entries, (entries[-1].handler, entries[-1].dedupe_key) if len(rows) == limit else None


async def _logs(unit: Unit, place: Any, limit: int, since: int) -> tuple[list[transfer.LogEntry], Any]:
    log, sequence = place or ("", 0)
    rows = await unit.all(_LOGS, log, sequence, limit, since)
    entries = [transfer.LogEntry(name, number, from_micros(at), value) for name, number, at, value in rows]
    return entries, tuple(rows[-1])[:2] if len(rows) == limit else None
