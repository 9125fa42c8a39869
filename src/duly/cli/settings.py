"""Settings from around the program: the environment, and the file `duly.toml` in the current folder.

The order is: flags, arguments in code, `DULY_*`, plain names such as `LOG_LEVEL`, `duly.toml`, defaults. This module
knows the middle part, and of each value where it came from; each command adds its flags. Every variable has a twin
that ends in `_FILE` and names a file which holds the value, for secrets.
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

from duly.cli.env_names import PLAIN, plain_address
from duly.errors import ConfigurationError
from duly.rules.durations import seconds_of

FILE = "duly.toml"
FROM_FILE = "_FILE"


class FileSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """What `duly.toml` may say. None: nothing."""

    url: str | None = None
    namespace: str | None = None
    app: str | None = None
    concurrency: int | None = None
    queues: tuple[str, ...] | dict[str, float] | None = None
    log_level: str | None = None
    log_format: str | None = None
    store: str | None = None
    queue: str | None = None
    coordinator: str | None = None
    http_addr: str | None = None
    worker_http_addr: str | None = None
    auth: str | None = None
    max_body_bytes: int | None = None
    unique_for: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    token_rate: str | None = None
    handler_rates: str | dict[str, str] | None = None
    publish_events: bool | None = None
    keep_events: int | None = None
    audit_key: str | None = None
    default_handler: str | None = None
    pinned: tuple[str, ...] | None = None
    max_connections: int | None = None
    max_header_bytes: int | None = None
    max_request_line: int | None = None
    max_headers: int | None = None
    header_timeout: float | str | None = None
    body_timeout: float | str | None = None
    idle_timeout: float | str | None = None
    max_streams: int | None = None
    max_streams_per_token: int | None = None


class Settings(FileSettings, frozen=True):
    """The same, with what the environment says on top of it."""

    node_id: str | None = None
    queue: str | None = None
    coordinator: str | None = None
    labels: dict[str, str] | None = None


# Of each setting the environment variables that give it, the first that is set winning.
VARIABLES = {
    "url": ("DULY_URL",),
    "store": ("DULY_STORE",),
    "queue": ("DULY_QUEUE",),
    "coordinator": ("DULY_COORDINATOR",),
    "namespace": ("DULY_NAMESPACE",),
    "app": ("DULY_APP",),
    "concurrency": ("DULY_CONCURRENCY",),
    "queues": ("DULY_QUEUES",),
    "log_level": ("DULY_LOG_LEVEL", "LOG_LEVEL"),
    "log_format": ("DULY_LOG_FORMAT", "LOG_FORMAT"),
    "node_id": ("DULY_NODE_ID", "WORKER_ID"),
    "labels": ("DULY_LABELS",),
    "http_addr": ("DULY_HTTP_ADDR", "HTTP_ADDR"),
    "worker_http_addr": ("DULY_WORKER_HTTP_ADDR", "WORKER_HTTP_ADDR"),
    "auth": ("DULY_AUTH",),
    "max_body_bytes": ("DULY_MAX_BODY_BYTES",),
    "unique_for": ("DULY_UNIQUE_FOR",),
    "tls_cert": ("DULY_TLS_CERT",),
    "tls_key": ("DULY_TLS_KEY",),
    "token_rate": ("DULY_TOKEN_RATE",),
    "handler_rates": ("DULY_HANDLER_RATES",),
    "publish_events": ("DULY_PUBLISH_EVENTS",),
    "keep_events": ("DULY_KEEP_EVENTS",),
    "audit_key": ("DULY_AUDIT_KEY",),
    "default_handler": ("DULY_DEFAULT_HANDLER", "DEFAULT_HANDLER"),
    "pinned": ("DULY_PINNED",),
    "max_connections": ("DULY_MAX_CONNECTIONS",),
    "max_header_bytes": ("DULY_MAX_HEADER_BYTES",),
    "max_request_line": ("DULY_MAX_REQUEST_LINE",),
    "max_headers": ("DULY_MAX_HEADERS",),
    "header_timeout": ("DULY_HEADER_TIMEOUT",),
    "body_timeout": ("DULY_BODY_TIMEOUT",),
    "idle_timeout": ("DULY_IDLE_TIMEOUT",),
    "max_streams": ("DULY_MAX_STREAMS",),
    "max_streams_per_token": ("DULY_MAX_STREAMS_PER_TOKEN",),
}

_STORES = frozenset({"url", "store", "queue", "coordinator"})
_LISTS = frozenset({"queues", "labels", "pinned"})
_NUMBERS = frozenset(
    {
        "concurrency",
        "max_body_bytes",
        "keep_events",
        "max_connections",
        "max_header_bytes",
        "max_request_line",
        "max_headers",
        "max_streams",
        "max_streams_per_token",
    }
)
_DURATIONS = frozenset({"header_timeout", "body_timeout", "idle_timeout"})
_SWITCHES = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}


class Said(Struct, frozen=True):
    """A value and who said it: a variable, or the file."""

    value: Any
    source: str


def read_settings(environment: Mapping[str, str] = os.environ, folder: Path | None = None) -> Settings:
    """What is said around the program. An empty variable says nothing."""
    return replace(Settings(), **{name: said.value for name, said in said_around(environment, folder).items()})


def read_labels(where: str, texts: Sequence[str]) -> dict[str, str]:
    """Labels written as NAME=VALUE."""
    pairs = [text.strip().partition("=") for text in texts]
    for name, sign, value in pairs:
        if not (name and sign and value):
            raise ConfigurationError(f"{where}: {name + sign + value!r} is no label: write NAME=VALUE, as gpu=yes")
    return {name: value for name, _, value in pairs}


def said_around(environment: Mapping[str, str] = os.environ, folder: Path | None = None) -> dict[str, Said]:
    """The same with sources; what nobody says is left out."""
    path = (folder or Path.cwd()) / FILE
    found = {name: Said(value, FILE) for name, value in asdict(_read_file(path)).items() if value is not None}
    variables = _variables(environment)
    stores = {name: said for name, said in variables.items() if name in _STORES}
    if not stores.keys() & {"url", "store"}:
        stores = _plain_stores(environment) | stores
    if stores:  # one address is never half of the file's and half of the environment's
        found = {name: said for name, said in found.items() if name not in _STORES}
    return found | stores | {name: said for name, said in variables.items() if name not in _STORES}


def _variables(environment: Mapping[str, str]) -> dict[str, Said]:
    found = {}
    for name, variables in VARIABLES.items():
        for variable in variables:
            said = variable_said(environment, variable)
            if said is not None:
                found[name] = Said(_typed(name, said), said.source)
                break
    return found


def variable_said(environment: Mapping[str, str], variable: str) -> Said | None:
    """What a variable says, itself or by the file that its twin names."""
    plain, file = environment.get(variable), environment.get(f"{variable}{FROM_FILE}")
    if plain and file:
        raise ConfigurationError(f"{variable} and {variable}{FROM_FILE} are both set: set one of them")
    if not file:
        return Said(plain, variable) if plain else None
    try:
        return Said(Path(file).read_text(encoding="utf-8").strip(), f"{variable}{FROM_FILE}")
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigurationError(f"{variable}{FROM_FILE}={file!r} cannot be read: {exc}") from exc


def _plain_stores(environment: Mapping[str, str]) -> dict[str, Said]:
    """The stores of the plain names, where no `DULY_*` says one."""
    said = {name: found for name in PLAIN if (found := variable_said(environment, name)) is not None}
    address = plain_address({name: str(each.value) for name, each in said.items()})
    if address is None:
        return {}
    sources = " + ".join(each.source for each in said.values())
    parts = {"url": address.store, "queue": address.queue, "coordinator": address.coordinator}
    return {name: Said(value, sources) for name, value in parts.items() if value is not None}


def _typed(name: str, said: Said) -> Any:
    """A variable's text as its setting has it."""
    if name in _LISTS:
        parts = tuple(part.strip() for part in said.value.split(",") if part.strip())
        return read_labels(said.source, parts) if name == "labels" else parts
    if name == "publish_events":
        if said.value.lower() not in _SWITCHES:
            raise ConfigurationError(f"{said.source}={said.value!r}: yes or no is needed")
        return _SWITCHES[said.value.lower()]
    if name in _DURATIONS:
        return _seconds(said.source, said.value)
    if name not in _NUMBERS:
        return said.value
    try:
        return int(said.value)
    except ValueError as exc:
        raise ConfigurationError(f"{said.source}={said.value!r}: a whole number is needed") from exc


def _seconds(where: str, given: float | str) -> float:
    """A duration as it is written: seconds, or text such as 10s."""
    try:
        return seconds_of(given) if isinstance(given, str) else float(given)
    except ConfigurationError as exc:
        raise ConfigurationError(f"{where}: {exc}") from exc


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
        found = msgspec.convert(content, FileSettings)
    except msgspec.ValidationError as exc:
        raise ConfigurationError(f"{path.name}: {exc}") from exc
    given = {name: value for name in _DURATIONS if (value := getattr(found, name)) is not None}
    return replace(found, **{name: _seconds(f"{path.name}: {name}", value) for name, value in given.items()})


def _refuse_unknown(name: str, content: Mapping[str, Any]) -> None:
    known = FileSettings.__struct_fields__
    for key in content:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
            raise ConfigurationError(f"{name}: unknown key {key!r}; {hint}")
