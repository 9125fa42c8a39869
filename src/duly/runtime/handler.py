"""Handlers: what the runtime knows about a user's callable. Built by the scheduler's registry, looked up by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct

from duly.errors import GiveUp, Retry
from duly.model import Run
from duly.model.confinement import Confinement
from duly.rules.retry import RetryPolicy
from duly.runtime.command import Command

Decision = Retry | GiveUp | None
ErrorHook = Callable[[Run, Any, BaseException], Decision | Awaitable[Decision]]
FailureHook = Callable[[Run, Any, BaseException], Awaitable[None] | None]


class ExecutorKind(StrEnum):
    """Where a handler runs, unless in one of the user's own executors, which has another name."""

    ASYNC = "async"
    THREAD = "thread"
    PROCESS = "process"
    COMMAND = "command"


class Handler(Struct, frozen=True):
    """A registered callable or command, with what is needed to call it and to judge its exceptions.

    `decode` turns a payload into keyword arguments and raises `PayloadError`; `encode` turns what the handler returned
    into a result and raises `ReturnMismatch`, ValueError or TypeError. None is not encoded if `may_return_none`.
    The target of a command may be an async callable that finds the `Command` of a run. `job` is the user's own
    definition, given to hooks as it is. `confine` limits the process of a handler that runs in one; a command has its
    own.
    """

    name: str
    target: Callable[..., Any] | Command
    executor: ExecutorKind | str
    takes_context: bool
    decode: Callable[[bytes], dict[str, Any]]
    encode: Callable[[Any], bytes | None]
    retry: RetryPolicy
    job: Any = None
    on_error: tuple[ErrorHook, ...] = ()
    on_failure: tuple[FailureHook, ...] = ()
    confine: Confinement | None = None
    may_return_none: bool = True


class Catalog:
    """The handlers of one process, by job and by name. Changes while the node runs."""

    def __init__(self, handlers: Mapping[str, Handler] | None = None) -> None:
        self._handlers: dict[str, Handler] = dict(handlers or {})
        self.names: frozenset[str] = frozenset(self._handlers)

    def add(self, job: str, handler: Handler) -> None:
        self._handlers[job] = handler
        self.names = frozenset(self._handlers)

    def update(self, handlers: Mapping[str, Handler]) -> None:
        self._handlers.update(handlers)
        self.names = frozenset(self._handlers)

    def discard(self, job: str) -> None:
        self._handlers.pop(job, None)
        self.names = frozenset(self._handlers)

    def find(self, run: Run) -> Handler | None:
        """The handler of a run: its job's own where the job is defined here, else the one of the handler's name."""
        own = self._handlers.get(run.job)
        return own if own is not None and own.name == run.handler else self._handlers.get(run.handler)
