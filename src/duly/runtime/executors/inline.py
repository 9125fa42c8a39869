"""Async handlers, on the node's own event loop."""

from __future__ import annotations

from typing import Any

from duly.runtime.context import Contexts
from duly.runtime.handler import Handler
from duly.runtime.live import Live


class InlineExecutor:
    """Awaits the handler."""

    async def invoke(self, live: Live, handler: Handler, contexts: Contexts, arguments: dict[str, Any]) -> Any:
        assert callable(handler.target)
        if handler.takes_context:
            return await handler.target(contexts.of(live), **arguments)
        return await handler.target(**arguments)

    async def close(self) -> None:
        """Nothing to close."""
