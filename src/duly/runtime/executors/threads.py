"""Sync handlers, in daemon threads of the node's own.

A thread cannot be stopped. At its timeout the attempt is recorded and the thread left behind; whoever counts slots must
not reuse its slot before `live.residue` completes. The standard pool will not do: its threads keep a process from
exiting.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from duly.runtime.context import Context, Contexts
from duly.runtime.handler import Handler
from duly.runtime.live import Live

_Work = tuple[Callable[[], Any], "asyncio.Future[Any]"]
_IDLE_SECONDS = 60.0


class ThreadExecutor:
    """As many threads as there are calls at a time; idle ones end after a minute."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._idle = 0
        self._threads = 0
        self._lock = threading.Lock()

    async def invoke(self, live: Live, handler: Handler, contexts: Contexts, arguments: dict[str, Any]) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        context = contexts.of(live) if handler.takes_context else None
        self._submit((_call(handler, context, arguments), future))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if not future.done():
                live.residue = _ended(future)
            raise

    def _submit(self, work: _Work) -> None:
        self._work.put(work)
        with self._lock:
            if self._idle > 0:
                self._idle -= 1
                return
            self._threads += 1
            number = self._threads
        threading.Thread(target=self._serve, name=f"duly-handler-{number}", daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                work = self._work.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                if self._retire():
                    return
                continue
            if work is None:
                return
            call, future = work
            value, error = _outcome_of(call)
            with self._lock:
                self._idle += 1  # before the answer is known: whoever gets it may have the next call at once
            _answer(future, value, error)
            del work, call, future, value, error  # nothing of a call is kept alive while the thread waits

    def _retire(self) -> bool:
        """End this idle thread, unless work has just been promised to it."""
        with self._lock:
            if self._idle == 0:
                return False
            self._idle -= 1
            return True

    async def close(self) -> None:
        """Let idle threads end; one that still runs a handler ends with the process."""
        with self._lock:
            idle, self._idle = self._idle, 0
        for _ in range(idle):
            self._work.put(None)


def _call(handler: Handler, context: Context | None, arguments: dict[str, Any]) -> Callable[[], Any]:
    assert callable(handler.target)
    target = handler.target
    variables = contextvars.copy_context()
    if context is not None:
        return lambda: variables.run(target, context, **arguments)
    return lambda: variables.run(target, **arguments)


def _outcome_of(call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return call(), None
    except BaseException as exc:  # noqa: BLE001  # whatever a handler raises is its outcome, SystemExit included
        return None, exc


def _answer(future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    with suppress(RuntimeError):  # the loop may be closed by now: then nobody waits for this thread any more
        future.get_loop().call_soon_threadsafe(_deliver, future, value, error)


def _deliver(future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(value)
    elif isinstance(error, StopIteration | GeneratorExit):  # no future can carry these
        future.set_exception(RuntimeError(f"the handler raised {type(error).__name__}"))
    else:
        future.set_exception(error)


def _ended(future: asyncio.Future[Any]) -> asyncio.Future[None]:
    """A future that completes when the other one does, whatever came of it."""
    residue: asyncio.Future[None] = future.get_loop().create_future()

    def complete(done: asyncio.Future[Any]) -> None:
        if not done.cancelled():
            done.exception()  # looked at, so that nobody complains that it never was
        if not residue.done():
            residue.set_result(None)

    future.add_done_callback(complete)
    return residue
