"""Pages of a dump: one kind of record after the other, each with its own cursor."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from duly.errors import ConfigurationError
from duly.model.transfer import KINDS, DumpPage, Record

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
