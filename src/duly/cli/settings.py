"""Settings from the environment and from the file `duly.toml` in the current folder.

The order of precedence is: flags, arguments in code, `DULY_*`, other names such as `LOG_LEVEL`, `duly.toml`, defaults.
This module reads the middle part and remembers the source of each value; each command adds its flags. Every variable
has a variant that ends in `_FILE` and names a file that holds the value, for secrets.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints
from urllib.parse import quote

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from duly.errors import ConfigurationError
from duly.rules.durations import seconds_of

if TYPE_CHECKING:
    from duly.backends.address import Address

FILE = "duly.toml"
FROM_FILE = "_FILE"

_Duration = float | str | None


class FileSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The keys of `duly.toml`. None means: not set."""

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
    processes: int | None = None
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
    header_timeout: _Duration = None
    body_timeout: _Duration = None
    idle_timeout: _Duration = None
    max_streams: int | None = None
    max_streams_per_token: int | None = None
    notify: dict[str, dict[str, Any]] | None = None


class Settings(FileSettings, frozen=True):
    """The settings of the file, overridden by the environment, which has some more."""

    node_id: str | None = None
    labels: dict[str, str] | None = None


_OTHER_NAMES = {
    "log_level": "LOG_LEVEL",
    "log_format": "LOG_FORMAT",
    "node_id": "WORKER_ID",
    "http_addr": "HTTP_ADDR",
    "worker_http_addr": "WORKER_HTTP_ADDR",
    "default_handler": "DEFAULT_HANDLER",
}

# The environment variables of each setting. The first one that is set counts.
VARIABLES = {
    name: (f"DULY_{name.upper()}", *([_OTHER_NAMES[name]] if name in _OTHER_NAMES else []))
    for name in Settings.__struct_fields__
    if name != "notify"  # tables, which a variable cannot hold
}

# The settings that are fields of `SchedulerConfig`, by the name of the field.
NODE_SETTINGS = {
    "max_concurrent": "concurrency",
    "queues": "queues",
    "node_id": "node_id",
    "labels": "labels",
    "namespace": "namespace",
    "publish_events": "publish_events",
    "keep_events": "keep_events",
    "audit_key": "audit_key",
    "default_handler": "default_handler",
    "pinned": "pinned",
    "notify": "notify",
}

STORE_SETTINGS = ("url", "store", "queue", "coordinator")
_TYPES = get_type_hints(Settings)
_DURATIONS = [name for name, kind in _TYPES.items() if kind == _Duration]
_SWITCHES = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}


class Sourced(Struct, frozen=True):
    """A value and its source: the name of a variable, or of the file."""

    value: Any
    source: str


def read_settings(environment: Mapping[str, str] = os.environ, folder: Path | None = None) -> Settings:
    """The settings of the environment and the file. An empty variable counts as not set."""
    return replace(Settings(), **{name: each.value for name, each in sourced_settings(environment, folder).items()})


def sourced_settings(environment: Mapping[str, str] = os.environ, folder: Path | None = None) -> dict[str, Sourced]:
    """The same with sources. What is not set is left out."""
    path = (folder or Path.cwd()) / FILE
    found = {name: Sourced(value, FILE) for name, value in asdict(_read_file(path)).items() if value is not None}
    variables = _read_variables(environment)
    if not variables.keys() & {"url", "store"}:
        variables = _common_store_variables(environment) | variables
    if variables.keys() & set(STORE_SETTINGS):  # one address never mixes the file's parts with the environment's
        found = {name: each for name, each in found.items() if name not in STORE_SETTINGS}
    return found | variables


def _read_variables(environment: Mapping[str, str]) -> dict[str, Sourced]:
    found = {}
    for name, variables in VARIABLES.items():
        given = next(filter(None, (_read_variable(environment, variable) for variable in variables)), None)
        if given is not None:
            found[name] = Sourced(_converted(name, given), given.source)
    return found


def _read_variable(environment: Mapping[str, str], variable: str) -> Sourced | None:
    """The value of a variable, or the content of the file that its `_FILE` variant names."""
    plain, file = environment.get(variable), environment.get(f"{variable}{FROM_FILE}")
    if plain and file:
        raise ConfigurationError(f"{variable} and {variable}{FROM_FILE} are both set: set one of them")
    if not file:
        return Sourced(plain, variable) if plain else None
    try:
        return Sourced(Path(file).read_text(encoding="utf-8").strip(), f"{variable}{FROM_FILE}")
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigurationError(f"{variable}{FROM_FILE}={file!r} cannot be read: {exc}") from exc


