"""Follows the log of events once for all streams of this process, as long as there are any.

The newest events are kept in memory, so that a stream that keeps up does not read the store. A slow stream, or one that
starts further back, reads slices from the store: no stream has a buffer that could grow.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable

from duly.api.problems import Problem
from duly.errors import BackendError
from duly.scheduler.event_reader import EventReader, ReadEvent

PERIOD = 0.25
SLICE = 500

_RECENT = 2_000
_AFTER_FAILURE = 1.0

_log = logging.getLogger("duly.api")


class EventTail:
    """Belongs to one event loop. `over` is set when the process is about to stop: then streams end."""

    def __init__(
        self, reader: Callable[[], Awaitable[EventReader]], most: int, most_per_caller: int, *, period: float = PERIOD
    ) -> None:
        self.over = False
        self.news = asyncio.Event()  # replaced each time it is set
        self._reader = reader
        self._most = most
        self._most_per_caller = most_per_caller
        self._period = period
        self._streams: Counter[str] = Counter()
        self._recent: list[ReadEvent] = []
        self._seen: int | None = None
        self._task: asyncio.Task[None] | None = None

    # --- streams

    def join(self, caller: str) -> None:
        """Count one more stream of events of this caller, as `admit` does, and read them."""
        self.admit(caller)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._follow(), name="duly-tail")

    def admit(self, caller: str) -> None:
        """Count one more stream of this caller; raises a `Problem` if there are too many."""
        later = ((b"retry-after", b"5"),)
        if self.over:
            raise Problem(503, "stopping", "this process is about to stop: use another one", headers=later)
        if self._streams[caller] >= self._most_per_caller:
            detail = f"{self._most_per_caller} streams are already open with this token: close one of them"
            raise Problem(429, "too-many-streams", detail, headers=later)
        if self._streams.total() >= self._most:
            detail = f"this process serves at most {self._most} streams: try again, or use another one"
            raise Problem(503, "too-many-streams", detail, headers=later)
        self._streams[caller] += 1

    def leave(self, caller: str) -> None:
        """Count one stream less; with the last one, reading ends."""
        self._streams -= Counter({caller: 1})  # removes callers without streams
        if not self._streams and self._task is not None:
            self._task.cancel()
            self._task = self._seen = None
            self._recent = []

    def close(self) -> None:
        """End all streams."""
        self.over = True
        self._notify()

    def _notify(self) -> None:
        news, self.news = self.news, asyncio.Event()
        news.set()

    # --- events

    async def last(self) -> int:
        """The id of the newest event."""
        return await (await self._reader()).last()

    async def after(self, number: int) -> list[ReadEvent]:
        """The next events after this id; none if there are no more for now."""
        if self._seen is not None and number >= self._seen:
            return []
        start = number + 1 - self._recent[0].id if self._recent else -1
        if start >= 0:
            return self._recent[start : start + SLICE]
        return await (await self._reader()).read(number, SLICE)

    async def _follow(self) -> None:
        seen: int | None = None
        away = False
        while True:
            try:
                if seen is None:
                    seen = self._seen = await self.last()
                    self._notify()
                found = await (await self._reader()).read(seen, SLICE)
            except BackendError as exc:
                if not away:
                    _log.warning("streams of events are waiting: the log of events cannot be read (%s)", exc)
                away = True
                await asyncio.sleep(_AFTER_FAILURE)
                continue
            away = False
            if found:
                seen = self._take(found, seen)
            if len(found) < SLICE:
                await asyncio.sleep(self._period)

    def _take(self, found: list[ReadEvent], seen: int) -> int:
        """Keep the newest events in memory, without a gap, and notify the streams; returns the last id."""
        if found[0].id != seen + 1:
            self._recent = []
        self._recent = [*self._recent, *found][-_RECENT:]
        self._seen = found[-1].id
        self._notify()
        return found[-1].id
