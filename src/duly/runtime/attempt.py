"""Attempts: one call of a handler, from a claim to an outcome.

A sequence of small steps; whatever the user's code does, the result is a value. The settler stores it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from duly.errors import DulyError, GiveUp, PayloadError, ReturnMismatch, RunCancelled
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
from duly.model.current_run import current_run
from duly.model.event import AfterCommitFailed, HookFailed, RecordUnreadable
from duly.runtime.active_runs import ActiveRun, Unbegun
from duly.runtime.context import Contexts
from duly.runtime.deadlines import Deadlines
from duly.runtime.environment import Environment
from duly.runtime.executors import BuiltinExecutor, RemoteFailure
from duly.runtime.failures import failure_of, stopped_at
from duly.runtime.handler import Handler
from duly.runtime.hooks import Hooks

_SUCCEEDED = Succeeded()
_LONGEST_CHAIN = 20

# Read `__context__` and `__cause__` through the base class: a user's exception class may override them.
_BEFORE: Callable[[BaseException], BaseException | None] = vars(BaseException)["__cause__"].__get__
_MEANWHILE: Callable[[BaseException], BaseException | None] = vars(BaseException)["__context__"].__get__


class Attempts:
    """Makes attempts."""

    def __init__(
        self,
        env: Environment,
        executors: Mapping[str, BuiltinExecutor],
        deadlines: Deadlines,
        hooks: Hooks,
        contexts: Contexts,
    ) -> None:
        self._executors = executors
        self._deadlines = deadlines
        self._hooks = hooks
        self._contexts = contexts
        self._emit = env.emit
        self._max_result_bytes = env.config.max_result_bytes

    async def make(self, active: ActiveRun) -> Outcome | None:
        """Call the handler and return how it ended; None if this node lost the run and has nothing to settle."""
        handler, run = active.handler, active.claim.run
        if run.damage is not None:
            self._emit(RecordUnreadable("run", run.id, run.damage))
            return Failed(Failure("Unreadable", run.damage), Verdict.NEVER)
        if handler is None:
            return Interrupted(began=False)
        policy = run.policy
        current_run.set(run)
        try:
            arguments = handler.decode(run.payload)
            if policy.timeout is not None:
                self._deadlines.add(active, policy.timeout)
            value = await self._executors[handler.executor].invoke(active, handler, self._contexts, arguments)
        except Unbegun:
            active.ended = True
            return _unbegun(active)
        except GeneratorExit as exc:  # no await from here on: this coroutine may be being closed
            active.ended = True
            return Failed(failure_of(exc), Verdict.NEVER)
        except BaseException as exc:  # noqa: BLE001  # a handler's failure is an outcome, SystemExit and all
            active.ended = True
            return await self._after_exception(active, handler, run, exc)
        active.ended = True
        if active.asked_to_stop or policy.delivery is Delivery.EXACTLY_ONCE:
            return await self._after_return(active, handler, run, value)
        if value is None and handler.may_return_none:
            return _SUCCEEDED
        return await self._returned(active, handler, run, value)

    # --- the handler returned

    async def _after_return(self, active: ActiveRun, handler: Handler, run: Run, value: Any) -> Outcome | None:
        """The handler may have been asked to stop and have returned nevertheless."""
        if active.lost:
            return None
        if active.timed_out and not active.committed:
            return await self._after_timeout(active, handler, run)
        if active.cancelled and not active.committed:
            return Cancelled()
        if run.policy.delivery is Delivery.EXACTLY_ONCE and not active.committed:
            exc = DulyError(f"job {run.job!r} is exactly_once, but its handler returned without ctx.transaction()")
            return await self._judged(active, handler, run, exc, GiveUp())
        return await self._returned(active, handler, run, value)

    async def _returned(self, active: ActiveRun, handler: Handler, run: Run, value: Any) -> Outcome:
        """A value that its annotation does not promise is a failure; it is not tried again, as its effects happened.

        A transaction that has committed has completed its run: then the mistake is only reported.
        """
        if value is None and handler.may_return_none:
            return _SUCCEEDED
        try:
            return self._succeeded(handler, value)
        except ReturnMismatch as exc:
            if not active.committed:
                return await self._judged(active, handler, run, exc, GiveUp())
            self._emit(AfterCommitFailed(run.id, run.job, failure_of(exc)))
            return Succeeded(note=f"result not kept: {sanitize.text_of(exc, sanitize.MOST_REASON)}")

    def _succeeded(self, handler: Handler, value: Any) -> Succeeded:
        """The work is done: the run completes even if its result cannot be stored."""
        try:
            result = handler.encode(value)
        except Exception as exc:  # whatever an encoder says about a value, the run has completed
            if inspect.isawaitable(value):
                raise _never_awaited(handler, value) from None
            if isinstance(exc, ReturnMismatch):
                raise
            return Succeeded(note=f"result not kept: {sanitize.text_of(exc, sanitize.MOST_REASON)}")
        if result is not None and len(result) > self._max_result_bytes:
            kept = f"max_result_bytes={self._max_result_bytes}"
            return Succeeded(note=f"result not kept: {len(result)} bytes are more than {kept}")
        return Succeeded(result)

    # --- the handler raised

    async def _after_exception(
        self, active: ActiveRun, handler: Handler, run: Run, exc: BaseException
    ) -> Outcome | None:
        if isinstance(exc, asyncio.CancelledError):
            _forget_cancellation()
        if active.committed:
            if not isinstance(exc, asyncio.CancelledError):
                self._emit(AfterCommitFailed(run.id, run.job, failure_of(exc)))
            return Succeeded()
        if active.lost or (active.untrusted and run.policy.on_store_loss is StoreLoss.STOP):
            return None
        if active.timed_out:
            return await self._after_timeout(active, handler, run, stopped_at(exc))
        if active.cancelled:
            return Cancelled()
        if active.released and _follows_from_stop(exc):
            return Interrupted(began=active.began)
        if isinstance(exc, RemoteFailure) and exc.type_name == "ResultError":
            return Succeeded(note=f"result not kept: {sanitize.text_of(exc.message, sanitize.MOST_REASON)}")
        return await self._judged(active, handler, run, exc, GiveUp() if isinstance(exc, PayloadError) else None)

    def cut_short(self, active: ActiveRun) -> Outcome:
        """What to record for an attempt that is no longer waited for: its handler still runs, or a hook hangs."""
        if active.committed:
            return Succeeded()
        if active.ended and active.error is not None:
            kind = TimedOut if active.timed_out else Failed
            return kind(failure_of(active.error))
        return Interrupted(began=active.began)

    async def _after_timeout(self, active: ActiveRun, handler: Handler, run: Run, stopped: str = "") -> Outcome:
        exc = TimeoutError(f"{run.job!r} took longer than its timeout of {run.policy.timeout:g} s")
        active.error = exc
        verdict, delay = await self._decide(handler, run, exc, None)
        return TimedOut(sanitize.failure("TimeoutError", str(exc), stopped), verdict, delay)

    async def _judged(
        self, active: ActiveRun, handler: Handler, run: Run, exc: BaseException, default: GiveUp | None
    ) -> Failed:
        active.error = exc
        verdict, delay = await self._decide(handler, run, exc, default)
        return Failed(failure_of(exc), verdict, delay)

    async def _decide(
        self, handler: Handler, run: Run, exc: BaseException, default: GiveUp | None
    ) -> tuple[Verdict, float | None]:
        """A hook's decision, if there is one, else the retry policy's."""
        opinion = await self._hooks.on_error(run, handler, exc)
        try:
            return handler.retry.judge(opinion or default or exc, run.failures + 1)
        except BaseException as broken:  # noqa: BLE001  # a custom strategy is the user's code: then the numbers decide
            self._emit(HookFailed("retry strategy", run.job, run.id, failure_of(broken)))
            return Verdict.POLICY, None


def _never_awaited(handler: Handler, value: Any) -> ReturnMismatch:
    """A plain function returned a coroutine: nothing of its work has been done."""
    if inspect.iscoroutine(value):
        value.close()
    return ReturnMismatch(
        f"{handler.name} returned a {type(value).__qualname__}, which nobody awaits: define it with `async def`"
    )


def _unbegun(active: ActiveRun) -> Outcome | None:
    """What to record of an attempt whose handler was not called: nothing, unless the run was cancelled."""
    if active.lost:
        return None
    return Cancelled() if active.cancelled else Interrupted(began=False)


def _follows_from_stop(exc: BaseException) -> bool:
    """Whether an exception comes from a request to stop, or was raised while handling one."""
    link: BaseException | None = exc
    for _ in range(_LONGEST_CHAIN):
        if link is None or isinstance(link, asyncio.CancelledError | RunCancelled):
            return link is not None
        link = _BEFORE(link) or _MEANWHILE(link)
    return False


def _forget_cancellation() -> None:
    """Clear the cancellation, which was meant for the handler: the rest of this task is runtime code and may await."""
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()
