"""Hooks: the user's say in what becomes of a failure. A hook that fails is an event, never a crash."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from duly.errors import GiveUp, Retry
from duly.model import Run
from duly.model.event import HookFailed
from duly.runtime.failures import failure_of
from duly.runtime.handler import Decision, Handler
from duly.runtime.service import Emit

_PATIENCE = 30.0


class Hooks:
    """Calls a job's own hooks, then those of the whole scheduler."""

    def __init__(self, on_error: Callable[..., Any] | None, on_failure: Callable[..., Any] | None, emit: Emit) -> None:
        self._on_error = () if on_error is None else (on_error,)
        self._on_failure = () if on_failure is None else (on_failure,)
        self._emit = emit

    async def on_error(self, run: Run, handler: Handler | None, exc: BaseException) -> Decision:
        """What the first hook with an opinion says about a failed attempt."""
        own = handler.on_error if handler else ()
        for hook in (*own, *self._on_error):
            answer = await self._call("on_error", hook, run, handler, exc)
            if isinstance(answer, Retry | GiveUp):
                return answer
        return None

    async def on_failure(self, run: Run, handler: Handler | None, exc: BaseException) -> None:
        """Tell every hook that a run has ended failed or lost."""
        own = handler.on_failure if handler else ()
        for hook in (*own, *self._on_failure):
            await self._call("on_failure", hook, run, handler, exc)

    def wants_failures(self, handler: Handler | None) -> bool:
        """Whether anybody listens to the ends of runs of this handler."""
        return bool(self._on_failure or (handler and handler.on_failure))

    async def _call(
        self, name: str, hook: Callable[..., Any], run: Run, handler: Handler | None, exc: BaseException
    ) -> Any:
        job = handler.job if handler else None
        try:
            async with asyncio.timeout(_PATIENCE):
                if inspect.iscoroutinefunction(hook):
                    return await hook(run, job, exc)
                answer = await asyncio.to_thread(hook, run, job, exc)
                return await answer if inspect.isawaitable(answer) else answer
        except Exception as failed:  # noqa: BLE001  # a hook is the user's code: its failure is told, not passed on
            self._emit(HookFailed(name, run.job, run.id, failure_of(failed)))
            return None
