"""The end of an event loop: runs a callback while a loop is being shut down and still works.

`asyncio.run` and similar functions close the remaining asynchronous generators before they close their loop. The
callback therefore runs at the end of such a generator. A loop that is closed directly does not run it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable


class LoopEnd:
    """Calls a function when the loop it was armed on is shut down, unless it is disarmed before."""

    def __init__(self, call: Callable[[], Awaitable[None]]) -> None:
        self._call: Callable[[], Awaitable[None]] | None = call
        self._waiting = self._wait()

    async def arm(self) -> None:
        """From now on it is called when the running loop is shut down."""
        await anext(self._waiting)

    async def call_off(self) -> None:
        self._call = None
        await self._waiting.aclose()

    async def _wait(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            if self._call is not None:
                await self._call()
