"""Loggers: the interface of an object that Duly can log to.

Loggers of the standard library, structlog and loguru have it. Fields are passed to `bind` if the logger has it,
otherwise as `extra`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol, runtime_checkable

Level = Literal["debug", "info", "warning", "error"]


@runtime_checkable
class Logger(Protocol):
    """Four levels; each takes a complete message and separate fields."""

    def debug(self, message: str, /, *, extra: Mapping[str, Any] = ...) -> Any: ...

    def info(self, message: str, /, *, extra: Mapping[str, Any] = ...) -> Any: ...

    def warning(self, message: str, /, *, extra: Mapping[str, Any] = ...) -> Any: ...

    def error(self, message: str, /, *, extra: Mapping[str, Any] = ...) -> Any: ...


class Voice:
    """Writes to a logger of any kind."""

    def __init__(self, logger: Logger) -> None:
        self._logger = logger
        self._binds = hasattr(logger, "bind")
        self._enabled = _enabled(logger)

    @property
    def debugging(self) -> bool:
        """Whether the logger is enabled for DEBUG. True if it has no method that says so."""
        return self._enabled is None or self._enabled(logging.DEBUG)

    @property
    def informing(self) -> bool:
        """Whether the logger is enabled for INFO. True if it has no method that says so."""
        return self._enabled is None or self._enabled(logging.INFO)

    def tell(self, level: Level, message: str, fields: Mapping[str, Any]) -> None:
        if self._binds:
            logger: Any = self._logger
            getattr(logger.bind(**fields), level)(message)
        elif isinstance(self._logger, logging.LoggerAdapter):
            _tell_adapter(self._logger, level, message, fields)
        else:
            getattr(self._logger, level)(message, extra=fields)


def _enabled(logger: Logger) -> Callable[[int], bool] | None:
    """The logger's method that says whether a level is enabled, if it has one."""
    for name in ("isEnabledFor", "is_enabled_for"):
        found: Callable[[int], bool] | None = getattr(logger, name, None)
        if found is not None:
            return found
    return None


def _tell_adapter(adapter: logging.LoggerAdapter[Any], level: Level, message: str, fields: Mapping[str, Any]) -> None:
    """Log through an adapter with its fields and ours: before Python 3.13 an adapter drops the caller's fields."""
    text, options = adapter.process(message, {"extra": dict(fields)})
    options["extra"] = {**fields, **(options.get("extra") or {})}
    getattr(adapter.logger, level)(text, **options)
