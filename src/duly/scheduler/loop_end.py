"""The end of an event loop: has something done while a loop is being shut down and can still do it.

`asyncio.run` and its like close the asynchronous generators that are left before they close their loop. What is to be
done is therefore the end of such a generator. A loop that is only closed gives no notice.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable


class LoopEnd:
    """Calls something when the loop it was armed on is shut down, unless that is called off before."""

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
