"""The fields of `SchedulerConfig` as settings: the variables and keys of each, and how their texts and values are read.

All of this is derived from the struct, so a new field can be set as soon as it exists. A duration is a number of
seconds or text such as 90s; a list is separated by commas; `none` is no limit where a field accepts None; a hook is
`module:attribute`. `SchedulerConfig` itself checks the values.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from msgspec import DecodeError, Struct, json

from duly.errors import ConfigurationError, shown
from duly.model import Retention, SchedulerConfig
from duly.model.notification import NotificationTarget
from duly.rules.cluster_settings import QUEUES, queues_of
from duly.rules.durations import seconds_of

_NONE = "none"
_RETENTION = "retention"
_NOTIFY = "notify"
_SWITCHES = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
_OTHER_KEYS = {"max_concurrent": "concurrency"}  # shorter names from before every field was a setting
_OTHER_VARIABLES = {"node_id": "WORKER_ID", "default_handler": "DEFAULT_HANDLER"}

Read = Callable[[str, Any], Any]


class NodeSetting(Struct, frozen=True):
    """A field of the configuration, or of its retention: its variables, the first that is set counts; its keys."""

    name: str
    variables: tuple[str, ...]
    keys: tuple[str, ...]
    read: Read


class HookPath(str):
    """A hook as `module:attribute`. It is imported when the program is configured."""

    __slots__ = ()


# --- reading values: `source` names the variable or the key, for errors


def _optional(read: Read) -> Read:
    def read_or_none(source: str, given: Any) -> Any:
        is_none = isinstance(given, str) and given.strip().lower() == _NONE
        return None if is_none else read(source, given)

    return read_or_none


def _duration(source: str, given: Any) -> float:
    if isinstance(given, str):
        try:
            return seconds_of(given)
        except ConfigurationError as exc:
            raise ConfigurationError(f"{source}: {exc}") from exc
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise _invalid(source, given, "a duration such as 90s or 10m")
    return float(given)


def _whole(source: str, given: Any) -> int:
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    try:
        return int(given if isinstance(given, str) else "")
    except ValueError:
        raise _invalid(source, given, "a whole number") from None


def _switch(source: str, given: Any) -> bool:
    if isinstance(given, bool):
        return given
    found = _SWITCHES.get(given.strip().lower()) if isinstance(given, str) else None
    if found is None:
        raise _invalid(source, given, "yes or no")
    return found


def _switch_or(words: Sequence[str]) -> Read:
    def read(source: str, given: Any) -> bool | str:
        return given if given in words else _switch(source, given)

    return read


def _text(source: str, given: Any) -> str:
    if not isinstance(given, str):
        raise _invalid(source, given, "a text")
    return given


def _hook(source: str, given: Any) -> HookPath:
    module, colon, attribute = _text(source, given).partition(":")
    if not (colon and attribute and all(part.isidentifier() for part in module.split("."))):
        raise _invalid(source, given, "module:attribute, for example shop.alerts:notify")
    return HookPath(given)


def _list(source: str, given: Any) -> tuple[str, ...]:
    if isinstance(given, str):
        return tuple(part.strip() for part in given.split(",") if part.strip())
    if not isinstance(given, list | tuple) or not all(isinstance(each, str) for each in given):
        raise _invalid(source, given, "a list of texts")
    return tuple(given)


def _queues(source: str, given: Any) -> tuple[str, ...] | dict[str, float]:
    if isinstance(given, str):
        return queues_of(source, given)
    return dict(given) if isinstance(given, Mapping) else _list(source, given)


def _labels(source: str, given: Any) -> dict[str, str]:
    return dict(given) if isinstance(given, Mapping) else read_labels(source, _list(source, given))


def read_labels(source: str, texts: Sequence[str]) -> dict[str, str]:
    """Labels written as NAME=VALUE."""
    pairs = [text.strip().partition("=") for text in texts]
    for name, sign, value in pairs:
        if not (name and sign and value):
            raise ConfigurationError(
                f"{source}: invalid label {name + sign + value!r}: expected NAME=VALUE, e.g. gpu=yes"
            )
    return {name: value for name, _, value in pairs}


def _targets(source: str, given: Any) -> tuple[NotificationTarget, ...]:
    """Tables of `[notify.NAME]`; in a variable the same as JSON."""
    tables = given
    if isinstance(given, str):
        try:
            tables = json.decode(given)
        except DecodeError as exc:
            raise _invalid(source, given, "tables of targets as JSON") from exc
    if not isinstance(tables, Mapping):
        raise _invalid(source, given, "tables of targets, such as [notify.ops]")
    from duly.runtime.notify.tables import targets_of  # noqa: PLC0415  # most programs have none

    return targets_of(tables)


def _invalid(source: str, given: object, expected: str) -> ConfigurationError:
    return ConfigurationError(f"{source}={shown(given)}: expected {expected}")


# --- the settings


def _reader(name: str, hint: Any) -> Read:
    """How a field of this type is read."""
    if name == QUEUES:
        return _optional(_queues)
    if name == _NOTIFY:
        return _targets
    members = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    origins = {get_origin(member) or member for member in members}
    words = [word for member in members if get_origin(member) is Literal for word in get_args(member)]
    for kind, read in (
        (timedelta, _duration),
        (float, _duration),
        (bool, _switch_or(words)),
        (int, _whole),
        (tuple, _list),
        (Mapping, _labels),
        (Callable, _hook),
        (str, _text),
        (Literal, _text),
    ):
        if kind in origins:
            return _optional(read) if type(None) in origins else read
    raise TypeError(f"SchedulerConfig.{name}: no setting can be read as {hint}")


def _settings() -> dict[str, NodeSetting]:
    hints = get_type_hints(SchedulerConfig)
    found = []
    for name in SchedulerConfig.__struct_fields__:
        if name == _RETENTION:
            continue
        other, variable = _OTHER_KEYS.get(name), _OTHER_VARIABLES.get(name)
        keys = (name,) if other is None else (name, other)
        variables = (*(f"DULY_{key.upper()}" for key in keys), *(() if variable is None else (variable,)))
        found.append(NodeSetting(name, variables, keys, _reader(name, hints[name])))
    for name, hint in get_type_hints(Retention).items():
        whole = f"{_RETENTION}.{name}"
        found.append(NodeSetting(whole, (f"DULY_RETENTION_{name.upper()}",), (whole,), _reader(whole, hint)))
    return {each.name: each for each in found}


NODE_SETTINGS = _settings()


def from_file(source: str, content: dict[str, Any]) -> dict[str, Any]:
    """The values of these settings in a file, which are taken out of its content. `retention` is a table there."""
    retention = content.pop(_RETENTION, {})
    if not isinstance(retention, dict):
        raise _invalid(f"{source}: {_RETENTION}", retention, 'a table, for example retention = {completed = "7d"}')
    content |= {f"{_RETENTION}.{key}": value for key, value in retention.items()}
    found = {}
    for name, setting in NODE_SETTINGS.items():
        given = [key for key in setting.keys if key in content]
        if len(given) > 1:
            raise ConfigurationError(f"{source}: {' and '.join(given)} mean the same: give one of them")
        for key in given:
            found[name] = setting.read(f"{source}: {key}", content.pop(key))
    return found
