"""Reads the store's clock now and then for a client that runs no node, so that a slow drift is followed."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from duly.errors import DulyError
from duly.ports import Backend

_PERIOD = 60.0


class ClockReader:
    """One timer on the loop of an opened session. A reading that fails is left out: the next one will do."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._timer: asyncio.TimerHandle | None = None
        self._reading: asyncio.Task[None] | None = None

    def start(self) -> None:
        if not self._backend.clock.direct:
            self._timer = asyncio.get_running_loop().call_later(_PERIOD, self._read_soon)

    def stop(self) -> None:
        for each in (self._timer, self._reading):
            if each is not None:
                each.cancel()

    def _read_soon(self) -> None:
        self._reading = asyncio.get_running_loop().create_task(self._read())
        self.start()

    async def _read(self) -> None:
        clock = self._backend.clock
        with suppress(DulyError):
            sent = clock.monotonic()
            clock.read(await self._backend.store.time(), sent)
