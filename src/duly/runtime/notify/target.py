"""What the targets of notifications share: names, the kinds they get, secrets from files, and threads to send in."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from duly.errors import ConfigurationError, shown
from duly.model import is_job_name
from duly.model.notification import CHOOSABLE_KINDS
from duly.runtime.threads import DaemonThreads

_MOST_SECRET = 4096
_threads = DaemonThreads("duly-notify")


class DeliveryRejected(Exception):
    """The target will not take this message, however often it is sent. Raise it in `send` of your own target."""


def checked_name(name: object) -> str:
    """The name of a target: written like that of a job."""
    if not isinstance(name, str) or not is_job_name(name):
        raise ConfigurationError(
            f"notify: name={shown(name)}: expected a letter or _, then letters, digits and _ . -, at most 128"
        )
    return name


def checked_kinds(name: str, on: Sequence[str] | None) -> tuple[str, ...]:
    """The kinds of notifications that a target gets; all by default."""
    if on is None:
        return CHOOSABLE_KINDS
    kinds = [on] if isinstance(on, str) else list(on)
    for kind in kinds:
        if kind not in CHOOSABLE_KINDS:
            raise ConfigurationError(f"notify {name!r}: on={shown(kind)}: expected any of {', '.join(CHOOSABLE_KINDS)}")
    return tuple(str(kind) for kind in kinds)


def checked_timeout(name: str, timeout: object) -> float:
    """How long one delivery may take, in seconds."""
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= 25:
        raise ConfigurationError(f"notify {name!r}: timeout={shown(timeout)}: expected up to 25 seconds")
    return float(timeout)


class Secret:
    """A text that is never shown: given directly, in a file, or in an environment variable.

    A file or a variable is read for each message, so that a secret can be replaced while the node runs.
    """

    def __init__(self, name: str, what: str, value: str | None, file: str | Path | None, variable: str | None) -> None:
        if sum(each is not None for each in (value, file, variable)) > 1:
            raise ConfigurationError(f"notify {name!r}: give one of {what}, {what}_file and {what}_env")
        self._what = f"notify {name!r}: {what}"
        self._value = value
        self._file = None if file is None else Path(file)
        self._variable = variable
        if value is not None:
            self._checked(value)

    def __repr__(self) -> str:
        return "***"

    @property
    def source(self) -> str | None:
        """Where it is read from; None if it was given directly, or not at all."""
        return self._variable if self._file is None else str(self._file)

    @property
    def given(self) -> bool:
        return self._value is not None or self.source is not None

    def get(self) -> str | None:
        """The secret; None if there is none. Raises `ConfigurationError` if it cannot be read."""
        if self._variable is not None:
            if not (found := os.environ.get(self._variable)):
                raise ConfigurationError(f"{self._what}_env: the variable {self._variable} is not set")
            return self._checked(found)
        if self._file is None:
            return self._value
        try:
            return self._checked(self._file.read_text(encoding="utf-8").strip())
        except (OSError, UnicodeDecodeError) as exc:
            raise ConfigurationError(f"{self._what}_file={str(self._file)!r} cannot be read: {exc}") from exc

    def _checked(self, value: object) -> str:
        if not isinstance(value, str) or not value or len(value) > _MOST_SECRET or not value.isprintable():
            raise ConfigurationError(f"{self._what}: expected 1 to {_MOST_SECRET} printable characters")
        return value


async def in_thread(call: Callable[[], None]) -> None:
    """Make a call that blocks in a daemon thread: it delays neither the event loop nor the end of the process."""
    await _threads.submit(call)
