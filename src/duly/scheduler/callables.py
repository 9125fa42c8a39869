"""Callables that may be handlers: functions, bound methods, `functools.partial`, and objects with `__call__`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any

_FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodType)


def function_of(handler: Callable[..., Any]) -> Callable[..., Any]:
    """The function that is called in the end: it has the annotations and the code."""
    while not _is_function(handler):
        if isinstance(handler, functools.partial):
            handler = handler.func
        elif callable(wrapped := getattr(handler, "__wrapped__", None)):  # as `functools.cache` leaves it behind
            handler = wrapped
        else:
            return type(handler).__call__
    return handler


def called(handler: Callable[..., Any]) -> Callable[..., Any]:
    """What the node calls: of an object its `__call__`, so that wrappers see a method that is async or not."""
    if not is_object(handler):
        return handler
    method: Callable[..., Any] = getattr(handler, "__call__")  # noqa: B004, B009  # mypy takes every __call__ for a function's
    return method


def is_object(handler: Callable[..., Any]) -> bool:
    """Whether it is an object of a class with `__call__`, neither a function nor something made from one."""
    return not (_is_function(handler) or isinstance(handler, functools.partial) or hasattr(handler, "__wrapped__"))


def _is_function(handler: Callable[..., Any]) -> bool:
    """Whether it has annotations of its own; compiled modules have functions of other types."""
    return isinstance(handler, (*_FUNCTIONS, type)) or isinstance(getattr(handler, "__code__", None), CodeType)


def is_async(handler: Callable[..., Any]) -> bool:
    """Whether a call returns a coroutine."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(function_of(handler))


def generates(handler: Callable[..., Any]) -> bool:
    """Whether a call would only create a generator: the body of the handler would never run."""
    function = function_of(handler)
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def code_place(handler: object) -> str | None:
    """Where a handler is written, as file and line; None for what has no code of its own."""
    code = getattr(function_of(handler), "__code__", None) if callable(handler) else None
    return None if code is None else f"{code.co_filename}:{code.co_firstlineno}"
