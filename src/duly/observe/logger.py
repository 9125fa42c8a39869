"""Loggers: what an object must be able to do so that Duly can log to it.

Those of the standard library, of structlog and of loguru can, as they are. Fields go where each keeps them: into
`bind` where there is one, into `extra` otherwise.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol, runtime_checkable

Level = Literal["debug", "info", "warning", "error"]


@runtime_checkable
class Logger(Protocol):
    """Four levels, a message that is complete, and fields beside it."""

    def debug(self, message: str, /, *, extra: Mapping[str, Any] = ...) -> Any: ...

    def info(self, message: str, /, *, extra: Mapping[str, Any] = ...) -> Any: ...

    def warning(self, message: str, /, *, extra: Mapping[str, Any] = ...) -> Any: ...

    def error(self, message: str, /, *, extra: Mapping[str, Any] = ...) -> Any: ...


class Voice:
    """Speaks to a logger of any kind."""

    def __init__(self, logger: Logger) -> None:
        self._logger = logger
        self._binds = hasattr(logger, "bind")

    @property
    def debugging(self) -> bool:
        """Whether anybody would see the lowest level. A logger that cannot say gets everything."""
        for name in ("isEnabledFor", "is_enabled_for"):
            enabled: Callable[[int], bool] | None = getattr(self._logger, name, None)
            if enabled is not None:
                return enabled(logging.DEBUG)
        return True

    def tell(self, level: Level, message: str, fields: Mapping[str, Any]) -> None:
        if self._binds:
            logger: Any = self._logger
            getattr(logger.bind(**fields), level)(message)
        elif isinstance(self._logger, logging.LoggerAdapter):
            _tell_adapter(self._logger, level, message, fields)
        else:
            getattr(self._logger, level)(message, extra=fields)

    @staticmethod
    def _tell_adapter(
        adapter: logging.LoggerAdapter[Any], level: Level, message: str, fields: Mapping[str, Any]
    ) -> None:
        """Before Python 3.13 an adapter drops the fields of a record for its own: keep both."""
        text, options = adapter.process(message, {"extra": dict(fields)})
        options["extra"] = {**fields, **(options.get("extra") or {})}
        getattr(adapter.logger, level)(text, **options)


def _tell_adapter(adapter: logging.LoggerAdapter[Any], level: Level, message: str, fields: Mapping[str, Any]) -> None:
    """Log through an adapter with its fields and ours: before Python 3.13 an adapter drops those of the caller."""
    text, options = adapter.process(message, {"extra": dict(fields)})
    options["extra"] = {**fields, **(options.get("extra") or {})}
    getattr(adapter.logger, level)(text, **options)
