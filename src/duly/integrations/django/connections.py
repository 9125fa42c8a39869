"""Database connections of handlers: a handler is to them what a request is.

Django opens a connection per thread and looks after it at the beginning and the end of requests. Around handlers
nobody would: one that has broken, or outlived `CONN_MAX_AGE`, would fail every later run of its thread.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from asgiref.sync import sync_to_async
from django.db import close_old_connections


def tidy(handler: Callable[..., Any]) -> Callable[..., Any]:
    """The handler with its connections looked after, before and after every call."""
    if inspect.iscoroutinefunction(handler):
        return functools.partial(_call_async, handler)
    return functools.partial(_call, handler)


def _call(handler: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    close_old_connections()
    try:
        return handler(*args, **kwargs)
    finally:
        close_old_connections()


async def _call_async(handler: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """The connections of async code live in the one thread where Django does its blocking work."""
    await _close_old_connections()
    try:
        return await handler(*args, **kwargs)
    finally:
        await _close_old_connections()


_close_old_connections = sync_to_async(close_old_connections)
