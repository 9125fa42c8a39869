"""Loading an export into an empty store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import BinaryIO

from msgspec import Struct

from duly.errors import BackendError
from duly.model.transfer import Record, SettingEntry
from duly.moving.exporting import Progress
from duly.moving.file_format import Exportable, Header, Reader
from duly.ports import Backend, Coordinator
from duly.rules.restoring import as_loaded

BATCH = 1_000

Open = Callable[[], BinaryIO]


class Imported(Struct, frozen=True):
    """What was loaded: records by kind, and the header of the file."""

    counts: dict[str, int]
    header: Header


def verified(source: BinaryIO, name: str) -> Header:
    """The header of a file that is complete and undamaged; `InvalidExport` for any other."""
    reader = Reader(source, name)
    for _ in reader.records():
        pass
    return reader.header


async def import_file(backend: Backend, source: BinaryIO, name: str, *, progress: Progress | None = None) -> Imported:
    """Load an export into the store, which was opened without `Opening.migrates` and must be empty.

    Until everything is loaded and the file has turned out to be complete, nodes refuse to start on the store. After an
    interruption, call it again: it begins from the beginning.
    """
    reader = Reader(source, name)
    await prepare(backend, name)
    done = 0
    for batch in _batches(reader.records()):
        await _load(backend, batch, reader.header)
        done += len(batch)
        if progress is not None:
            progress(done)
    assert reader.end is not None
    await backend.store.end_load(reader.header.fence)
    return Imported(reader.end.counts, reader.header)


async def prepare(backend: Backend, source: str) -> None:
    """Make an empty store ready to be loaded."""
    if await backend.store.mark() is None:
        await backend.store.migrate()
        live = [node.id for node in await backend.coordinator.nodes()]
        if live:
            raise BackendError(f"{backend.url} is in use by {', '.join(live[:3])}: stop all nodes before the import")
    sent = backend.clock.monotonic()
    backend.clock.read(await backend.store.time(), sent)
    await backend.store.begin_load(source)


async def _load(backend: Backend, batch: Sequence[Exportable], header: Header) -> None:
    await put_settings(backend.coordinator, [each for each in batch if isinstance(each, SettingEntry)])
    records: list[Record] = [as_loaded(each, header.at) for each in batch if not isinstance(each, SettingEntry)]
    await backend.store.load(records)


async def put_settings(coordinator: Coordinator, settings: Sequence[SettingEntry]) -> None:
    """Share the settings of a cluster."""
    for setting in settings:
        await coordinator.put(setting.name, setting.value)


def _batches(records: Iterator[Exportable]) -> Iterator[list[Exportable]]:
    while batch := list(islice(records, BATCH)):
        yield batch
