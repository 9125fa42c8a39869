"""Deadlines: one heap and one timer for the timeouts of all attempts, instead of a timer for each."""

from __future__ import annotations

import asyncio
import heapq
from itertools import count

from duly.runtime.active_runs import ActiveRun

_SWEEP = 1024


class Deadlines:
    """Stops attempts whose time is up. Belongs to one event loop."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, ActiveRun]] = []
        self._order = count()
        self._timer: asyncio.TimerHandle | None = None
        self._sweep_at = _SWEEP

    def add(self, active: ActiveRun, timeout: float) -> None:
        """Stop this attempt `timeout` seconds from now, unless it has ended by then."""
        self._sweep()
        loop = asyncio.get_running_loop()
        when = loop.time() + timeout
        heapq.heappush(self._heap, (when, next(self._order), active))
        if self._heap[0][2] is active:
            self._arm(loop)

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(self._heap[0][0], self._expire, loop) if self._heap else None

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        while self._heap and (self._heap[0][0] <= now or self._heap[0][2].ended):
            active = heapq.heappop(self._heap)[2]
            if not active.ended:
                active.timed_out = True
                active.stop()
        self._timer = None
        self._arm(loop)

    def _sweep(self) -> None:
        """Remove ended attempts: most end long before their timeout and would stay in the heap until then."""
        if len(self._heap) > self._sweep_at:
            self._heap = [entry for entry in self._heap if not entry[2].ended]
            heapq.heapify(self._heap)
            self._sweep_at = max(_SWEEP, 2 * len(self._heap))

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._heap.clear()
