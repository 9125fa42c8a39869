"""Cluster-wide settings: which settings can change while nodes run, the values they accept, and which are in force.

They form one document, stored as one small value of the coordinator; the version of that value is the revision.
A document or an entry that cannot be read is a problem to report, never an exception: the node's own value stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import NoReturn

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from duly.errors import ConfigurationError, shown
from duly.model import Item, Retention, SchedulerConfig
from duly.model.config import CHANGEABLE, RETAINED
from duly.rules.durations import seconds_of
from duly.rules.rate_limits import parse, parse_each

KEY = "settings"  # of the coordinator's value
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")

Value = int | float | str | None

_NONE = "none"
_RETENTION = "retention."
LOG_LEVEL, TOKEN_RATE, HANDLER_RATES = _BESIDE_CONFIG = ("log_level", "token_rate", "handler_rates")
QUEUES = "queues"
_FOR_EVER = frozenset({"shutdown_timeout", *(f"{_RETENTION}{name}" for name in Retention.__struct_fields__)})
_COUNTS = frozenset(
    {
        "max_concurrent",
        "max_losses",
        "assign_ahead",
        "shards",
        "max_payload_bytes",
        "keep_events",
        *(f"{_RETENTION}max_{name}" for name in RETAINED),
    }
)


class StoredSetting(Struct, frozen=True):
    """One setting of the cluster: its value, who set it and when, and the revision that resulted."""

    value: Value
    revision: int
    by: str
    at: datetime


class InForce(Struct, frozen=True):
    """What is in force in one process: its own configuration, overridden by the cluster's settings.

    `values` are the cluster's settings that are applied here. `pinned` are those that this process's configuration
    excludes, `problems` says by name why a stored value is not applied.
    """

    config: SchedulerConfig
    revision: int = 0
    stored: Mapping[str, StoredSetting] = {}
    values: Mapping[str, Value] = {}
    pinned: tuple[str, ...] = ()
    problems: Mapping[str, str] = {}

    def text(self, name: str) -> str | None:
        """The cluster's value of a text setting, None if it is not set."""
        value = self.values.get(name)
        return value if isinstance(value, str) else None


def checked(name: str, given: object) -> Value:
    """The value of a setting as it is stored, from text or a value; raises a ConfigurationError if it is invalid."""
    check_name(name)
    if name in _BESIDE_CONFIG:
        return _text_value(name, given)
    value = queues_text(name, given) if name == QUEUES else _figure(name, given)
    _applied(SchedulerConfig(), name, value)
    return value


