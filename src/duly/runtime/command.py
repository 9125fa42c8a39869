"""Commands: a program to run instead of a Python callable."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import force_setattr

from duly.errors import ConfigurationError, shown
from duly.model.confinement import Confinement, confinement_of


class Command(Struct, frozen=True):
    """A program and its arguments, run without a shell.

    `argv` is a list, never split or expanded; with `shell=True` it must be one string and `/bin/sh -c` runs it.
    The environment contains only `env`, PATH (unless `env` sets it) and `DULY_RUN_ID`, `DULY_JOB`,
    `DULY_ATTEMPT`, `DULY_DUE`, `DULY_FENCE`, `DULY_IDEMPOTENCY_KEY`, `DULY_PAYLOAD`. `cwd` None is the worker's own
    directory. `confine` limits what the program may use.
    """

    argv: Sequence[str] | str
    cwd: str | Path | None = None
    env: Mapping[str, str] | None = None
    shell: bool = False
    confine: Confinement | Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.shell != isinstance(self.argv, str):
            way_out = "one string with shell=True" if self.shell else "a list of strings, or shell=True for a string"
            raise ConfigurationError(f"Command({shown(self.argv)}, shell={shown(self.shell)}): argv must be {way_out}")
        if not self.argv or not all(_is_word(part) for part in self.argv):
            raise ConfigurationError(f"Command({shown(self.argv)}): argv must be strings without NUL, at least one")
        force_setattr(self, "confine", confinement_of(self.confine))

    @property
    def confinement(self) -> Confinement | None:
        """`confine`, as what it stands for."""
        return confinement_of(self.confine)

    @property
    def words(self) -> list[str]:
        """The program and arguments to execute."""
        return ["/bin/sh", "-c", self.argv] if isinstance(self.argv, str) else list(self.argv)

    def __str__(self) -> str:
        return self.argv if isinstance(self.argv, str) else shlex.join(self.argv)


def _is_word(part: object) -> bool:
    return isinstance(part, str) and "\0" not in part
