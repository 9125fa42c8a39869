"""Confinement: what the process of a command or handler may use, as plain data.

Values are checked here; whether a node can apply them depends on its system and its rights (`rules.confining`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import force_setattr

from duly.errors import ConfigurationError, shown

_SIZE = re.compile(r"(\d{1,12})(?:([KMGT])(?:iB)?)?", re.ASCII)
_UNITS = {None: 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_LEAST_MEMORY, _MOST_MEMORY = 1 << 20, 1 << 50
_LEAST_FILES, _MOST_FILES = 8, 1 << 30
_MOST_SECONDS = 366 * 86400
_USER = re.compile(r"[a-z_][a-z0-9_.-]{0,30}\$?", re.ASCII | re.IGNORECASE)


class Confinement(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a process may use. Whatever is left out is not limited.

    `memory` (bytes, or "512M") limits its address space, `cpu_seconds` its processor time, `open_files` its file
    descriptors; each applies to every process that it starts, not to their sum. `user` is the user as which it runs:
    the node needs the right to change the user. `umask` is for the files that it creates. With `no_new_privileges` it
    gains no rights from set-user-ID programs. `private_tmp` gives it an empty folder as TMPDIR, which is deleted
    afterwards.
    """

    memory: int | str | None = None
    cpu_seconds: int | None = None
    open_files: int | None = None
    user: str | None = None
    umask: int | None = None
    no_new_privileges: bool = False
    private_tmp: bool = False

    def __post_init__(self) -> None:
        if self.memory is not None:
            size = _size(self.memory)
            force_setattr(self, "memory", _whole("memory", size, _LEAST_MEMORY, _MOST_MEMORY, "bytes, or e.g. 512M"))
        if self.cpu_seconds is not None:
            _whole("cpu_seconds", self.cpu_seconds, 1, _MOST_SECONDS, "seconds")
        if self.open_files is not None:
            _whole("open_files", self.open_files, _LEAST_FILES, _MOST_FILES, "files")
        if self.umask is not None:
            _whole("umask", self.umask, 0, 0o777, "permissions, e.g. 0o077")
        if self.user is not None:
            _check_user(self.user)
        for name in ("no_new_privileges", "private_tmp"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigurationError(f"confine: {name}={shown(getattr(self, name))}: expected true or false")

    def __str__(self) -> str:
        """As it is written, for listings and for comparisons of job files."""
        written = {name: getattr(self, name) for name in self.__struct_fields__}
        if self.umask is not None:
            written["umask"] = f"{self.umask:#05o}"
        return ", ".join(f"{name}={value}" for name, value in written.items() if value not in (None, False))


def confinement_of(given: Any) -> Confinement | None:
    """The confinement that a program passes: one, a mapping of its fields, or None."""
    match given:
        case None | Confinement():
            return given
        case Mapping():
            unknown = [name for name in given if name not in Confinement.__struct_fields__]
            if unknown:
                known = ", ".join(Confinement.__struct_fields__)
                raise ConfigurationError(f"confine: unknown field {shown(unknown[0])}; expected one of {known}")
            return Confinement(**given)
        case _:
            raise ConfigurationError(f"confine={shown(given)}: expected a Confinement, or a mapping of its fields")


def _size(given: Any) -> Any:
    if not isinstance(given, str):
        return given
    match = _SIZE.fullmatch(given)
    if match is None:
        raise ConfigurationError(f"confine: memory={shown(given)}: expected a number of bytes, or e.g. 512M or 2G")
    return int(match[1]) * _UNITS[match[2]]


def _check_user(user: object) -> None:
    if not isinstance(user, str) or _USER.fullmatch(user) is None:
        raise ConfigurationError(f"confine: user={shown(user)}: expected the name of a user")


def _whole(name: str, value: Any, least: int, most: int, of: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ConfigurationError(f"confine: {name}={shown(value)}: expected a number of {of}, from {least} to {most}")
    return value
