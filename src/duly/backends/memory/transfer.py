"""The transfer store on memory: the reference for dumping and loading."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import NoReturn

from duly.backends.codec import kept_job, kept_run
from duly.backends.marks import not_empty, not_importing, refused
from duly.backends.memory.contents import Contents
from duly.backends.record_kinds import as_stored, pair_of
from duly.errors import BackendError
from duly.model import FINAL, Entry, Item, Run, State
from duly.model.definitions import DEFINITIONS, definitions_log
from duly.model.transfer import (
    DumpPage,
    Gone,
    JobEntry,
    KeyEntry,
    Loaded,
    LogEntry,
    MarkKind,
    QueueEntry,
    Record,
    RunEntry,
    StatisticsEntry,
    StoreMark,
    TotalEntry,
    ValueEntry,
    kind_of,
)
from duly.ports import FROZEN, Snapshot
from duly.rules.statistics import combine

_URL = "memory://"


class MemorySnapshot:
    """References to all records: they never change."""

    exact = True

    def __init__(self, contents: Contents, since: datetime | None) -> None:
        self.at = contents.clock.now()
        self.fence = max(contents.runs.last_fence, contents.last_lease_fence)
        self.ended = {state: contents.runs.kept[state] for state in FINAL}
        self._records = list(_records(contents, since))

    async def dump(self, cursor: str | None, limit: int) -> DumpPage:
        start = int(cursor or 0)
        following = start + limit
        more = following < len(self._records)
        return DumpPage(self._records[start:following], str(following) if more else None)


def _records(contents: Contents, since: datetime | None) -> Iterator[Record]:
    runs = contents.runs
    for name in sorted(contents.jobs):
        yield JobEntry(contents.jobs[name], tuple(contents.logs.get(definitions_log(name), ())))
    yield from (QueueEntry(name) for name in sorted(contents.paused_queues) if name != FROZEN)
    yield from (TotalEntry(state, runs.ended[state]) for state in State if runs.ended.get(state))
    for job in sorted({job for job, _ in contents.statistics}):
        yield StatisticsEntry(job, combine([each for (of, _), each in contents.statistics.items() if of == job]))
    for (kind, key), item in sorted(contents.items.items()):
        yield ValueEntry(kind, key, item.value, item.version)
    for run in runs.by_id.values():
        if since is None or not _ended_before(run, since):
            yield RunEntry(as_stored(run), tuple(runs.attempts.get(run.id, ())), tuple(runs.logs.get(run.id, ())))
    yield from runs.unique_keys()
    for log, entries in sorted(contents.logs.items()):
        if log.startswith(DEFINITIONS):
            continue
        later = (entry for entry in entries if since is None or entry.at >= since)
        yield from (LogEntry(log, entry.sequence, entry.at, entry.value) for entry in later)


def _ended_before(run: Run, since: datetime) -> bool:
    return run.finished_at is not None and run.final and run.finished_at < since


class Closed:
    """Stands where the contents of a closed store were: whatever is done with it raises the error of the mark."""

    def __init__(self, mark: StoreMark) -> None:
        self._duly_mark = mark

    def _refuse(self, *_: object) -> NoReturn:
        raise refused(self._duly_mark, _URL)

    __getattr__ = __getitem__ = __setitem__ = __contains__ = __iter__ = __len__ = __bool__ = _refuse
    __add__ = __radd__ = __iadd__ = __lt__ = __gt__ = __sub__ = __rsub__ = _refuse


class MemoryTransfer:
    """The part of the store that moves it."""

    _contents: Contents

    async def mark(self) -> StoreMark | None:
        return self._contents.mark

    @asynccontextmanager
    async def snapshot(self, since: datetime | None = None) -> AsyncIterator[Snapshot]:
        yield MemorySnapshot(self._contents, since)

    async def begin_load(self, source: str) -> None:
        contents = self._contents
        if contents.mark is not None and contents.mark.kind is not MarkKind.IMPORTING:
            raise refused(contents.mark, _URL)
        if contents.mark is not None:
            contents.clear()
        elif (first := next(_records(contents, None), None)) is not None:
            raise not_empty(_URL, kind_of(first))
        contents.mark = StoreMark(MarkKind.IMPORTING, source, contents.clock.now())

    async def load(self, records: Sequence[Loaded]) -> None:
        if self._contents.mark is None:
            raise not_importing(_URL)
        for record in records:
            self._load(record)

    def _load(self, record: Loaded) -> None:
        contents = self._contents
        match record:
            case JobEntry(job, earlier):
                contents.keep(kept_job(job))
                contents.logs[definitions_log(job.name)] = list(earlier)
            case QueueEntry(name):
                contents.paused_queues.add(name)
            case TotalEntry(state, ended):
                contents.runs.ended[state] = ended
            case StatisticsEntry(job, statistics):
                contents.statistics[job, ""] = statistics
            case ValueEntry(kind, name, value, version):
                contents.items[kind, name] = Item(name, value, version)
            case RunEntry(run, attempts, lines):
                contents.runs.load(kept_run(run), attempts, lines)
            case KeyEntry(handler, key, run_id, created_at, until):
                contents.runs.load_key((handler, key), run_id, created_at, until)
            case LogEntry(log, sequence, at, value):
                others = [entry for entry in contents.logs[log] if entry.sequence != sequence]
                contents.logs[log] = [*others, Entry(sequence, at, value)]
            case Gone(kind, key):
                self._forget(kind, key)

    def _forget(self, kind: str, key: str) -> None:
        contents = self._contents
        match kind:
            case "job":
                contents.forget(contents.jobs[key])
                contents.logs.pop(definitions_log(key), None)
            case "queue":
                contents.paused_queues.discard(key)
            case "value":
                contents.items.pop(pair_of(key), None)
            case "run":
                contents.runs.unload(key)
            case "dedupe_key":
                contents.runs.unload_key(pair_of(key))
            case _:
                raise BackendError(f"a record of kind {kind!r} cannot be removed")

    async def end_load(self, fence: int) -> None:
        contents = self._contents
        contents.runs.raise_fence(fence)
        contents.last_lease_fence = max(contents.last_lease_fence, fence)
        contents.mark = None

    async def freeze(self) -> None:
        contents = self._contents
        contents.paused_queues.add(FROZEN)
        contents.epochs = {shard: epoch + 1 for shard, epoch in contents.epochs.items()}

    async def thaw(self) -> None:
        self._contents.paused_queues.discard(FROZEN)
        self._contents.notifier.ring()

    @asynccontextmanager
    async def closing(self, address: str, since: datetime) -> AsyncIterator[Snapshot]:
        contents = self._contents
        snapshot = MemorySnapshot(contents, since)
        now = contents.clock.now()
        contents.close(Closed(StoreMark(MarkKind.CLOSED, address, now)))
        contents.mark = StoreMark(MarkKind.CLOSED, address, now)
        try:
            yield snapshot
        except BaseException:
            await self.reopen()
            raise
        contents.mark = StoreMark(MarkKind.MOVED, address, now, snapshot.fence)
        contents.close(Closed(contents.mark))

    async def reopen(self) -> None:
        if self._contents.mark is not None and self._contents.mark.kind is not MarkKind.IMPORTING:
            self._contents.reopen()
            self._contents.mark = None
