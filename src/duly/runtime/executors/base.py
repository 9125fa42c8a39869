"""What an executor is."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Protocol

from duly.runtime.active_runs import ActiveRun
from duly.runtime.context import Contexts
from duly.runtime.handler import Handler


class BuiltinExecutor(Protocol):
    """Runs handlers of one kind. Opened with the node, closed with it."""

    def invoke(
        self, active: ActiveRun, handler: Handler, contexts: Contexts, arguments: dict[str, Any]
    ) -> Awaitable[Any]:
        """Call the handler. Awaiting it returns the value or raises what the handler raised, including SystemExit.

        `contexts` makes the context, if the handler takes one or the executor needs one. `contexts.begin` is called as
        late as possible, right before the handler; it may raise `Unbegun`.
        """
        ...

    async def close(self) -> None:
        """Stop what still runs and release all resources."""
        ...


class RemoteFailure(Exception):
    """An exception of a handler in another process: its class by name, its text, its traceback.

    `lineage` are the qualified names of its class and base classes, so that retry rules by class apply here too. The
    type `ResultError` means that the handler has returned, but its value cannot be transferred.
    """

    def __init__(self, type_name: str, message: str, traceback: str = "", lineage: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.type_name = type_name
        self.message = message
        self.traceback = traceback
        self.lineage = lineage


class InlineExecutor:
    """Async handlers, on the node's own event loop: the attempt awaits the handler's own coroutine."""

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
