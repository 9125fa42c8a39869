"""The audit log: who changed what, before and after. Each entry contains the hash of the previous one.

Entries are appended by comparing the log's last number, so the chain has one order, whichever process writes it.
Changing or removing an entry breaks the chain after it. The log alone cannot show that all of it was rewritten: for
that, store the head's hash elsewhere, or give the processes a key to authenticate every entry with. Damage is
a finding, never an exception: `record` writes it down and goes on, `verify` lists it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any

import msgspec

from duly.errors import BackendUnavailable
from duly.ports import ValueStore
from duly.scheduler.audit_check import DAMAGE, Check, Deed, Head, Recorded, Report, broken, chained, recorded

LOG = "audit"

_HEAD = "audit-head"
_SLICE = 500
_ATTEMPTS = 100  # every lost race is an entry of another process: a hundred in a row do not happen by chance


class Audit:
    """Belongs to one session on a store. With a key its entries carry a code that only holders of the key can make."""

    def __init__(self, store: ValueStore, key: str | None = None) -> None:
        self._store = store
        self._key = None if key is None else key.encode()
        self._head: Head | None = None
        self._writing = asyncio.Lock()

    async def record(
        self, actor: str, action: str, target: str, at: datetime, before: Any = None, after: Any = None
    ) -> int:
        """Append one entry; returns its number. If other processes append meanwhile, it follows their entries.

        If the log is not as its last writer left it, an additional entry before this one records that. Always returns
        or raises after a bounded number of calls to the store.
        """
        return await self.record_each([Deed(actor, action, target, at, before, after)])

    async def record_each(self, deeds: Sequence[Deed]) -> int:
        """The same for several entries, at least one; returns the number of the last."""
        async with self._writing:
            for _ in range(_ATTEMPTS):
                end, damage = await self._end()
                values, head = [], end
                for each in deeds if damage is None else [_finding(damage, deeds[0].at), *deeds]:
                    value, head = chained(each, head, self._key)
                    values.append(value)
                if await self._store.append(LOG, values, expect=end.sequence) is not None:
                    self._head = head
                    await self._store.put(_HEAD, "main", msgspec.json.encode(head))
                    return head.sequence
        raise BackendUnavailable(f"the audit log was changed by others {_ATTEMPTS} times in a row: try again")

    async def _end(self) -> tuple[Head, str | None]:
        """The end of the log as it is now, and what is wrong with it since this session, or a writer, last saw it.

        Reads one slice at most: what lies further back is left to `verify`.
        """
        last = await self._store.append(LOG, []) or 0
        known, damage = await self._known()
        if known is not None and known.sequence > last:
            damage = f"entry {known.sequence} is missing: the log ends at {last}"
        elif known is not None and known.sequence > 0:
            part = [recorded(entry) for entry in await self._store.read(LOG, known.sequence - 1, _SLICE)]
            damage = broken(known, part)
        tail = await self._store.read(LOG, last - 1, 1) if last else []
        return Head(last, recorded(tail[0]).hash) if tail else Head(last), damage

    async def _known(self) -> tuple[Head | None, str | None]:
        """The end of the log as this session or another writer left it; or why it is unknown."""
        if self._head is not None:
            return self._head, None
        item = await self._store.get(_HEAD, "main")
        if item is None:
            return None, None
        try:
            return msgspec.json.decode(item.value, type=Head), None
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None, "the note of the log's end cannot be read"

    async def read(self, after: int, limit: int) -> list[Recorded]:
        """Entries with a greater number than `after`, in order."""
        return [recorded(entry) for entry in await self._store.read(LOG, after, limit)]

    async def verify(self, expect: str | None = None) -> Report:
        """Check every entry. `expect` is the hash of an earlier head: the log must still contain that entry.

        A changed entry is detected by the one after it, the last one by the hash that its writer stored. Damage that a
        writer has recorded is also a finding, unless it comes before the expected entry: then it is known.
        """
        remembered, unreadable = await self._known()
        check = Check(remembered, self._key, expect)
        async for each in self._from(0):
            check.take(each)
        return check.report(unreadable)

    async def _from(self, after: int) -> AsyncIterator[Recorded]:
        while entries := await self._store.read(LOG, after, _SLICE):
            for entry in entries:
                yield recorded(entry)
            after = entries[-1].sequence


def _finding(damage: str, at: datetime) -> Deed:
    return Deed("duly", DAMAGE, damage, at)
