"""The first of the instants of many jobs, each of which is an endless sequence."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from duly.scheduler.views import Upcoming

_AT_A_TIME = 8  # schedules computed before other tasks run; one takes up to 20 ms


class NextInstants:
    """The first `limit` runs of those that are made and of the instants that are added. Instants are computed late."""

    def __init__(self, made: Sequence[Upcoming], limit: int) -> None:
        self._made = list(made)
        self._limit = limit
        self._heap: list[tuple[datetime, int, Upcoming, Iterator[Upcoming]]] = []
        self._added = 0

    def add(self, jobs: Iterable[Iterator[Upcoming]]) -> None:
        """Add the instants of these jobs, each in ascending order. Of equal instants, the first added comes first."""
        for instants in jobs:
            first = next(instants, None)
            if first is not None:
                self._added += 1
                heapq.heappush(self._heap, (first.at, self._added, first, instants))

    def complete(self, after: datetime) -> bool:
        """Whether no instant at or after that time is among the first, as far as the first instant of each job says."""
        known = [each.at for each in self._made] + [entry[0] for entry in self._heap]
        return sum(at <= after for at in known) >= self._limit

    async def first(self) -> list[Upcoming]:
        """The first of all, by time."""
        for taken in range(self._limit):
            if not self._heap:
                break
            if taken % _AT_A_TIME == _AT_A_TIME - 1:
                await asyncio.sleep(0)
            _, number, found, instants = self._heap[0]
            self._made.append(found)
            following = next(instants, None)
            if following is None:
                heapq.heappop(self._heap)
            else:
                heapq.heapreplace(self._heap, (following.at, number, following, instants))
        return sorted(self._made, key=lambda upcoming: upcoming.at)[: self._limit]
