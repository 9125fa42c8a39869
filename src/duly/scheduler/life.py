"""The life of a scheduler's node: one start at a time, one node, one stop, however many callers ask for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from duly.errors import SchedulerRunning
from duly.ports.waiting import shielded
from duly.scheduler.running_node import RunningNode
from duly.scheduler.views import ShutdownReport


class Life:
    """Knows the node that runs, is being started, or is being stopped, on whichever loop that is."""

    def __init__(self) -> None:
        self._running: RunningNode | None = None
        self._starting: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[ShutdownReport] | None = None
        self._waiters = 0

    @property
    def running(self) -> RunningNode | None:
        """The node that runs; none if its loop was closed without stopping it."""
        if self._running is not None and self._running.loop.is_closed():
            self.over()
        return self._running

    def over(self) -> None:
        """The node has ended."""
        self._running = self._stopping = None

    # --- starting

    async def start(self, make: Callable[[], Coroutine[Any, Any, RunningNode]]) -> None:
        """Return a running node: the one that runs, the one being started, or a new one."""
        if self.running is not None:
            return
        starting = self._under_way()
        if starting is None:
            starting = self._starting = asyncio.get_running_loop().create_task(self._start(make), name="duly-start")
        self._waiters += 1
        try:
            await shielded(starting)
        except asyncio.CancelledError:
            if self._waiters == 1:
                await self._call_off(starting)
            raise
        finally:
            self._waiters -= 1

    def _under_way(self) -> asyncio.Task[None] | None:
        starting = self._starting
        if starting is None or starting.done() or starting.get_loop().is_closed():
            return None
        if starting.get_loop() is not asyncio.get_running_loop():
            raise SchedulerRunning("start(): this scheduler is being started on another event loop")
        return starting

    async def _start(self, make: Callable[[], Coroutine[Any, Any, RunningNode]]) -> None:
        self._running = await make()

    async def _call_off(self, starting: asyncio.Task[None]) -> None:
        """All callers of this start were cancelled; a node that has just started is stopped again."""
        starting.cancel()
        await asyncio.wait([starting])
        if not starting.cancelled() and starting.exception() is None and self._running is not None:
            await self._running.stop(0)
            self.over()

    # --- stopping

    async def stop(self, end: Callable[[RunningNode], Coroutine[Any, Any, ShutdownReport]]) -> ShutdownReport | None:
        """Stop the running node on its own loop; None if there is none. Cancelling the caller does not interrupt it."""
        running = self.running
        if running is None:
            return None
        if running.loop is not asyncio.get_running_loop():
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.stop(end), running.loop))
        if self._stopping is None:
            self._stopping = running.loop.create_task(end(running), name="duly-stop")
        return await shielded(self._stopping)
