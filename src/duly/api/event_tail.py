"""The tail: follows the log of events once for all streams of this process, while there are any.

The newest notices are kept in memory, so that a stream which keeps up never asks the store. One that is slow, or begins
further back, reads the store in slices of its own: no stream has a buffer that could grow.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable

from duly.api.problems import Problem
from duly.errors import BackendError
from duly.scheduler.event_reader import EventReader, Told

PERIOD = 0.25
SLICE = 500

_RECENT = 2_000
_AFTER_FAILURE = 1.0

_log = logging.getLogger("duly.api")


class EventTail:
    """Belongs to one event loop. `over` once the process is about to stop: then streams end."""

    def __init__(
        self, published: Callable[[], Awaitable[EventReader]], most: int, most_each: int, *, period: float = PERIOD
    ) -> None:
        self.over = False
        self.news = asyncio.Event()  # a new one whenever it was set
        self._published = published
        self._most = most
        self._most_each = most_each
        self._period = period
        self._streams: Counter[str] = Counter()
        self._recent: list[Told] = []
        self._seen: int | None = None
        self._task: asyncio.Task[None] | None = None

    # --- streams come and go

    def join(self, caller: str) -> None:
        """One more stream of this caller; a `Problem` if there are too many, of theirs or of all."""
        later = ((b"retry-after", b"5"),)
        if self.over:
            raise Problem(503, "stopping", "this process is about to stop: follow another one", headers=later)
        if self._streams[caller] >= self._most_each:
            detail = f"{self._most_each} streams are open with this token already: close one of them"
            raise Problem(429, "too-many-streams", detail, headers=later)
        if self._streams.total() >= self._most:
            detail = f"{self._most} streams are open already, and this process serves no more: try again, or elsewhere"
            raise Problem(503, "too-many-streams", detail, headers=later)
        self._streams[caller] += 1
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._follow(), name="duly-tail")

    def leave(self, caller: str) -> None:
        """One less; the last one ends the reading."""
        self._streams -= Counter({caller: 1})  # drops what has come to nothing
        if not self._streams and self._task is not None:
            self._task.cancel()
            self._task = self._seen = None
            self._recent = []

    def close(self) -> None:
        """Let all streams end."""
        self.over = True
        self._tell()

    def _tell(self) -> None:
        news, self.news = self.news, asyncio.Event()
        news.set()

    # --- what they get

    async def last(self) -> int:
        """The number of the newest notice."""
        return await (await self._published()).last()

    async def after(self, number: int) -> list[Told]:
        """The next notices after this one; none if there are no more for now."""
        if self._seen is not None and number >= self._seen:
            return []
        start = number + 1 - self._recent[0].id if self._recent else -1
        if start >= 0:
            return self._recent[start : start + SLICE]
        return await (await self._published()).read(number, SLICE)

    async def _follow(self) -> None:
        seen: int | None = None
        away = False
        while True:
            try:
                if seen is None:
                    seen = self._seen = await self.last()
                    self._tell()
                found = await (await self._published()).read(seen, SLICE)
            except BackendError as exc:
                if not away:
                    _log.warning("streams of events wait: their log cannot be read (%s)", exc)
                away = True
                await asyncio.sleep(_AFTER_FAILURE)
                continue
            away = False
            if found:
                seen = self._take(found, seen)
            if len(found) < SLICE:
                await asyncio.sleep(self._period)

    def _take(self, found: list[Told], seen: int) -> int:
        """Keep the newest in memory, without a gap, and tell the streams; the number of the last."""
        if found[0].id != seen + 1:
            self._recent = []
        self._recent = [*self._recent, *found][-_RECENT:]
        self._seen = found[-1].id
        self._tell()
        return found[-1].id
