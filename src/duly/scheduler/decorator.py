"""The decorator: a function becomes a job, and keeps its types."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from duly.runtime.context import Context
from duly.scheduler.handles import JobHandle

P = ParamSpec("P")
R = TypeVar("R")


class JobDecorator(Protocol):
    """What `@scheduler.job(…)` is: it takes the function and gives back a handle.

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
