"""Handles: what the decorator and a submission return, typed by the handler's own signature."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast, overload

from duly.errors import ConfigurationError, DulyError
from duly.model import CancelReply, LogLine, Put, Run
from duly.runtime.context import Context
from duly.scheduler.callables import is_object
from duly.scheduler.job import Job
from duly.scheduler.submitting import AS_THE_JOB_SAYS, Options, options_of

if TYPE_CHECKING:
    from duly.scheduler.scheduler import Scheduler
    from duly.scheduler.sync import SyncJobHandle, SyncRunHandle, SyncSubmission

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
R = TypeVar("R")
Q = ParamSpec("Q")
S = TypeVar("S")


class RunHandle(Generic[R]):
    """A run: one that was submitted, or one that is known by its id."""

    __slots__ = ("_created_at", "_scheduler", "deduplicated", "id")

    def __init__(
        self, scheduler: Scheduler, run_id: str, created_at: datetime | None = None, *, deduplicated: bool = False
    ) -> None:
        self._scheduler = scheduler
        self._created_at = created_at
        self.id = run_id
        self.deduplicated = deduplicated

    @classmethod
    def of(cls, scheduler: Scheduler, put: Put) -> RunHandle[R]:
        """The handle of a run that was submitted."""
        return cls(scheduler, put.id, put.created_at, deduplicated=not put.created)

    @property
    def created_at(self) -> datetime:
        """When the run was accepted. A handle that was made from an id does not know it."""
        if self._created_at is None:
            raise DulyError(f"run {self.id}: this handle was made from its id: use (await handle.get()).created_at")
        return self._created_at

    async def result(self, timeout: float | None = None) -> R:
        """Wait for the run's value.

        Raises `RunFailed`, `RunCancelled`, `RunLost` or `RunSkipped` if it ends otherwise, `ResultExpired` if the value
        is not kept, and the builtin TimeoutError if it takes too long; the run goes on then.
        """
        return cast("R", await self._scheduler._result(self.id, timeout))

    async def wait(self, timeout: float | None = None) -> Run:
        """Wait until the run has ended, in whatever state, and return it.

        Raises the builtin TimeoutError if it takes too long; the run goes on then.
        """
        return await self._scheduler._ended(self.id, timeout)

    async def get(self) -> Run:
        """The run in its present state."""
        return await self._scheduler.get_run(self.id)

    async def logs(self, *, after: int = 0, limit: int | None = None, attempt: int | None = None) -> list[LogLine]:
        """The lines of the run's log that are kept, as `Scheduler.logs`."""
        return await self._scheduler.logs(self.id, after=after, limit=limit, attempt=attempt)

    async def cancel(self, reason: str | None = None) -> CancelReply:
        """Cancel it: at once while it waits, by asking its worker while it runs."""
        return await self._scheduler.cancel(self.id, reason)

    @property
    def sync(self) -> SyncRunHandle[R]:
        """The same for code without an event loop."""
        from duly.scheduler.sync import SyncRunHandle  # noqa: PLC0415  # the two know each other

        return SyncRunHandle(self._scheduler, self)

    def __repr__(self) -> str:
        return f"RunHandle({self.id!r}{', deduplicated' if self.deduplicated else ''})"


