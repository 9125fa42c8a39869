"""Writing everything in a store to a file, while the store works."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import BinaryIO

from msgspec import Struct

from duly.model.transfer import JobEntry, LogEntry, Record, RunEntry, SettingEntry, ValueEntry
from duly.moving.file_format import FORMAT, VERSION, Exportable, Header, Writer
from duly.ports import Backend, Coordinator, Snapshot
from duly.rules.cluster_settings import KEY
from duly.version import __version__

PAGE = 1_000
SECRET_KINDS = frozenset({"token", "secret"})  # hashes of API tokens, and the key of cursors
LOG_KINDS = frozenset({"audit-head"})  # values that only mean something beside a log

Progress = Callable[[int], None]


class Exported(Struct, frozen=True):
    """What was written: records by kind, and the ids and names of those that could not be read."""

    counts: dict[str, int]
    damaged: tuple[str, ...]
    exact: bool


async def export_store(
    backend: Backend,
    namespace: str,
    out: BinaryIO,
    *,
    logs: bool = False,
    secrets: bool = False,
    freeze: bool = False,
    progress: Progress | None = None,
) -> Exported:
    """Write what the opened store contains.

    `logs` adds the audit log, events and other logs; `secrets` adds the hashes of tokens and keys. With `freeze` no run
    starts meanwhile. `progress` is called with the number of records written so far.
    """
    async with _frozen(backend, freeze), backend.store.snapshot() as snapshot:
        writer = Writer(out, _header(backend, namespace, snapshot, logs=logs, secrets=secrets))
        writer.write(await settings_of(backend.coordinator))
        damaged: list[str] = []
        async for records in pages(snapshot):
            damaged += [record.key for record in records if is_damaged(record)]
            writer.write([each for each in records if _is_wanted(each, logs=logs, secrets=secrets)])
            if progress is not None:
                progress(writer.counts.total())
    end = writer.end(damaged)
    return Exported(end.counts, end.damaged, snapshot.exact)


def _header(backend: Backend, namespace: str, snapshot: Snapshot, *, logs: bool, secrets: bool) -> Header:
    return Header(
        format=FORMAT,
        version=VERSION,
        duly=__version__,
        namespace=namespace,
        source=backend.url,
        at=snapshot.at,
        fence=snapshot.fence,
        ended={state.value: number for state, number in sorted(snapshot.ended.items())},
        exact=snapshot.exact,
        logs=logs,
        secrets=secrets,
    )


@asynccontextmanager
async def _frozen(backend: Backend, wanted: bool) -> AsyncIterator[None]:
    if not wanted:
        yield
        return
    await backend.store.freeze()
    try:
        yield
    finally:
        await backend.store.thaw()


async def pages(snapshot: Snapshot) -> AsyncIterator[list[Record]]:
    """The records of a snapshot, page by page."""
    cursor: str | None = None
    while True:
        page = await snapshot.dump(cursor, PAGE)
        yield page.records
        cursor = page.next
        if cursor is None:
            return


async def settings_of(coordinator: Coordinator) -> list[SettingEntry]:
    """The settings of the cluster, if there are any."""
    item = await coordinator.get(KEY)
    return [] if item is None else [SettingEntry(KEY, item.value)]


def is_damaged(record: Record) -> bool:
    """Whether a record could not be read in full."""
    if isinstance(record, RunEntry):
        return record.run.damage is not None
    return isinstance(record, JobEntry) and record.record.damage is not None


def _is_wanted(record: Exportable, *, logs: bool, secrets: bool) -> bool:
    match record:
        case LogEntry():
            return logs
        case ValueEntry(kind=kind):
            return (secrets or kind not in SECRET_KINDS) and (logs or kind not in LOG_KINDS)
        case SettingEntry():
            return True
        case _:
            return not is_damaged(record)
