"""Timing of the calls that a node makes to its store: for stores whose server does not record slow calls."""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from duly.ports import Backend

_WAITS = frozenset({"wait", "finished", "watch"})  # they take as long as nothing happens


class Slowest(Protocol):
    """Keeps the slowest call: the verb, and its seconds."""

    slowest: tuple[str, float]


def timed(backend: Backend, notes: Slowest) -> Backend:
    """Time the calls to the ports of this backend and of all its sessions."""
    ports: Any = backend  # each port is replaced by an object with the same verbs
    new_session = backend.session
    ports.store = _Timed(backend.store, notes)
    ports.queue = _Timed(backend.queue, notes)
    ports.coordinator = _Timed(backend.coordinator, notes)
    ports.session = lambda timeout=None: timed(new_session(timeout), notes)
    return backend


class _Timed:
    """Passes every call on. The time includes waiting for the event loop, so it is an upper bound."""

    def __init__(self, port: object, notes: Slowest) -> None:
        self._port = port
        self._notes = notes

    def __getattr__(self, verb: str) -> Any:
        found = getattr(self._port, verb)
        return found if verb in _WAITS or not callable(found) else self._timing(verb, found)

    def _timing(self, verb: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def made(*arguments: Any, **keywords: Any) -> Any:
            answer = call(*arguments, **keywords)
            return self._awaited(verb, answer) if inspect.isawaitable(answer) else answer

        return made

    async def _awaited(self, verb: str, answer: Awaitable[Any]) -> Any:
        started = time.perf_counter()
        try:
            return await answer
        finally:
            seconds = time.perf_counter() - started
            if seconds > self._notes.slowest[1]:
                self._notes.slowest = (verb, seconds)