def check_name(name: str) -> None:
    """Raise a ConfigurationError if a setting cannot change while nodes run."""
    if name in CHANGEABLE:
        return
    if name in SchedulerConfig.__struct_fields__ and name != "retention":
        way_out = "set it in the configuration of every node and restart them"
        raise ConfigurationError(f"{name} cannot change while nodes run: {way_out}")
    import difflib  # noqa: PLC0415  # needed only for a wrong name

    near = difflib.get_close_matches(name, CHANGEABLE, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"these can be set: {', '.join(CHANGEABLE)}"
    raise ConfigurationError(f"unknown setting {shown(name)}; {hint}")


def expects(name: str) -> str:
    """What a setting accepts, in words."""
    if name == LOG_LEVEL:
        return f"one of {', '.join(LOG_LEVELS)}"
    if name == TOKEN_RATE:
        return "a rate such as 10/s or 10/s:20, or none"
    if name == HANDLER_RATES:
        return "rates by handler such as greet=10/s,report=5/m, or none"
    if name == QUEUES:
        return "names such as default,mail, or names and weights such as default=1,mail=3, or none for all queues"
    kind = "a whole number" if name in _COUNTS else "a duration such as 90s or 10m"
    return f"{kind}, or none" if name in _FOR_EVER else kind


def _figure(name: str, given: object) -> Value:
    """A number or a duration, also as text."""
    if given is None or isinstance(given, int | float):
        return given
    if not isinstance(given, str):
        _refuse_value(name, given)
    text = given.strip()
    if text.lower() == _NONE and name in _FOR_EVER:
        return None
    if name in _COUNTS:
        if not (text.isascii() and text.isdigit() and len(text) < 16):
            _refuse_value(name, given)
        return int(text)
    try:
        return seconds_of(text)
    except ConfigurationError as exc:
        raise ConfigurationError(f"{name}: {exc}") from exc


def _text_value(name: str, given: object) -> str | None:
    """A level or rates; no rate is None."""
    text = _NONE if given is None else given.strip() if isinstance(given, str) else ""
    if name == LOG_LEVEL:
        if text.upper() not in LOG_LEVELS:
            _refuse_value(name, given)
        return text.upper()
    if text.lower() == _NONE:
        return None
    try:
        (parse if name == TOKEN_RATE else parse_each)(text)
    except ConfigurationError as exc:
        raise ConfigurationError(f"{name}: {exc}") from exc
    return text


def queues_text(name: str, given: object) -> str | None:
    """Queues as one text: names, or names and weights. None means all queues."""
    if given is None or (isinstance(given, str) and given.strip().lower() == _NONE):
        return None
    found = queues_of(name, given) if isinstance(given, str) else given
    if isinstance(found, Mapping) and all(isinstance(weight, int | float) for weight in found.values()):
        return ",".join(f"{queue}={weight:g}" for queue, weight in found.items())
    if not isinstance(found, tuple | list) or not all(isinstance(queue, str) for queue in found):
        _refuse_value(QUEUES, given)
    return ",".join(found)


def queues_of(name: str, text: str) -> tuple[str, ...] | dict[str, float]:
    """Queues from text: names, or names and weights. `name` is that of the setting, for errors."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise ConfigurationError(f"{name}={shown(text)}: expected {expects(QUEUES)}")
    if not any("=" in part for part in parts):
        return tuple(parts)
    weights = {}
    for queue, _, weight in (part.partition("=") for part in parts):
        try:
            weights[queue.strip()] = float(weight)
        except ValueError:
            raise ConfigurationError(f"{name}={shown(text)}: expected {expects(QUEUES)}") from None
    return weights


def _refuse_value(name: str, given: object) -> NoReturn:
    raise ConfigurationError(f"{name}={shown(given)}: expected {expects(name)}")


def _applied(config: SchedulerConfig, name: str, value: Value) -> SchedulerConfig:
    """The configuration with this value; creating it validates the value."""
    if name.startswith(_RETENTION):
        retention = replace(config.retention, **{name.removeprefix(_RETENTION): value})
        return replace(config, retention=retention)
    if name == QUEUES:
        return replace(config, queues=queues_of(name, value) if isinstance(value, str) else None)
    if value is None and name not in _FOR_EVER:
        _refuse_value(name, value)
    return replace(config, **{name: value})


def own_value(config: SchedulerConfig, name: str) -> Value:
    """The value of a setting in a configuration; None for those that are not in a node's configuration."""
    if name in _BESIDE_CONFIG:
        return None
    if name.startswith(_RETENTION):
        found: Value = getattr(config.retention, name.removeprefix(_RETENTION))
        return found
    if name == QUEUES:
        return queues_text(name, config.queues)
    own: Value = getattr(config, name)
    return own


# --- the document


def in_force(own: SchedulerConfig, item: Item | None) -> InForce:
    """What is in force in a process with this configuration, given the stored document (None: there is none)."""
    if item is None:
        return InForce(own)
    stored, problems = _read(item.value)
    config, values, pinned = own, {}, []
    for name, entry in stored.items():
        if name in own.pinned or "*" in own.pinned:
            pinned.append(name)
            continue
        try:
            value = checked(name, entry.value)
            if name not in _BESIDE_CONFIG:
                config = _applied(config, name, value)
        except ConfigurationError as exc:
            problems[name] = str(exc)
        else:
            values[name] = value
    return InForce(config, item.version, stored, values, tuple(pinned), problems)


def _read(document: bytes) -> tuple[dict[str, StoredSetting], dict[str, str]]:
    stored: dict[str, StoredSetting] = {}
    problems: dict[str, str] = {}
    try:
        entries = msgspec.json.decode(document, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        return stored, {"*": f"the stored settings cannot be read: {exc}"}
    for name, raw in entries.items():
        try:
            stored[name] = msgspec.json.decode(raw, type=StoredSetting)
        except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
            problems[name] = f"{name}: the stored value cannot be read: {exc}"
    return stored, problems


def encoded(stored: Mapping[str, StoredSetting]) -> bytes:
    """The document with these settings."""
    return msgspec.json.encode(stored)


def changes(before: InForce, after: InForce) -> list[str]:
    """What a process does differently now, in words."""
    names = [name for name in CHANGEABLE if _in_force(before, name) != _in_force(after, name)]
    return [f"{name} {_shown(before, name)} → {_shown(after, name)}" for name in names]


def _in_force(each: InForce, name: str) -> Value:
    return each.values[name] if name in each.values else own_value(each.config, name)


def _shown(each: InForce, name: str) -> str:
    value = _in_force(each, name)
    if value is None:
        return _NONE if name in each.values or name not in _BESIDE_CONFIG else "as configured"
    return str(value)


Changed = Callable[[InForce, InForce], None]
