"""Hooks: user functions that decide how a failure is handled. A hook that fails is an event, never a crash.

A hook runs in the node's loop, or in a daemon thread if it is not async. A hook that hangs is abandoned after a while,
with its thread. The number of such threads is bounded, so that hanging hooks do not affect runs.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from duly.errors import DulyError, GiveUp, Retry
from duly.model import Failure, Run
from duly.model.event import Emit, HookFailed
from duly.ports.waiting import noticed
from duly.runtime.failures import failure_of
from duly.runtime.handler import Decision, Handler
from duly.runtime.threads import DaemonThreads

_PATIENCE = 30.0
_PATIENCE_AT_THE_END = 0.3
_MOST_THREADS = 32
_MOST_ENDS = 1000


class Hooks:
    """Calls a job's own hooks, then those of the whole scheduler. Belongs to one event loop."""

    def __init__(self, on_error: Callable[..., Any] | None, on_failure: Callable[..., Any] | None, emit: Emit) -> None:
        self._on_error = () if on_error is None else (on_error,)
        self._on_failure = () if on_failure is None else (on_failure,)
        self._emit = emit
        self._threads = DaemonThreads("duly-hook")
        self._patience = _PATIENCE
        self._awaited: set[asyncio.Timeout] = set()
        self._busy = 0
        self._ends: set[asyncio.Task[None]] = set()

    async def on_error(self, run: Run, handler: Handler | None, exc: BaseException) -> Decision:
        """The decision of the first hook that makes one about a failed attempt."""
        own = handler.on_error if handler else ()
        for hook in (*own, *self._on_error):
            answer = await self._call("on_error", hook, run, handler, exc)
            if isinstance(answer, Retry | GiveUp):
                return answer
        return None

    def ended(self, run: Run, handler: Handler | None, exc: BaseException) -> None:
        """Notify every hook that a run has ended as failed or lost; returns at once."""
        if not (self._on_failure or (handler and handler.on_failure)):
            return
        if len(self._ends) >= _MOST_ENDS:
            reason = f"{_MOST_ENDS} hooks are already running: this one was skipped"
            self._emit(HookFailed("on_failure", run.job, run.id, Failure("TooManyHooks", reason)))
            return
        task = asyncio.get_running_loop().create_task(self._tell_end(run, handler, exc))
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)

    async def _tell_end(self, run: Run, handler: Handler | None, exc: BaseException) -> None:
        own = handler.on_failure if handler else ()
        for hook in (*own, *self._on_failure):
            await self._call("on_failure", hook, run, handler, exc)

    async def finish(self) -> None:
        """Wait for the hooks that are under way."""
        if self._ends:
            await asyncio.wait(self._ends)

    def hurry(self) -> None:
        """The node is stopping: from now on wait only a moment for each hook, including those under way."""
        self._patience = _PATIENCE_AT_THE_END
        soon = asyncio.get_running_loop().time() + self._patience
        for limit in self._awaited:
            limit.reschedule(min(soon, limit.when() or soon))

    def close(self) -> None:
        """Abandon the hooks that still hang."""
        for task in self._ends:
            task.cancel()
        self._threads.close()

    async def _call(
        self, name: str, hook: Callable[..., Any], run: Run, handler: Handler | None, exc: BaseException
    ) -> Any:
        job = handler.job if handler else None
        try:
            async with asyncio.timeout(self._patience) as limit, self._limited(limit):
                if inspect.iscoroutinefunction(hook):
                    return await hook(run, job, exc)
                answer = await self._in_thread(lambda: hook(run, job, exc))
                return await answer if inspect.isawaitable(answer) else answer
        except BaseException as failed:  # a hook is the user's code: its failure is reported, not raised
            task = asyncio.current_task()
            if isinstance(failed, asyncio.CancelledError | GeneratorExit) and task is not None and task.cancelling():
                raise
            self._emit(HookFailed(name, run.job, run.id, failure_of(failed)))
            return None

    @asynccontextmanager
    async def _limited(self, limit: asyncio.Timeout) -> AsyncIterator[None]:
        """Register the block's time limit, so that `hurry` can shorten it."""
        self._awaited.add(limit)
        try:
            yield
        finally:
            self._awaited.discard(limit)

    async def _in_thread(self, call: Callable[[], Any]) -> Any:
        if self._busy >= _MOST_THREADS:
            raise DulyError(f"{_MOST_THREADS} hooks already hang, each in a thread: this one was skipped")
        self._busy += 1
        future = self._threads.submit(call)
        future.add_done_callback(self._free)
        return await asyncio.shield(future)

    def _free(self, future: asyncio.Future[Any]) -> None:
        self._busy -= 1
        noticed(future)
