"""The problems of a job file, each with its position."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from duly.errors import ConfigurationError
from duly.rules.suggestions import nearest

# Keys of other schedulers, and what to write instead.
_MEANT = {
    "args": "command",
    "argv": "command",
    "cmd": "command",
    "dir": "cwd",
    "directory": "cwd",
    "env": "environment",
    "interval": "every",
    "max_retries": "retry",
    "retries": "retry",
    "run": "command",
    "schedule": "cron",
    "tz": "timezone",
}


class Problem(Struct, frozen=True):
    """One problem of a file. Lines and columns are counted from 1."""

    file: str
    line: int
    column: int
    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {f'{self.where}: ' if self.where else ''}{self.message}"


class JobFileError(ConfigurationError):
    """A job file with problems. `problems` has all of them, in the order of the file."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: Sequence[Problem] = sorted(problems, key=lambda each: (each.line, each.column))
        super().__init__("\n".join(str(each) for each in self.problems))


def unknown(key: str, known: Iterable[str]) -> str:
    """The message for an unknown key; suggests the most similar key, or lists all keys."""
    names = list(known)
    near = _MEANT[key] if _MEANT.get(key) in names else nearest(key, names)
    return f"unknown key {key!r}; " + (f"did you mean {near}?" if near else f"known keys are {', '.join(names)}")
