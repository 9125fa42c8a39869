"""Async handlers, on the node's own event loop."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from duly.runtime.active_runs import ActiveRun
from duly.runtime.context import Contexts
from duly.runtime.handler import Handler


class InlineExecutor:
    """Hands the handler's own coroutine to whoever awaits the attempt: no frame in between."""

    def invoke(
        self, active: ActiveRun, handler: Handler, contexts: Contexts, arguments: dict[str, Any]
    ) -> Awaitable[Any]:
        assert callable(handler.target)
        contexts.begin(active)
        called: Awaitable[Any] = (
            handler.target(contexts.of(active), **arguments) if handler.takes_context else handler.target(**arguments)
        )
        return called

    async def close(self) -> None:
        """Nothing to close."""