def _converted(name: str, given: Sourced) -> Any:
    """The text of a variable as the type of its setting."""
    text: str = given.value
    if name in {"queues", "labels", "pinned"}:
        parts = tuple(part.strip() for part in text.split(",") if part.strip())
        return read_labels(given.source, parts) if name == "labels" else parts
    if name in _DURATIONS:
        return _seconds(given.source, text)
    if _TYPES[name] == bool | None:
        if text.lower() not in _SWITCHES:
            raise ConfigurationError(f"{given.source}={text!r}: expected yes or no")
        return _SWITCHES[text.lower()]
    if _TYPES[name] != int | None:
        return text
    try:
        return int(text)
    except ValueError as exc:
        raise ConfigurationError(f"{given.source}={text!r}: expected a whole number") from exc


def read_labels(source: str, texts: Sequence[str]) -> dict[str, str]:
    """Labels written as NAME=VALUE."""
    pairs = [text.strip().partition("=") for text in texts]
    for name, sign, value in pairs:
        if not (name and sign and value):
            raise ConfigurationError(
                f"{source}: invalid label {name + sign + value!r}: expected NAME=VALUE, e.g. gpu=yes"
            )
    return {name: value for name, _, value in pairs}


def _seconds(source: str, given: float | str) -> float:
    """A duration: a number of seconds, or text such as 10s."""
    try:
        return seconds_of(given) if isinstance(given, str) else float(given)
    except ConfigurationError as exc:
        raise ConfigurationError(f"{source}: {exc}") from exc


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
            hint = f"did you mean {near[0]}?" if near else f"known keys are {', '.join(known)}"
            raise ConfigurationError(f"{name}: unknown key {key!r}; {hint}")


# --- POSTGRES_DSN, REDIS_URL, ETCD_ENDPOINTS
#
# POSTGRES_DSN or REDIS_URL alone is that backend, both are store and queue, and ETCD_ENDPOINTS adds the coordinator.
# Only the `duly` command reads them: other libraries in a program may use the same names.

_STORE_VARIABLES = ("POSTGRES_DSN", "REDIS_URL", "ETCD_ENDPOINTS", "REDIS_STREAM_NAME", "REDIS_GROUP_NAME")
_ETCD_SCHEMES = ("etcd", "etcds", "etcd+https")
_HTTPS, _HTTP = "https://", "http://"


def _common_store_variables(environment: Mapping[str, str]) -> dict[str, Sourced]:
    given = {name: found for name in _STORE_VARIABLES if (found := _read_variable(environment, name)) is not None}
    address = _address({name: str(each.value) for name, each in given.items()})
    if address is None:
        return {}
    source = " + ".join(each.source for each in given.values())
    parts = {"url": address.store, "queue": address.queue, "coordinator": address.coordinator}
    return {name: Sourced(value, source) for name, value in parts.items() if value is not None}


def _address(given: Mapping[str, str]) -> Address | None:
    from duly.backends.address import Address  # noqa: PLC0415

    store, redis, etcd = (given.get(name) for name in ("POSTGRES_DSN", "REDIS_URL", "ETCD_ENDPOINTS"))
    coordinator = _etcd_url(etcd) if etcd else None
    if store and "://" not in store:
        raise ConfigurationError("POSTGRES_DSN is not a URL: write postgresql://user:password@host:5432/database")
    if store:
        return Address(store, _stream_url(redis, given) if redis else None, coordinator)
    if redis:
        return Address(_redis_url(redis), None, coordinator)
    if coordinator:
        raise ConfigurationError("ETCD_ENDPOINTS is set without a store: set POSTGRES_DSN as well")
    return None


def _redis_url(text: str) -> str:
    return text if "://" in text else f"redis://{text}"


def _stream_url(text: str, given: Mapping[str, str]) -> str:
    """The URL with the names of the stream and of its consumer group, if these are given."""
    url = _redis_url(text)
    named = {"stream": given.get("REDIS_STREAM_NAME"), "group": given.get("REDIS_GROUP_NAME")}
    options = "&".join(f"{name}={quote(value, safe='')}" for name, value in named.items() if value)
    return f"{url}{'&' if '?' in url else '?'}{options}" if options else url


def _etcd_url(endpoints: str) -> str:
    """One URL for a list of host:port, each of which may begin with http:// or https://."""
    if endpoints.partition("://")[0] in _ETCD_SCHEMES:
        return endpoints
    named = [endpoint.strip().rstrip("/") for endpoint in endpoints.split(",") if endpoint.strip()]
    secure = [endpoint.startswith(_HTTPS) for endpoint in named]
    if any(secure) and not all(secure):
        raise ConfigurationError("ETCD_ENDPOINTS has https:// for some members and not for others: write it for all")
    hosts = ",".join(endpoint.removeprefix(_HTTPS).removeprefix(_HTTP) for endpoint in named)
    return f"{'etcds' if any(secure) else 'etcd'}://{hosts}"
