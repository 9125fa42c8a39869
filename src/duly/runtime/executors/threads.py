"""Sync handlers, in threads.

A thread cannot be stopped. At its timeout the attempt is recorded and the thread left behind; its slot must
not be reused before `active.residue` completes.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any

from duly.runtime.active_runs import ActiveRun
from duly.runtime.context import Context, Contexts
from duly.runtime.handler import Handler
from duly.runtime.threads import DaemonThreads


class ThreadExecutor:
    """Each call in a thread."""

    def __init__(self) -> None:
        self._threads = DaemonThreads("duly-handler")

    async def invoke(self, active: ActiveRun, handler: Handler, contexts: Contexts, arguments: dict[str, Any]) -> Any:
        context = contexts.of(active) if handler.takes_context else None
        future = self._threads.submit(_call(active, handler, contexts, context, arguments))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if not future.done():
                active.residue = _ended(future)
            raise

    async def close(self) -> None:
        """Let idle threads end; one that still runs a handler ends with the process."""
        self._threads.close()


def _call(
    active: ActiveRun, handler: Handler, contexts: Contexts, context: Context | None, arguments: dict[str, Any]
) -> Callable[[], Any]:
    assert callable(handler.target)
    target = handler.target
    given = () if context is None else (context,)
    variables = contextvars.copy_context()

    def call() -> Any:
        contexts.begin(active)
        return variables.run(target, *given, **arguments)

    return call


def _ended(future: asyncio.Future[Any]) -> asyncio.Future[None]:
    """A future that completes when the other one does, whatever its outcome."""
    residue: asyncio.Future[None] = future.get_loop().create_future()

    def complete(done: asyncio.Future[Any]) -> None:
        if not done.cancelled():
            done.exception()  # retrieve it, so that asyncio does not log that it was never retrieved
        if not residue.done():
            residue.set_result(None)

    future.add_done_callback(complete)
    return residue
