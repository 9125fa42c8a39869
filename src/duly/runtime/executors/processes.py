"""Sync and async handlers in child interpreters, which can be killed.

A child runs one handler at a time and is used again, as starting one takes a while. It dies with its whole process
group when the call is cancelled, and with the worker, however that ends.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec

from duly.errors import GiveUp, Retry
from duly.model.confinement import Confinement
from duly.rules.confining import limit_reached
from duly.runtime.active_runs import ActiveRun, Unbegun
from duly.runtime.context import Context, Contexts
from duly.runtime.executors.base import RemoteFailure
from duly.runtime.executors.children import Answer, Child, Died, working_directory
from duly.runtime.executors.failures import executor_failed, failed
from duly.runtime.executors.import_path import locate
from duly.runtime.executors.messages import Call, Ended, NotCalled, Raised, RaisedGiveUp, RaisedRetry, Result, Returned
from duly.runtime.executors.supervised import SupervisedProcesses, forget_cancellation
from duly.runtime.handler import Handler

_log = logging.getLogger("duly.executor")
_LOOK_EVERY = 0.1
_ARGUMENTS = "duly.runtime.executors.arguments"


class ProcessExecutor:
    """Keeps one child interpreter for each concurrent call; idle ones end after a while.

    `processes` may be shared with other executors; its owner then closes it. `binder` and `encoder` name the
    functions (`module:name`) that make arguments from a payload and a result from a value, in the child. `grace` is the
    time between SIGTERM and SIGKILL. A value of more than `max_result_bytes` is a failure of type `ResultError`.
    """

    def __init__(
        self,
        processes: SupervisedProcesses | None = None,
        *,
        binder: str = f"{_ARGUMENTS}:bind",
        encoder: str = f"{_ARGUMENTS}:encode",
        grace: float = 1.0,
        idle_seconds: float = 60.0,
        max_result_bytes: int = 1024 * 1024,
    ) -> None:
        self._processes = SupervisedProcesses() if processes is None else processes
        self._owns_processes = processes is None
        self._binder = binder
        self._encoder = encoder
        self._grace = grace
        self._idle_seconds = idle_seconds
        self._max_result_bytes = max_result_bytes
        self._children: set[Child] = set()
        self._busy: set[Child] = set()
        self._idle: list[tuple[float, Child]] = []  # since when each is idle, the last used at the end
        self._looking: asyncio.TimerHandle | None = None
        self._sweeping: asyncio.TimerHandle | None = None
        self._closed = False

    async def invoke(self, active: ActiveRun, handler: Handler, contexts: Contexts, arguments: dict[str, Any]) -> Any:
        """Call the handler in a child interpreter, by the run's own payload.

        Raises `Retry` and `GiveUp` as they are and everything else as `RemoteFailure`: the handler's own exceptions,
        `ProcessDied`, `ResultError`, `HandlerNotFound`, `ExecutorFailed`. When it is cancelled the child is dead before
        it returns; a handler that had ended before it was asked to stop counts as ended.
        """
        call, context = self._call(active, handler), contexts.of(active)
        contexts.begin(active)
        confine = handler.confine
        answer = await self._perform(call, active, context, confine)
        if isinstance(answer, Died) and answer.never_ran and not self._closed and confine is None:
            answer = await self._perform(call, active, context, confine)  # an idle child had died
        return self._open(answer, confine)

    async def close(self) -> None:
        """End all children, by force where needed, and the supervisor unless it is shared. Idempotent."""
        self._closed = True
        for timer in (self._looking, self._sweeping):
            if timer is not None:
                timer.cancel()
        self._looking = self._sweeping = None
        for child in self._children:
            if child in self._busy:
                child.tell(stop=True)
            child.retire(self._grace)
        if self._children:
            await asyncio.wait([child.process.ended for child in self._children], timeout=self._grace + 5)
        if self._owns_processes:
            await self._processes.close()

    def _call(self, active: ActiveRun, handler: Handler) -> Call:
        assert callable(handler.target)
        try:
            target = locate(handler.target)
        except LookupError as exc:
            raise failed("HandlerNotFound", str(exc)) from exc
        run = active.claim.run
        level = min(logging.getLogger(name).getEffectiveLevel() for name in ("", f"duly.job.{run.job}"))
        return Call(
            target=target,
            run=run,
            takes_context=handler.takes_context,
            binder=self._binder,
            encoder=self._encoder,
            max_result_bytes=self._max_result_bytes,
            cwd=working_directory(),
            level=level,
        )

    async def _perform(self, call: Call, active: ActiveRun, context: Context, confine: Confinement | None) -> Answer:
        child = self._take() if confine is None else self._new(confine)
        answer = child.begin(call, active, context)
        self._busy.add(child)
        self._look()
        try:
            await asyncio.wait({answer})
        except asyncio.CancelledError:
            if not answer.done():
                await child.stop(self._grace)
            if not answer.done() or _told_to_stop(answer.result()):
                _note_discarded(call, answer)
                raise
            forget_cancellation()  # too late: the handler had already ended
        finally:
            self._busy.discard(child)
            child.release(call)
            if confine is None:
                self._put_back(child, answer)
            else:
                child.retire(self._grace)  # its limits are used up, and its rights are those of one job
        if isinstance(answer.result(), Ended) and child.stopping and await child.process.end(self._grace):
            forget_cancellation()  # while what the handler left behind was being killed: it has ended
        return answer.result()

    def _take(self) -> Child:
        """The child that was idle for the shortest time, else a new one."""
        if self._closed:
            raise executor_failed("the executor is closed")
        while self._idle:
            _, child = self._idle.pop()
            if child.usable:
                return child
        return self._new(None)

    def _new(self, confine: Confinement | None) -> Child:
        if self._closed:
            raise executor_failed("the executor is closed")
        child = Child(self._processes, self._max_result_bytes, confine)
        self._children.add(child)
        child.process.ended.add_done_callback(lambda _: self._children.discard(child))
        return child

    def _put_back(self, child: Child, answer: asyncio.Future[Answer]) -> None:
        if not child.usable or not answer.done() or not isinstance(ended := answer.result(), Ended):
            return
        if ended.left or self._closed:
            child.retire(self._grace)
            return
        self._idle.append((asyncio.get_running_loop().time(), child))
        self._sweep()

    def _sweep(self) -> None:
        """End children that have been idle for a while; run again when the next one may be due."""
        if self._sweeping is not None:
            return
        loop = asyncio.get_running_loop()
        while self._idle and self._idle[0][0] + self._idle_seconds <= loop.time():
            _, child = self._idle.pop(0)
            child.retire(self._grace)
        if self._idle:
            self._sweeping = loop.call_at(self._idle[0][0] + self._idle_seconds, self._sweep_again)

    def _sweep_again(self) -> None:
        self._sweeping = None
        self._sweep()

    def _look(self) -> None:
        """Send the state of the live runs to their handlers, periodically while there are any."""
        if self._looking is None and self._busy:
            self._looking = asyncio.get_running_loop().call_later(_LOOK_EVERY, self._look_again)

    def _look_again(self) -> None:
        self._looking = None
        for child in self._busy:
            child.tell(stop=False)
        self._look()

    def _open(self, answer: Answer, confine: Confinement | None) -> Any:
        """The handler's value, or its exception."""
        if isinstance(answer, Ended):
            return _value_of(answer.result, confine)
        if self._closed:
            raise executor_failed("the executor was closed while the handler ran")
        if answer.exit.code is None:
            raise executor_failed(answer.exit.text)
        if not answer.began:
            under = "" if confine is None else f" under {confine}"
            raise executor_failed(f"the child interpreter ended before it took the call{under}: {_story(answer)}")
        raise failed("ProcessDied", _with_limit(answer.exit.text, confine, answer.exit.code))


