"""Settings from around the program: the environment, and the file `duly.toml` in the current folder.

The order is: flags, arguments in code, `DULY_*`, plain names such as `LOG_LEVEL`, `duly.toml`, defaults. This module
knows the middle part; each command adds its flags.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from duly.cli.plain import plain_address
from duly.errors import ConfigurationError

FILE = "duly.toml"


class FileSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """What `duly.toml` may say. None: nothing."""

    url: str | None = None
    namespace: str | None = None
    app: str | None = None
    concurrency: int | None = None
    queues: tuple[str, ...] | dict[str, float] | None = None
    log_level: str | None = None
    log_format: str | None = None


class Settings(FileSettings, frozen=True):
    """The same, with what the environment says on top of it."""

    node_id: str | None = None
    queue: str | None = None
    coordinator: str | None = None
    labels: dict[str, str] | None = None


# Of each setting the environment variables that give it, the first that is set winning.
VARIABLES = {
    "url": ("DULY_URL", "DULY_STORE"),
    "queue": ("DULY_QUEUE",),
    "coordinator": ("DULY_COORDINATOR",),
    "namespace": ("DULY_NAMESPACE",),
    "app": ("DULY_APP",),
    "log_level": ("DULY_LOG_LEVEL", "LOG_LEVEL"),
    "log_format": ("DULY_LOG_FORMAT", "LOG_FORMAT"),
    "node_id": ("DULY_NODE_ID", "WORKER_ID"),
}


def read_settings(environment: Mapping[str, str] = os.environ, folder: Path | None = None) -> Settings:
    """What is said around the program. An empty variable says nothing."""
    said = Settings(**asdict(_read_file((folder or Path.cwd()) / FILE)))
    named = any(environment.get(variable) for variable in VARIABLES["url"])
    if not named and (plain := plain_address(environment)) is not None:
        said = replace(said, url=plain.store, queue=plain.queue, coordinator=plain.coordinator)
    found = {name: environment[variable] for name, variable in _set_variables(environment).items()}
    labels = read_labels("DULY_LABELS", [part for part in environment.get("DULY_LABELS", "").split(",") if part])
    return replace(said, **found, labels=labels or None)


def read_labels(where: str, texts: Sequence[str]) -> dict[str, str]:
    """Labels written as NAME=VALUE."""
    pairs = [text.strip().partition("=") for text in texts]
    for name, sign, value in pairs:
        if not (name and sign and value):
            raise ConfigurationError(f"{where}: {name + sign + value!r} is no label: write NAME=VALUE, as gpu=yes")
    return {name: value for name, _, value in pairs}


def _set_variables(environment: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for name, variables in VARIABLES.items():
        for variable in variables:
            if environment.get(variable):
                found[name] = variable
                break
    return found


def _read_file(path: Path) -> FileSettings:
    if not path.is_file():
        return FileSettings()
    import tomllib  # noqa: PLC0415  # most programs have no such file

    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as exc:
        raise ConfigurationError(f"{path.name} cannot be read: {exc}") from exc
    _refuse_unknown(path.name, content)
    try:
        return msgspec.convert(content, FileSettings)
    except msgspec.ValidationError as exc:
        raise ConfigurationError(f"{path.name}: {exc}") from exc


def _refuse_unknown(name: str, content: Mapping[str, Any]) -> None:
    known = FileSettings.__struct_fields__
    for key in content:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
            raise ConfigurationError(f"{name}: unknown key {key!r}; {hint}")
