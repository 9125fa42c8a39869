"""Which log records are those of users, and their texts, even if their arguments cannot be formatted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from duly.model import sanitize
from duly.model.run_log import MOST_LINE

_OURS = "duly"
_OF_JOBS = "duly.job."


def is_users(name: object) -> bool:
    """Whether a logger is the user's: any but Duly's own, and those that jobs get from `Context.log`."""
    if not isinstance(name, str):  # `logging.makeLogRecord` sets the name later
        return False
    return (name != _OURS and not name.startswith(f"{_OURS}.")) or is_of_job(name)


def is_of_job(name: str) -> bool:
    """Whether a logger is one that a job got from `Context.log`."""
    return name.startswith(_OF_JOBS)


def message_of(message: object, arguments: Any) -> str:
    """A message with its arguments, as `logging` formats them; without them if that raises."""
    if isinstance(arguments, tuple) and len(arguments) == 1 and isinstance(arguments[0], Mapping) and arguments[0]:
        [arguments] = arguments
    try:
        return str(message) % arguments if arguments else str(message)
    except Exception:  # noqa: BLE001  # the user's objects
        return f"{sanitize.text_of(message, MOST_LINE)} [its arguments cannot be formatted]"
