"""Programs: a notification starts a command of the operator."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Sequence

import msgspec

from duly.errors import ConfigurationError, shown
from duly.model.notification import Notification
from duly.runtime.notify.target import checked_kinds, checked_name, checked_timeout, in_thread


class NotifyCommand:
    """Start a program for each notification, which is JSON on its standard input; needs `allow_commands`.

    It also gets the environment variables DULY_NOTIFICATION, DULY_KIND, DULY_JOB and DULY_TEXT. An exit code other than
    0 is a failure: the program is started again later. There is no shell, so nothing of a message is interpreted.
    """

    needs_commands = True

    def __init__(
        self, argv: Sequence[str], *, name: str = "command", on: Sequence[str] | None = None, timeout: float = 20.0
    ) -> None:
        self.name = checked_name(name)
        self.on = checked_kinds(name, on)
        if isinstance(argv, str) or not argv or not all(map(_is_word, argv)):
            raise ConfigurationError(f"notify {name!r}: command={shown(argv)}: expected a list of strings")
        self._argv = tuple(argv)
        self._timeout = checked_timeout(name, timeout)

    def __repr__(self) -> str:
        return f"NotifyCommand({list(self._argv)!r}, name={self.name!r})"

    def __str__(self) -> str:
        return f"command {shlex.quote(self._argv[0])}"

    async def send(self, notification: Notification) -> None:
        await in_thread(lambda: self._run(notification))

    def _run(self, notification: Notification) -> None:
        about = {
            "DULY_NOTIFICATION": notification.id,
            "DULY_KIND": notification.kind.value,
            "DULY_JOB": notification.job,
            "DULY_TEXT": notification.text,
        }
        done = subprocess.run(  # noqa: S603  # the operator's own command, without a shell
            self._argv,
            input=msgspec.json.encode(notification),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | about,
            timeout=self._timeout,
            check=False,
        )
        if done.returncode:
            raise OSError(f"the command ended with exit code {done.returncode}")


def _is_word(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value
