"""Callables that may be handlers: functions, bound methods, `functools.partial`, and objects with `__call__`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

_FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodType)


def function_of(handler: Callable[..., Any]) -> Callable[..., Any]:
    """The function that is called in the end: it has the annotations and the code."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    if isinstance(handler, (*_FUNCTIONS, type)):
        return handler
    return type(handler).__call__


def called(handler: Callable[..., Any]) -> Callable[..., Any]:
    """What the node calls: of an object its `__call__`, so that wrappers see a method that is async or not."""
    if isinstance(handler, (*_FUNCTIONS, type, functools.partial)):
        return handler
    return handler.__call__


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
