"""The transfer store on Redis.

An import loads keys whose names begin with `loading:`, and gives them their names at its end. A store that is closed or
moved has its keys under `moved:`, and strings in their place, on which every script fails. The key `mark` says why.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime

from duly.backends.marks import mark_text, not_empty, not_importing, refused
from duly.backends.redis.client import ClientView, RedisClient, slices_of
from duly.backends.redis.moving.dumping import RedisSnapshot, names_under, scanned
from duly.backends.redis.moving.loading import load
from duly.backends.redis.reporting import LINES
from duly.errors import BackendError
from duly.model import from_micros
from duly.model.transfer import Loaded, MarkKind, StoreMark, kind_of
from duly.ports import FROZEN, Snapshot

_LOADING = "loading:"
_MOVED = "moved:"
_COUNTED = 500
_DELETED = 500


class RedisTransfer:
    """The part of the store that moves it."""

    _client: RedisClient

    async def mark(self) -> StoreMark | None:
        return await self._client.mark()

    @asynccontextmanager
    async def snapshot(self, since: datetime | None = None) -> AsyncIterator[Snapshot]:
        await self._count_pending()
        importing = await self.mark() is not None
        yield await self._read(ClientView(self._client, _LOADING if importing else ""), since, exact=importing)

    async def _count_pending(self) -> None:
        """Add up the counters that settlements have left for later."""
        while await self._client.call("add_pending_counters", _COUNTED):
            pass

    async def _read(self, view: ClientView, since: datetime | None, *, exact: bool) -> RedisSnapshot:
        snapshot = RedisSnapshot(view, await self._now(), since, exact=exact)
        await snapshot.begin()
        return snapshot

    async def _now(self) -> datetime:
        seconds, fraction = await self._client.command("TIME")
        return from_micros(int(seconds) * 1_000_000 + int(fraction))

    # --- loading

    async def begin_load(self, source: str) -> None:
        url = self._client.settings.safe_url
        mark = await self.mark()
        if mark is None:
            async with self.snapshot() as snapshot:
                first = await snapshot.dump(None, 1)
            if first.records:
                raise not_empty(url, kind_of(first.records[0]))
        elif mark.kind is not MarkKind.IMPORTING:
            raise refused(mark, url)
        names = await scanned(ClientView(self._client, _LOADING), "")
        names |= await scanned(ClientView(self._client, ""), LINES)
        for some in slices_of(sorted(names), _DELETED):
            await self._client.command("UNLINK", *some)
        await self._set_mark(StoreMark(MarkKind.IMPORTING, source, await self._now()))

    async def _set_mark(self, mark: StoreMark) -> None:
        await self._client.on_key("SET", "mark", mark_text(mark))

    async def load(self, records: Sequence[Loaded]) -> None:
        mark = await self.mark()
        if mark is None or mark.kind is not MarkKind.IMPORTING:
            raise not_importing(self._client.settings.safe_url)
        await load(ClientView(self._client, _LOADING), records)

    async def end_load(self, fence: int) -> None:
        names = await names_under(ClientView(self._client, _LOADING), "")
        if not await self._client.call("end_load", _LOADING, fence, *names):
            raise BackendError(
                f"{self._client.settings.safe_url} is no longer empty: a process of an older version has used it"
                " during the import. Stop it, delete its keys, and import again"
            )

    # --- leaving

    async def freeze(self) -> None:
        await self._client.call("freeze")

    async def thaw(self) -> None:
        await self._client.call("resume", FROZEN)

    @asynccontextmanager
    async def closing(self, address: str, since: datetime) -> AsyncIterator[Snapshot]:
        await self._count_pending()
        view = ClientView(self._client, "")
        names = [start + name for start in ("kind:", "log:") for name in await names_under(view, start)]
        now = await self._now()
        closed = mark_text(StoreMark(MarkKind.CLOSED, address, now))
        await self._client.call("close", _MOVED, closed, *names)
        try:
            snapshot = await self._read(ClientView(self._client, _MOVED), since, exact=True)
            yield snapshot
        except BaseException:
            await self.reopen()
            raise
        await self._client.call("close", _MOVED, mark_text(StoreMark(MarkKind.MOVED, address, now, snapshot.fence)))

    async def reopen(self) -> None:
        mark = await self.mark()
        if mark is None or mark.kind is MarkKind.IMPORTING:
            return
        moved = await names_under(ClientView(self._client, _MOVED), "")
        others = await names_under(ClientView(self._client, ""), "")
        names = dict.fromkeys([*moved, *(name for name in others if not name.startswith((_MOVED, LINES)))])
        await self._client.call("reopen", _MOVED, *names)
