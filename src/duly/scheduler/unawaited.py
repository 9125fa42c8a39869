"""Lets Python's warning about a coroutine that was never awaited name the line of the call, and the line to write.

Python itself knows only where the coroutine was thrown away, which may be much later. Its warning quotes the qualified
name of the coroutine, so that is where the rest is said: nothing else tells a coroutine that nobody awaited from one
whose task was cancelled before its first step.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Coroutine
from types import MethodType
from typing import Any, TypeVar, cast

M = TypeVar("M", bound=Callable[[Any], Coroutine[Any, Any, Any]])


def names_its_call(way_out: str) -> Callable[[M], M]:
    """A decorator for an async method without parameters; `way_out` is the line to write."""

    def decorate(method: M) -> M:
        return cast("M", _Method(method, way_out))

    return decorate


class _Method:
    """The method, and nearly a function: `inspect` takes it for the async function that it calls.

    Frameworks await a callable only if `inspect.iscoroutinefunction` says that it is async. That needs the attributes
    of a function; marking a plain function as async is possible from Python 3.12 on only.
    """

    def __init__(self, method: Callable[[Any], Coroutine[Any, Any, Any]], way_out: str) -> None:
        functools.update_wrapper(self, method)
        self.__code__ = method.__code__
        self.__defaults__ = None
        self.__kwdefaults__ = None
        self._method = method
        self._way_out = way_out

    def __get__(self, instance: object | None, owner: type) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __call__(self, instance: object) -> Coroutine[Any, Any, Any]:
        coroutine = self._method(instance)
        name = f"{self._method.__qualname__} at {_caller()}: write {self._way_out}"
        coroutine.__qualname__ = name  # type: ignore[attr-defined]  # every coroutine of an async def has it
        return coroutine


def _caller() -> str:
    """The file and line of the user's code that is being run."""
    frame = sys._getframe()  # noqa: SLF001  # nothing else knows the line of the caller
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("duly."):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