class Submission(Generic[P, R]):
    """A job with options for its next submissions."""

    __slots__ = ("_handle", "_options")

    def __init__(self, handle: JobHandle[Any, P, R], options: Options) -> None:
        self._handle = handle
        self._options = options

    async def submit(self, *args: P.args, **kwargs: P.kwargs) -> RunHandle[R]:
        """Submit one run with these arguments."""
        return await self._handle._submit(self._options, args, kwargs)

    async def submit_many(self, payloads: Iterable[Mapping[str, Any]]) -> list[RunHandle[R]]:
        """Submit many runs, one per mapping of arguments, in as few round trips as possible."""
        return await self._handle._submit_many(self._options, payloads)

    def check(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Raise `PayloadError` if `submit` with these arguments would; nothing is submitted."""
        self._handle.check(*args, **kwargs)

    @property
    def sync(self) -> SyncSubmission[P, R]:
        """The same for code without an event loop."""
        from duly.scheduler.sync import SyncSubmission  # noqa: PLC0415  # the two know each other

        return SyncSubmission(self._handle._scheduler, self)


class JobHandle(Generic[F, P, R]):
    """A job defined in code. Calling it calls the plain function, so unit tests need no scheduler."""

    def __init__(self, scheduler: Scheduler, job: Job, function: F) -> None:
        if callable(function):  # the attributes of an object are its own
            functools.update_wrapper(self, function, updated=() if is_object(function) else ("__dict__",))
        self._scheduler = scheduler
        self.job = job
        self.function = function

    @property
    def name(self) -> str:
        return self.job.name

    def __call__(self: JobHandle[Callable[Q, S], P, R], *args: Q.args, **kwargs: Q.kwargs) -> S:
        function: object = self.function  # a job that runs a command or another job's handler has none
        if not callable(function):
            raise ConfigurationError(f"job {self.name!r} has no function to call here: submit or trigger it")
        return self.function(*args, **kwargs)

    async def submit(self, *args: P.args, **kwargs: P.kwargs) -> RunHandle[R]:
        """Submit one run with these arguments."""
        return await self._submit(AS_THE_JOB_SAYS, args, kwargs)

    async def submit_many(self, payloads: Iterable[Mapping[str, Any]]) -> list[RunHandle[R]]:
        """Submit many runs, one per mapping of arguments, in as few round trips as possible."""
        return await self._submit_many(AS_THE_JOB_SAYS, payloads)

    def check(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Raise `PayloadError` if `submit` with these arguments would; nothing is submitted."""
        self._scheduler._check(self.name, args, dict(kwargs))

    def options(
        self,
        *,
        at: datetime | None = None,
        delay: float | timedelta | None = None,
        priority: int | None = None,
        dedupe_key: str | None = None,
        unique_for: float | timedelta | None = None,
        queue: str | None = None,
    ) -> Submission[P, R]:
        """When and how the next submissions are to start."""
        options = options_of(
            self.name,
            at=at,
            delay=delay,
            priority=priority,
            dedupe_key=dedupe_key,
            unique_for=unique_for,
            queue=queue,
        )
        return Submission(self, options)

    def run(self, run_id: str) -> RunHandle[R]:
        """The handle of a run of this job that is known by its id. Nothing is read: the run need not exist."""
        return RunHandle(self._scheduler, run_id)

    async def trigger(self) -> RunHandle[R]:
        """Run the job once more, now, with its own payload."""
        return await self._scheduler.trigger(self.name)

    @property
    def sync(self) -> SyncJobHandle[P, R]:
        """The same for code without an event loop."""
        from duly.scheduler.sync import SyncJobHandle  # noqa: PLC0415  # the two know each other

        return SyncJobHandle(self._scheduler, self)

    async def _submit(self, options: Options, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> RunHandle[R]:
        return await self._scheduler._submit(self.name, args, dict(kwargs), options)

    async def _submit_many(self, options: Options, payloads: Iterable[Mapping[str, Any]]) -> list[RunHandle[R]]:
        return await self._scheduler._submit_many(self.name, payloads, options)

    def __repr__(self) -> str:
        return f"<job {self.name!r}>"


class JobDecorator(Protocol):
    """The type of `@scheduler.job(…)`: it takes the function and returns a handle.

    The handle is called like the function; it is submitted without the context, which the node provides.
    """

    @overload
    def __call__(  # type: ignore[overload-overlap]  # the first that fits is meant: a context is never submitted
        self, function: Callable[Concatenate[Context, P], Awaitable[R]], /
    ) -> JobHandle[Callable[Concatenate[Context, P], Awaitable[R]], P, R]: ...

    @overload
    def __call__(self, function: Callable[P, Awaitable[R]], /) -> JobHandle[Callable[P, Awaitable[R]], P, R]: ...

    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], R], /
    ) -> JobHandle[Callable[Concatenate[Context, P], R], P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> JobHandle[Callable[P, R], P, R]: ...

    def __call__(self, function: Callable[..., Any], /) -> JobHandle[Any, Any, Any]: ...
