"""Async handlers, on the node's own event loop."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from duly.runtime.context import Contexts
from duly.runtime.handler import Handler
from duly.runtime.live import Live


class InlineExecutor:
    """Hands the handler's own coroutine to whoever awaits the attempt: no frame in between."""

    def invoke(self, live: Live, handler: Handler, contexts: Contexts, arguments: dict[str, Any]) -> Awaitable[Any]:
        assert callable(handler.target)
        contexts.begin(live)
        called: Awaitable[Any] = (
            handler.target(contexts.of(live), **arguments) if handler.takes_context else handler.target(**arguments)
        )
        return called

    async def close(self) -> None:
        """Nothing to close."""
