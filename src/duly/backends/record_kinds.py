"""Dumping and loading a store by kinds of records: each store has a function for each kind.

A dump has one kind after the other, each with its own cursor.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from duly.errors import BackendError, ConfigurationError
from duly.model import Run, State
from duly.model.definitions import definitions_log
from duly.model.transfer import KINDS, DumpPage, JobEntry, Loaded, LogEntry, Record, kind_of

T = TypeVar("T")

# Some records of a kind after a place (None: from the beginning), at most that many, and the place of the next ones.
Dump = Callable[[Any, int], Awaitable[tuple[list[Any], Any]]]


async def dump_page(dumps: Mapping[str, Dump], cursor: str | None, limit: int) -> DumpPage:
    """The next records: of one kind, or of several if there are few of the first."""
    kind, place = (KINDS[0], None) if cursor is None else _position(cursor)
    records: list[Record] = []
    number = KINDS.index(kind)
    while number < len(KINDS):
        if (dump := dumps.get(KINDS[number])) is not None:
            found, place = await dump(place, limit - len(records))
            records += found
            if place is not None:
                return DumpPage(records, _cursor(KINDS[number], place))
        number, place = number + 1, None
        if len(records) >= limit and number < len(KINDS):
            return DumpPage(records, _cursor(KINDS[number], None))
    return DumpPage(records)


def _cursor(kind: str, place: Any) -> str:
    return msgspec.json.encode((kind, place)).decode()


def _position(cursor: str) -> tuple[str, Any]:
    try:
        kind, place = msgspec.json.decode(cursor, type=tuple[str, Any])
    except msgspec.DecodeError as exc:
        raise ConfigurationError(f"{cursor!r} is not a cursor of this dump") from exc
    return kind, place


def as_stored(run: Run) -> Run:
    """A run as it is dumped: a waiting run is pending, whether or not it is ready."""
    return replace(run, state=State.PENDING) if run.state is State.QUEUED else run


# --- loading


async def load_records(
    store: T,
    records: Sequence[Loaded],
    loads: Mapping[str, Callable[[T, Any], Awaitable[None]]],
    forgets: Mapping[str, Callable[[T, str], Awaitable[None]]],
) -> None:
    """Delete what is gone, and store the records of each kind together, in the order of their first ones."""
    by_kind: defaultdict[str, list[Any]] = defaultdict(list)
    for record in records:
        by_kind[kind_of(record)].append(record)
    for gone in by_kind.pop("gone", ()):
        if gone.kind not in forgets:
            raise BackendError(f"a record of kind {gone.kind!r} cannot be removed")
        await forgets[gone.kind](store, gone.key)
    for kind, some in by_kind.items():
        await loads[kind](store, some)


def log_of(job: JobEntry) -> list[LogEntry]:
    """The earlier definitions of a job, as entries of their log."""
    log = definitions_log(job.record.name)
    return [LogEntry(log, each.sequence, each.at, each.value) for each in job.earlier]


def pair_of(key: str) -> tuple[str, str]:
    """The two parts of the key of a value or of a dedupe key."""
    first, _, second = key.partition("\0")
    return first, second
