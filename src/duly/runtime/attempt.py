"""Attempts: one call of a handler, from a claim to an outcome.

A straight line of small steps; whatever the user's code does, the end is a value. Settling is the settler's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from duly.errors import DulyError, GiveUp, PayloadError
from duly.model import (
    Cancelled,
    Delivery,
    Failed,
    Failure,
    Interrupted,
    Outcome,
    Run,
    StoreLoss,
    Succeeded,
    TimedOut,
    Verdict,
    sanitize,
)
from duly.model.current import current_run
from duly.model.event import AfterCommitFailed, HookFailed, RecordUnreadable
from duly.runtime.context import Contexts
from duly.runtime.deadlines import Deadlines
from duly.runtime.executors import Executor, RemoteFailure
from duly.runtime.failures import failure_of
from duly.runtime.handler import ExecutorKind, Handler
from duly.runtime.hooks import Hooks
from duly.runtime.live import Live
from duly.runtime.surroundings import Surroundings

_SUCCEEDED = Succeeded()


class Attempts:
    """Makes attempts."""

    def __init__(
        self,
        around: Surroundings,
        executors: Mapping[ExecutorKind, Executor],
        deadlines: Deadlines,
        hooks: Hooks,
        contexts: Contexts,
    ) -> None:
        self._executors = executors
        self._deadlines = deadlines
        self._hooks = hooks
        self._contexts = contexts
        self._emit = around.emit
        self._max_result_bytes = around.config.max_result_bytes

    async def make(self, live: Live) -> Outcome | None:
        """Call the handler and say how it ended. None: the run is no longer ours, there is nothing to settle."""
        handler, run = live.handler, live.claim.run
        if run.damage is not None:
            self._emit(RecordUnreadable("run", run.id, run.damage))
            return Failed(Failure("Unreadable", run.damage), Verdict.NEVER)
        if handler is None:
            return Interrupted(began=False)
        current_run.set(run)
        try:
            arguments = handler.decode(run.payload)
            if run.policy.timeout is not None:
                self._deadlines.add(live, run.policy.timeout)
            live.began = True
            value = await self._executors[handler.executor].invoke(live, handler, self._contexts, arguments)
        except GeneratorExit as exc:  # nothing may be awaited any more, in case it is this coroutine that is closed
            live.ended = True
            return Failed(failure_of(exc), Verdict.NEVER)
        except BaseException as exc:  # noqa: BLE001  # a handler's failure is an outcome, SystemExit and all
            live.ended = True
            return await self._after_exception(live, handler, run, exc)
        live.ended = True
        if live.told or run.policy.delivery is Delivery.EXACTLY_ONCE:
            return await self._after_return(live, handler, run, value)
        return self._succeeded(handler, value)

    # --- the handler returned

    async def _after_return(self, live: Live, handler: Handler, run: Run, value: Any) -> Outcome | None:
        """It may have been overtaken: told to stop, and returned all the same."""
        if live.lost:
            return None
        if live.timed_out and not live.committed:
            return await self._after_timeout(live, handler, run)
        if live.cancelled and not live.committed:
            return Cancelled()
        if run.policy.delivery is Delivery.EXACTLY_ONCE and not live.committed:
            exc = DulyError(f"job {run.job!r} is exactly_once, but its handler returned without ctx.transaction()")
            return await self._judged(live, handler, run, exc, GiveUp())
        return self._succeeded(handler, value)

    def _succeeded(self, handler: Handler, value: Any) -> Succeeded:
        """The work is done; a result that cannot be kept does not undo it."""
        if value is None:
            return _SUCCEEDED
        try:
            result = handler.encode(value)
        except Exception as exc:  # noqa: BLE001  # whatever an encoder says about a value, the run has completed
            return Succeeded(note=f"result not kept: {sanitize.text_of(exc, sanitize.MOST_REASON)}")
        if result is not None and len(result) > self._max_result_bytes:
            kept = f"max_result_bytes={self._max_result_bytes}"
            return Succeeded(note=f"result not kept: {len(result)} bytes are more than {kept}")
        return Succeeded(result)

    # --- the handler raised

    async def _after_exception(self, live: Live, handler: Handler, run: Run, exc: BaseException) -> Outcome | None:
        if isinstance(exc, asyncio.CancelledError):
            _forget_cancellation()
        if live.committed:
            if not isinstance(exc, asyncio.CancelledError):
                self._emit(AfterCommitFailed(run.id, run.job, failure_of(exc)))
            return Succeeded()
        if live.lost or (live.untrusted and run.policy.on_store_loss is StoreLoss.STOP):
            return None
        if live.timed_out:
            return await self._after_timeout(live, handler, run)
        if live.cancelled:
            return Cancelled()
        if live.released and isinstance(exc, asyncio.CancelledError):
            return None if live.residue is not None else Interrupted()
        if isinstance(exc, RemoteFailure) and exc.type_name == "ResultError":
            return Succeeded(note=f"result not kept: {sanitize.text_of(exc.message, sanitize.MOST_REASON)}")
        return await self._judged(live, handler, run, exc, GiveUp() if isinstance(exc, PayloadError) else None)

    async def _after_timeout(self, live: Live, handler: Handler, run: Run) -> Outcome:
        exc = TimeoutError(f"{run.job!r} took longer than its timeout of {run.policy.timeout:g} s")
        live.error = exc
        verdict, delay = await self._decide(handler, run, exc, None)
        return TimedOut(Failure("TimeoutError", str(exc)), verdict, delay)

    async def _judged(
        self, live: Live, handler: Handler, run: Run, exc: BaseException, default: GiveUp | None
    ) -> Failed:
        live.error = exc
        verdict, delay = await self._decide(handler, run, exc, default)
        return Failed(failure_of(exc), verdict, delay)

    async def _decide(
        self, handler: Handler, run: Run, exc: BaseException, default: GiveUp | None
    ) -> tuple[Verdict, float | None]:
        """A hook's opinion first, then the retry policy's."""
        opinion = await self._hooks.on_error(run, handler, exc)
        try:
            return handler.retry.judge(opinion or default or exc, run.failures + 1)
        except BaseException as broken:  # noqa: BLE001  # a custom strategy is the user's code: then the numbers decide
            self._emit(HookFailed("retry strategy", run.job, run.id, failure_of(broken)))
            return Verdict.POLICY, None


def _forget_cancellation() -> None:
    """The cancellation was for the handler; what follows in this task is ours and may await."""
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()
