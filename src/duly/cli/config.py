"""`duly config show`: every setting, its value, and its source."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import click
from msgspec import Struct
from msgspec.structs import asdict

from duly.cli.cluster_config import get_setting, list_settings, set_setting, unset_setting
from duly.cli.options import Group, command, json_option
from duly.cli.output import Column, write_json, write_table
from duly.cli.programs import node_settings
from duly.cli.run import API_PORT, WORKER_PORT
from duly.cli.settings import NODE_SETTINGS, VARIABLES, Settings, Sourced, read_settings, sourced_settings
from duly.cli.text import line
from duly.model import SchedulerConfig
from duly.rules.redaction import redacted

_SECRET = frozenset({"audit_key"})
_COLUMNS = (
    Column("SETTING", importance=9),
    Column("VALUE", wraps=True, importance=8, least=16),
    Column("FROM", importance=7),
    Column("VARIABLES", wraps=True, importance=5, least=16),
)


class Row(Struct, frozen=True):
    """One setting. `source` is a variable, `duly.toml`, `code` or `default`."""

    setting: str
    value: Any
    source: str
    variables: tuple[str, ...] = ()


@click.group(cls=Group, examples=("duly config show", "duly config set max_concurrent=20", "duly config list"))
def config() -> None:
    """Settings: those of this process, and those of the whole cluster."""


@command("duly config show", "duly config show app:scheduler --json")
@click.argument("app", required=False)
@json_option
def show(app: str | None, as_json: bool) -> None:
    """Show every setting and its source; with APP also the settings in its code. Secrets are hidden."""
    rows = [*_process_settings(), *_node_settings(app)]
    if as_json:
        write_json(rows)
    else:
        write_table(_COLUMNS, [(row.setting, _text(row.value), row.source, ", ".join(row.variables)) for row in rows])


def _defaults() -> dict[str, Any]:
    from duly.api.config import ApiSettings, ConnectionLimits  # noqa: PLC0415  # the help needs no API

    api = ApiSettings()
    return {
        "url": "sqlite:///duly.db",
        "log_level": "INFO",
        "log_format": "TEXT",
        "http_addr": f"127.0.0.1:{API_PORT}",
        "processes": 1,
        "worker_http_addr": f"127.0.0.1:{WORKER_PORT}",
        "auth": api.authentication,
        **asdict(ConnectionLimits()),
        **{name: getattr(api, name) for name in ("max_body_bytes", "max_streams", "max_streams_per_token")},
        "unique_for": "24h",
    }


def _process_settings() -> Iterator[Row]:
    """The settings of the process: its store, its port, its logs."""
    given, defaults = sourced_settings(), _defaults()
    for name in Settings.__struct_fields__:
        if name in NODE_SETTINGS.values() or (name == "url" and name not in given and "store" in given):
            continue
        found = given.get(name, Sourced(defaults.get(name), "default"))
        yield Row(name, _shown(name, found.value), found.source, VARIABLES[name])


def _node_settings(app: str | None) -> Iterator[Row]:
    """The settings of the node: the fields of `SchedulerConfig`."""
    defaults = SchedulerConfig()
    code = defaults if app is None else _loaded(app)
    outside, given = node_settings(read_settings()), sourced_settings()
    for name, value in asdict(code).items():
        setting = NODE_SETTINGS.get(name, name)
        variables = VARIABLES.get(setting, ())
        if value != getattr(defaults, name):
            yield Row(name, _shown(name, value), "code", variables)
        elif outside.get(name) is not None:
            yield Row(name, _shown(name, outside[name]), given[setting].source, variables)
        else:
            yield Row(name, _shown(name, value), "default", variables)


def _loaded(app: str) -> SchedulerConfig:
    from duly.cli.app import load_app  # noqa: PLC0415

    return load_app(app).config


def _shown(name: str, value: Any) -> Any:
    """A value without secrets, as JSON can hold it."""
    match value:
        case str() if name in _SECRET:
            return "***"
        case str():
            return redacted(value)
        case timedelta():
            return value.total_seconds()
        case Struct():
            return asdict(value)
        case _ if callable(value):
            return getattr(value, "__qualname__", "code")
        case _:
            return value


def _text(value: Any) -> str:
    return "–" if value is None else line(str(value))


config.add_command(show, "show")
config.add_command(list_settings, "list")
config.add_command(get_setting, "get")
config.add_command(set_setting, "set")
config.add_command(unset_setting, "unset")
