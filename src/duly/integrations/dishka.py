"""Dishka: handlers whose parameters come from a container, with a new scope for each attempt.

`inject` marks a handler, `setup_dishka` sets the container of a scheduler's node. Injected parameters are not part of
payloads; in a unit test, pass them like any other argument. Needs the extra `dishka`.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, TypeVar, get_type_hints

from msgspec import Struct

from duly.errors import ConfigurationError, MissingExtra
from duly.model import Run
from duly.model.current_run import current_run
from duly.scheduler import Scheduler

try:
    from dishka import AsyncContainer, Container, FromDishka
    from dishka.entities.key import DependencyKey
    from dishka.integrations.base import default_parse_dependency
except ImportError as exc:
    raise MissingExtra("injection by dishka", "dishka") from exc

__all__ = ["FromDishka", "inject", "setup_dishka"]

R = TypeVar("R")

_MARK = "__duly_injection__"


class Injection(Struct, frozen=True):
    """The original function, and the parameters that a container provides."""

    function: Callable[..., Any]
    wanted: Mapping[str, DependencyKey]


def inject(function: Callable[..., R]) -> Callable[..., R]:
    """Inject the parameters annotated with `FromDishka[…]`. Write `@inject` below `@scheduler.job`."""
    hints = get_type_hints(function, include_extras=True)
    signature = inspect.signature(function)
    found = {name: default_parse_dependency(each, hints.get(name)) for name, each in signature.parameters.items()}
    wanted = {name: key for name, key in found.items() if key is not None}
    injected = _plain(function)
    visible = [each.replace(annotation=hints.get(each.name, each.annotation)) for each in signature.parameters.values()]
    injected.__annotations__ = {name: hint for name, hint in hints.items() if name not in wanted}
    vars(injected)["__signature__"] = signature.replace(
        parameters=[each for each in visible if each.name not in wanted]
    )
    vars(injected)[_MARK] = Injection(function, wanted)
    return injected


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """A wrapper of the function, whose signature may be changed."""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def call(*args: Any, **kwargs: Any) -> Any:
            return await function(*args, **kwargs)

        return call

    @functools.wraps(function)
    def call_sync(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call_sync


def setup_dishka(container: AsyncContainer | Container, scheduler: Scheduler) -> None:
    """Set the container that provides the parameters of injected handlers. Call it before `start()`.

    Each attempt has its own scope (`Scope.REQUEST`), in which `from_context` provides `Run`. Close the container
    yourself after the scheduler has stopped.
    """
    scheduler.wrap(lambda handler: _provided(handler, container))


def _provided(handler: Callable[..., Any], container: AsyncContainer | Container) -> Callable[..., Any]:
    injection = getattr(handler, _MARK, None)
    if not isinstance(injection, Injection):
        return handler
    match container, inspect.iscoroutinefunction(handler):
        case AsyncContainer(), True:
            return functools.partial(_call_async, injection, container)
        case AsyncContainer(), False:
            return functools.partial(_call_from_thread, injection, container, asyncio.get_running_loop())
        case Container(), True:
            return functools.partial(_call_async_with, injection, container)
        case Container(), False:
            return functools.partial(_call_sync, injection, container)
    raise ConfigurationError(f"container={container!r} is not a container of dishka: see make_async_container")


async def _call_async(injection: Injection, container: AsyncContainer, /, *args: Any, **kwargs: Any) -> Any:
    async with container(_context()) as scope:
        return await injection.function(*args, **kwargs, **await _resolved(injection, scope))


async def _call_async_with(injection: Injection, container: Container, /, *args: Any, **kwargs: Any) -> Any:
    with container(_context()) as scope:
        return await injection.function(*args, **kwargs, **_resolved_sync(injection, scope))


def _call_sync(injection: Injection, container: Container, /, *args: Any, **kwargs: Any) -> Any:
    with container(_context()) as scope:
        return injection.function(*args, **kwargs, **_resolved_sync(injection, scope))


def _call_from_thread(
    injection: Injection, container: AsyncContainer, loop: asyncio.AbstractEventLoop, /, *args: Any, **kwargs: Any
) -> Any:
    """A handler in a thread with a container on the event loop: the scope is opened and closed on the loop."""
    scopes = AsyncExitStack()
    context = _context()

    async def opened() -> dict[str, Any]:
        return await _resolved(injection, await scopes.enter_async_context(container(context)))

    try:
        provided = asyncio.run_coroutine_threadsafe(opened(), loop).result()
        return injection.function(*args, **kwargs, **provided)
    finally:
        asyncio.run_coroutine_threadsafe(scopes.aclose(), loop).result()


def _context() -> dict[Any, Any]:
    return {Run: current_run.get()}


async def _resolved(injection: Injection, scope: AsyncContainer) -> dict[str, Any]:
    return {name: await scope.get(key.type_hint, component=key.component) for name, key in injection.wanted.items()}


def _resolved_sync(injection: Injection, scope: Container) -> dict[str, Any]:
    return {name: scope.get(key.type_hint, component=key.component) for name, key in injection.wanted.items()}
