"""The audit log: who changed what, before and after, each entry bound to the one before by its hash.

Entries are appended by comparing the log's last number, so the chain has one order whoever writes it. Changing or
removing an entry breaks every hash after it; `verify` tells where.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from duly.model import Entry
from duly.ports import Store

LOG = "audit"

_HEAD = "audit-head"
_SLICE = 500
_FIRST = "0" * 64


class Deed(Struct, frozen=True):
    """One administrative action. `before` and `after` are what it changed, as far as that is told in a few words."""

    actor: str
    action: str
    target: str
    at: datetime
    before: Any = None
    after: Any = None
    previous: str = _FIRST

    def hash(self) -> str:
        """What the next entry is bound to."""
        return hashlib.sha256(_encoder.encode(self)).hexdigest()


class Recorded(Struct, frozen=True):
    """An entry as it stands in the log."""

    sequence: int
    deed: Deed
    hash: str


class _Head(Struct, frozen=True):
    """The end of the log as somebody last saw it: where to begin reading, nothing more."""

    sequence: int = 0
    hash: str = _FIRST


class Audit:
    """Belongs to one session on a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._head: _Head | None = None

    async def record(
        self, actor: str, action: str, target: str, at: datetime, before: Any = None, after: Any = None
    ) -> int:
        """Append one entry; returns its number. Others may append meanwhile: then it is bound to theirs."""
        head = self._head or await self._remembered()
        while True:
            head = await self._advanced(head)
            deed = Deed(actor, action, target, at, before, after, head.hash)
            number = await self._store.append(LOG, [_encoder.encode(deed)], expect=head.sequence)
            if number is not None:
                self._head = _Head(number, deed.hash())
                await self._store.put(_HEAD, "main", msgspec.json.encode(self._head))
                return number

    async def _remembered(self) -> _Head:
        item = await self._store.get(_HEAD, "main")
        return _Head() if item is None else msgspec.json.decode(item.value, type=_Head)

    async def _advanced(self, head: _Head) -> _Head:
        async for recorded in self._from(head.sequence):
            head = _Head(recorded.sequence, recorded.hash)
        return head

    async def _from(self, after: int) -> AsyncIterator[Recorded]:
        while entries := await self._store.read(LOG, after, _SLICE):
            for entry in entries:
                yield _recorded(entry)
            after = entries[-1].sequence

    async def read(self, after: int, limit: int) -> list[Recorded]:
        """Entries with a greater number than `after`, in order."""
        return [_recorded(entry) for entry in await self._store.read(LOG, after, limit)]

    async def verify(self) -> tuple[int, int | None]:
        """How many entries there are, and the number of the first that is missing or not as it was written.

        An entry that was changed is told by the one after it, the last one by what its writer remembered of it.
        """
        seen = await self._remembered()
        count, previous = 0, _FIRST
        async for recorded in self._from(0):
            count += 1
            if recorded.sequence != count or recorded.deed.previous != previous:
                return count, max(1, count - 1)
            if count == seen.sequence and recorded.hash != seen.hash:
                return count, count
            previous = recorded.hash
        return count, None if count >= seen.sequence else count + 1


def _recorded(entry: Entry) -> Recorded:
    deed = msgspec.json.decode(entry.value, type=Deed)
    return Recorded(entry.sequence, deed, hashlib.sha256(entry.value).hexdigest())


_encoder = msgspec.json.Encoder(order="deterministic")
