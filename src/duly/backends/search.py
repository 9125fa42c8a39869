"""Searching for the runs of a page: candidates in order, read in growing slices, until the page is full.

A store supplies streams of keys in the order of the listing and reads runs by key. A search that has looked at its
budget of runs, or has taken too long, stops and says how far it came, so that no listing costs as much as the history
is long.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from heapq import merge
from itertools import islice
from typing import Any, Generic, TypeVar

from msgspec import Struct

from duly.model import Page, Run, RunQuery, from_micros

K = TypeVar("K", bound=tuple[Any, ...])

# The keys of candidates after this one (None: from the beginning), at most this number, sorted in the listing's order.
Keys = Callable[[K | None, int], Awaitable[Sequence[K]]]

# Counts only after `_LEAST` runs, and as many as a page has: small stores and large pages do not depend on the machine.
MOST_SECONDS = 0.1
_LEAST = 1_000
_FIRST = 64
_MOST = 500


class Descending(str):
    """A text that sorts before smaller ones."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        return str.__gt__(self, other)

    def __gt__(self, other: str) -> bool:
        return str.__lt__(self, other)

    def __le__(self, other: str) -> bool:
        return str.__ge__(self, other)

    def __ge__(self, other: str) -> bool:
        return str.__le__(self, other)


class Budget:
    """How many runs a search may look at."""

    def __init__(self, scan: int, limit: int) -> None:
        self.searched = 0
        self._least = max(_LEAST, limit + 1)
        self._scan = max(1, scan)
        self._until = time.monotonic() + MOST_SECONDS

    @property
    def left(self) -> int:
        """How many more; 0 if the search is to stop."""
        late = self.searched >= self._least and time.monotonic() > self._until
        return 0 if late else max(0, self._scan - self.searched)


class Wanted(Struct, frozen=True):
    """One page of the runs that match, as they stand at `now` (microseconds), after looking at `scan` runs at most."""

    query: RunQuery
    limit: int
    scan: int
    now: int


class Streams(Generic[K]):
    """Several streams of keys as one, the smallest key first. What was fetched too early is kept for later."""

    def __init__(self, streams: Sequence[Keys[K]], after: K | None) -> None:
        self._streams = streams
        self._buffers: list[list[K]] = [[] for _ in streams]
        self._last: list[K | None] = [after for _ in streams]
        self._over = [False for _ in streams]

    async def take(self, number: int) -> list[K]:
        """The next keys, fewer only if there are no more."""
        for place, stream in enumerate(self._streams):
            missing = number - len(self._buffers[place])
            if missing > 0 and not self._over[place]:
                fetched = await stream(self._last[place], missing)
                self._over[place] = len(fetched) < missing
                self._buffers[place].extend(fetched)
                self._last[place] = fetched[-1] if fetched else self._last[place]
        taken = list(islice(merge(*self._buffers), number))
        if taken:
            for buffer in self._buffers:
                del buffer[: sum(key <= taken[-1] for key in buffer[:number])]
        return taken


async def search(
    streams: Streams[K],
    read: Callable[[list[K]], Awaitable[dict[K, Run]]],
    wanted: Wanted,
    cursor: Callable[[K], str],
    reached: Callable[[K], Awaitable[datetime | None]],
) -> Page:
    """One page. `read` returns the candidates that exist and may match; `reached` when a candidate was created."""
    runs: list[tuple[K, Run]] = []
    budget, now = Budget(wanted.scan, wanted.limit), from_micros(wanted.now)
    size, more, last = max(_FIRST, min(_MOST, wanted.limit + 1)), True, None
    while more and budget.left and len(runs) <= wanted.limit:
        part = await streams.take(asked := min(size, budget.left))
        found = await read(part) if part else {}
        runs += [(key, found[key]) for key in part if key in found and wanted.query.matches(found[key], now)]
        budget.searched += len(part)
        more, size = len(part) == asked, min(size * 4, _MOST)
        last = part[-1] if part else last
    shown = [run for _, run in runs[: wanted.limit]]
    if len(runs) > wanted.limit:
        return Page(shown, cursor(runs[wanted.limit - 1][0]) if wanted.limit > 0 else None)
    if not more or last is None:
        return Page(shown)
    return Page(shown, cursor(last), await reached(last), budget.searched)
