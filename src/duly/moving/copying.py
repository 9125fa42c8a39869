"""Moving a cluster to another store while it works.

1. Everything is copied while the source works.
2. The source is frozen: nothing starts any more, and running handlers end.
3. The source is closed, and what has changed since the first step is copied: only now nobody can submit anything.
4. The numbers of runs are compared, the source is marked as moved, and the target is opened.

If anything fails before the mark, the source goes on as before. If the process ends between the mark and the opening of
the target, no store works, and a repeat only opens the target.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Iterable
from datetime import datetime

import msgspec
from msgspec import Struct

from duly.errors import BackendError
from duly.model import FINAL, Run, State, shift
from duly.model.transfer import Gone, Loaded, LogEntry, MarkKind, Record, RunEntry, StoreMark, kind_of
from duly.moving.exporting import Progress, is_damaged, pages, settings_of
from duly.moving.importing import prepare, put_settings
from duly.ports import Backend, Snapshot
from duly.rules.restoring import as_loaded, restored

_LOOK = 0.2  # seconds between two looks at the runs that are still running
_MARGIN = 60.0  # seconds by which ends may be recorded out of order
_FAR = 100 * 365 * 86_400.0


class Copied(Struct, frozen=True):
    """What was moved: runs that are unfinished by job, ended ones by state, and how many records changed at the end."""

    unfinished: dict[str, int]
    ended: dict[str, int]
    changed: int
    running: int


async def copy_store(
    source: Backend, target: Backend, address: str, *, wait: float, progress: Progress | None = None
) -> Copied:
    """Move everything from one store to another.

    The source is opened as usual, the target without `Opening.migrates`. `address` is that of the target, without
    credentials. Running handlers have `wait` seconds to end; those that are still running then run again in the target,
    or are lost if they may start only once.
    """
    await prepare(target, source.url)
    copier = _Copier(source, target, progress)
    since = await copier.copy_all()
    await source.store.freeze()
    try:
        running = await _drained(source, wait)
        await put_settings(target.coordinator, await settings_of(source.coordinator))
        async with source.store.closing(address, since) as last:
            changed = await copier.copy_changes(last)
            await copier.compare(last)
    except BaseException:
        await source.store.reopen()
        await source.store.thaw()
        raise
    await target.store.end_load(last.fence)
    return Copied(
        dict(copier.unfinished), {state.value: last.ended[state] for state in sorted(FINAL)}, changed, running
    )


async def finish_copy(source: Backend, target: Backend, address: str) -> bool:
    """Open the target of a copy that was interrupted after the source was marked; whether there was one."""
    moved, importing = await source.store.mark(), await target.store.mark()
    if not _is(moved, MarkKind.MOVED, address) or not _is(importing, MarkKind.IMPORTING, source.url):
        return False
    await target.store.end_load(0 if moved is None else moved.fence)
    return True


def _is(mark: StoreMark | None, kind: MarkKind, address: str) -> bool:
    return mark is not None and mark.kind is kind and mark.address == address


async def reopen_store(source: Backend) -> StoreMark | None:
    """Let a store work again that a copy has frozen, closed or marked; the mark that it had."""
    mark = await source.store.mark()
    await source.store.reopen()
    await source.store.thaw()
    return mark


async def _drained(source: Backend, wait: float) -> int:
    """Wait until nothing runs; how many runs are left."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait
    while True:
        running = (await source.store.counts()).states[State.RUNNING]
        if not running or loop.time() >= deadline:
            return running
        await asyncio.sleep(_LOOK)


class _Copier:
    """Remembers a digest of everything that it has copied, except for ended runs and logs, which are history."""

    def __init__(self, source: Backend, target: Backend, progress: Progress | None) -> None:
        self.unfinished: Counter[str] = Counter()
        self._source = source
        self._target = target
        self._progress = progress
        self._ended_by_copy: Counter[State] = Counter()
        self._seen: dict[tuple[str, str], bytes] = {}
        self._done = 0

    async def copy_all(self) -> datetime:
        """Copy everything while the source works; the time after which changes must be copied again."""
        async with self._source.store.snapshot() as snapshot:
            async for records in pages(snapshot):
                for record in records:
                    if not isinstance(record, LogEntry) and not (isinstance(record, RunEntry) and record.run.final):
                        self._seen[kind_of(record), record.key] = _digest(record)
                await self._load(records, snapshot.at)
        return shift(snapshot.at, -_MARGIN)

    async def copy_changes(self, last: Snapshot) -> int:
        """Copy what has changed, and delete what is gone; how many records."""
        changed = 0
        async for records in pages(last):
            fresh = [record for record in records if self._is_new(record)]
            self.unfinished.update(run.job for run in _unfinished(records, last.at))
            self._ended_by_copy.update(_ended_by_copy(records, last.at))
            await self._load(fresh, last.at)
            changed += len(fresh)
        gone = [Gone(kind, key) for kind, key in self._seen if kind not in _KEPT]
        for start in range(0, len(gone), 1_000):
            await self._target.store.load(gone[start : start + 1_000])
        return changed + len(gone)

    def _is_new(self, record: Record) -> bool:
        """Whether a record must be copied again. What is left in `_seen` at the end is gone."""
        return self._seen.pop((kind_of(record), record.key), b"") != _digest(record)

    async def _load(self, records: Iterable[Record], at: datetime) -> None:
        loaded: list[Loaded] = [as_loaded(record, at) for record in records if not is_damaged(record)]
        if loaded:
            await self._target.store.load(loaded)
        self._done += len(loaded)
        if self._progress is not None:
            self._progress(self._done)

    async def compare(self, last: Snapshot) -> None:
        """Raise unless the target has all runs: unfinished ones by job, ended ones by state.

        It may have more ended runs: those that the source has deleted since they were copied.
        """
        found: Counter[str] = Counter()
        async with self._target.store.snapshot(shift(last.at, _FAR)) as there:
            async for records in pages(there):
                found.update(run.job for run in _unfinished(records, last.at))
        if found != self.unfinished:
            raise BackendError(_difference("unfinished runs by job", self.unfinished, found))
        here = Counter({state.value: last.ended[state] + self._ended_by_copy[state] for state in FINAL})
        ended = Counter({state.value: there.ended[state] for state in FINAL})
        if any(ended[state] < here[state] for state in here):
            raise BackendError(_difference("ended runs by state", here, ended))


_KEPT = frozenset({"total", "statistics"})  # what never goes


def _unfinished(records: Iterable[Record], at: datetime) -> list[Run]:
    """Those runs that are unfinished when they are loaded."""
    runs = [each.run for each in (as_loaded(record, at) for record in records) if isinstance(each, RunEntry)]
    return [run for run in runs if not run.final and run.damage is None]


def _ended_by_copy(records: Iterable[Record], at: datetime) -> list[State]:
    """The states of runs that are running in the source and have ended when they are loaded."""
    running = [each.run for each in records if isinstance(each, RunEntry) and each.run.state is State.RUNNING]
    return [state for run in running if (state := restored(run, at).state) in FINAL]


def _digest(record: Record) -> bytes:
    return hashlib.blake2b(msgspec.msgpack.encode(record), digest_size=8).digest()


def _difference(what: str, here: Counter[str], there: Counter[str]) -> str:
    names = sorted(name for name in here.keys() | there.keys() if here[name] != there[name])
    shown = ", ".join(f"{name}: {here[name]} and {there[name]}" for name in names[:5])
    return f"the stores differ in their {what} ({shown}): the source goes on as before, repeat the copy"
