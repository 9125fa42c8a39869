"""The user's own executors: `Scheduler(executors={"name": executor})`, chosen by a job with `executor="name"`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from msgspec import Struct

from duly.model import Run
from duly.runtime.active_runs import ActiveRun
from duly.runtime.context import Context, Contexts
from duly.runtime.handler import Handler


class HandlerCall(Struct, frozen=True):
    """One call of a handler that an executor is asked to make.

    `function` is the handler, async or not, and `arguments` are its keyword arguments as its annotations ask for.
    `context` is its first argument, None if it takes none. Calling this object calls the handler with all of them; for
    an async handler, await the result.
    """

    run: Run
    function: Callable[..., Any]
    arguments: dict[str, Any]
    context: Context | None = None

    def __call__(self) -> Any:
        given = () if self.context is None else (self.context,)
        return self.function(*given, **self.arguments)


class Executor(Protocol):
    """Decides where handlers run: a pool of threads, another interpreter, another machine.

    One object serves all runs of a node, many at a time. Duly neither opens nor closes it.
    """

    def execute(self, call: HandlerCall) -> Awaitable[Any]:
        """Call the handler. Runs on the node's event loop, which it must not block.

        Awaiting it returns what the handler returned or raises what it raised. It is cancelled when the run must stop:
        at its timeout, by an operator, or because the node stops. Whatever it then raises or returns, the run has been
        stopped as far as Duly is concerned; a handler that goes on elsewhere is left to the executor.
        """
        ...


class CustomExecutor:
    """Calls handlers through one of the user's executors."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def invoke(
        self, active: ActiveRun, handler: Handler, contexts: Contexts, arguments: dict[str, Any]
    ) -> Awaitable[Any]:
        assert callable(handler.target)
        context = contexts.of(active) if handler.takes_context else None
        contexts.begin(active)
        return self._executor.execute(HandlerCall(active.claim.run, handler.target, arguments, context))

    async def close(self) -> None:
        """Does nothing: the executor belongs to the user."""
