"""Warns with the line of a call, and the line to write, if the coroutine of the call is never awaited.

Python warns, too, but knows only where the coroutine was thrown away, which may be much later.
"""

from __future__ import annotations

import functools
import sys
import warnings
import weakref
from collections.abc import Callable, Coroutine
from types import MethodType
from typing import Any, TypeVar, cast

M = TypeVar("M", bound=Callable[[Any], Coroutine[Any, Any, Any]])


def warns_unless_awaited(way_out: str) -> Callable[[M], M]:
    """A decorator for an async method without parameters; `way_out` says what was not done, and what to write."""

    def decorate(method: M) -> M:
        return cast("M", _Noticed(method, way_out))

    return decorate


class _Noticed:
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
        self._text = f"{method.__name__}() was {way_out}"

    def __get__(self, instance: object | None, owner: type) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __call__(self, instance: object) -> Coroutine[Any, Any, Any]:
        begun: list[bool] = []
        coroutine = self._noted(instance, begun)
        coroutine.__qualname__ = self.__qualname__  # type: ignore[attr-defined]  # for Python's own warning
        weakref.finalize(coroutine, _warn, begun, *_caller(), self._text)
        return coroutine

    async def _noted(self, instance: object, begun: list[bool]) -> Any:
        begun.append(True)
        return await self._method(instance)


def _caller() -> tuple[str, int]:
    """The file and line of the user's code that is being run."""
    frame = sys._getframe()  # noqa: SLF001  # nothing else knows the line of the caller
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("duly."):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def _warn(begun: list[bool], file: str, line: int, text: str) -> None:
    if not begun:
        warnings.warn_explicit(text, RuntimeWarning, file, line)