def _with_limit(text: str, confine: Confinement | None, code: int | None = None, said: str = "") -> str:
    """A message, with the limit that the process has reached if it has reached one."""
    limit = limit_reached(confine, code, said)
    return text if limit is None else f"{text}: {limit}" if text else limit


def _value_of(result: Result, confine: Confinement | None) -> Any:
    match result:
        case Returned(value):
            return msgspec.json.decode(value)
        case NotCalled():
            raise Unbegun
        case RaisedRetry(after, raised):
            raise Retry(after) from _remote(raised)
        case RaisedGiveUp(reason, raised):
            raise GiveUp(reason) from _remote(raised)
        case Raised(type_name, message):
            said = _with_limit(message, confine, said=f"{type_name}: {message}")
            raise RemoteFailure(type_name, said, result.traceback, result.lineage)


def _remote(raised: Raised) -> RemoteFailure:
    return RemoteFailure(raised.type_name, raised.message, raised.traceback, raised.lineage)


def _story(died: Died) -> str:
    trouble = died.exit.trouble
    return died.exit.text if trouble is None else f"{trouble.stage}: {trouble.text}"


def _told_to_stop(answer: Answer) -> bool:
    """Whether the cancellation caused this answer, rather than the answer having been sent before it arrived."""
    if isinstance(answer, Ended):
        return answer.asked_to_stop
    return answer.exit.stopped or answer.exit.code is None


def _note_discarded(call: Call, answer: asyncio.Future[Answer]) -> None:
    if answer.done() and isinstance(ended := answer.result(), Ended) and isinstance(ended.result, Returned):
        _log.info("run %s of %s returned a value after it was asked to stop; not kept", call.run.id, call.run.job)
