"""The application that Django loads. It configures the scheduler, imports the jobs, and wraps their handlers.

Django closes broken and expired database connections at the start and the end of requests. Handlers are not requests,
so their connections are checked before and after each call.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from asgiref.sync import sync_to_async
from django.apps import AppConfig
from django.conf import settings
from django.db import close_old_connections
from django.utils.module_loading import autodiscover_modules

from duly.errors import ConfigurationError
from duly.integrations.django import scheduler
from duly.model import SchedulerConfig

_KEYS = ("URL", "CONFIG")


class DulyConfig(AppConfig):
    """Reads the setting `DULY`, and imports the `jobs.py` of each installed application."""

    name = "duly.integrations.django"
    label = "duly"
    verbose_name = "Duly"

    def ready(self) -> None:
        url, config = configuration(getattr(settings, "DULY", {}))
        scheduler.configure(url, config=config)
        scheduler.wrap(with_fresh_connections)
        autodiscover_modules("jobs")


def configuration(given: Any) -> tuple[str | None, SchedulerConfig]:
    """The URL of the store, if there is one, and the settings of the node."""
    if not isinstance(given, dict):
        kind = type(given).__name__  # not the value, which may contain a password
        raise ConfigurationError(f"settings.DULY is a {kind}, but must be a dict with the keys {' and '.join(_KEYS)}")
    for key in given:
        if key not in _KEYS:
            raise ConfigurationError(f"settings.DULY: unknown key {key!r}; known keys are {', '.join(_KEYS)}")
    fields = given.get("CONFIG", {})
    try:
        return given.get("URL"), SchedulerConfig(**fields)
    except TypeError as exc:
        raise ConfigurationError(f"settings.DULY['CONFIG']: {exc}; its keys are the fields of SchedulerConfig") from exc


def with_fresh_connections(handler: Callable[..., Any]) -> Callable[..., Any]:
    """The handler, with old connections closed before and after each call."""
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
    """Connections of async code belong to the thread in which Django runs blocking calls."""
    await _close_async()
    try:
        return await handler(*args, **kwargs)
    finally:
        await _close_async()


_close_async = sync_to_async(close_old_connections)
