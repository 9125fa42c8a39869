"""The steps of a shutdown, each with a time limit. A step that fails or hangs is reported, and the next one begins."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from duly.model import Failure
from duly.model.event import Emit, StopHindered
from duly.ports.waiting import noticed
from duly.runtime.failures import failure_of

_SHORTEST = 0.1  # what every stage gets, however late it begins


class Stages:
    """Measures time from `begin` on: from that moment every wait has a limit."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()

    def begin(self) -> None:
        self._began = self._loop.time()

    def aside(self, name: str, work: Coroutine[Any, Any, object]) -> asyncio.Task[None]:
        """Begin a stage that goes on beside others; `end` it later."""
        return self._loop.create_task(self._told(name, work), name=f"duly-stop: {name}")

    async def run(self, name: str, work: Coroutine[Any, Any, object], until: float) -> None:
        """Do something, at the latest until `until` seconds after the beginning."""
        await self.end(name, self.aside(name, work), until)

    async def end(self, name: str, stage: asyncio.Task[None], until: float) -> None:
        """Wait for a stage no longer than that. What is not done by then is left, even if it cannot be cancelled."""
        try:
            await asyncio.wait([stage], timeout=max(self._began + until - self._loop.time(), _SHORTEST))
            if not stage.done():
                self._emit(StopHindered(name, Failure("TimeoutError", "not done in time; the stop goes on without it")))
        finally:
            stage.add_done_callback(noticed)
            stage.cancel()

    async def _told(self, name: str, work: Coroutine[Any, Any, object]) -> None:
        try:
            await work
        except Exception as exc:  # noqa: BLE001  # a stage must not prevent the others; the event reports it
            self._emit(StopHindered(name, failure_of(exc)))
