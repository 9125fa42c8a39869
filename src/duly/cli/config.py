"""`duly config show`: every setting, its value, its source, and whether it can change while nodes run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import click
from msgspec import Struct
from msgspec.structs import asdict

from duly.cli.cluster_config import get_setting, list_settings, set_setting, unset_setting
from duly.cli.node_settings import NODE_SETTINGS
from duly.cli.options import Group, command, json_option
from duly.cli.output import Column, note, on_terminal, write_json, write_table
from duly.cli.programs import own_value
from duly.cli.run import API_PORT, WORKER_PORT
from duly.cli.settings import PROCESS_SETTINGS, VARIABLES, Sourced, sourced_settings
from duly.cli.text import line
from duly.model import SchedulerConfig
from duly.model.config import CHANGEABLE
from duly.rules.describe import duration
from duly.rules.redaction import redacted

_SECRET = frozenset({"audit_key"})
_WIDEST = 60
_WIDE = 120  # columns of a terminal on which all columns of the table fit
_LIVE, _RESTART = "live", "restart"
_COLUMNS = (
    Column("SETTING"),
    Column("VALUE", wraps=True),
    Column("FROM"),
    Column("CHANGE"),
    Column("VARIABLES", wraps=True),
)


class Row(Struct, frozen=True):
    """One setting. `source` is a variable, `duly.toml`, `pyproject.toml`, `code` or `default`.

    `change` is "live" if `duly config set` can change it while nodes run, and "restart" if a process must be restarted.
    """

    setting: str
    value: Any
    source: str
    change: str
    variables: tuple[str, ...] = ()


def _row(name: str, value: Any, source: str) -> Row:
    return Row(name, _shown(name, value), source, _LIVE if name in CHANGEABLE else _RESTART, VARIABLES[name])


@click.group(cls=Group, examples=("duly config show", "duly config set max_concurrent=20", "duly config list"))
def config() -> None:
    """Settings: those of this process, and those of the whole cluster."""


@command("duly config show", "duly config show app:scheduler --json")
@click.argument("app", required=False)
@json_option
def show(app: str | None, as_json: bool) -> None:
    """Show every setting and its source; with APP also the settings in its code. Secrets are hidden.

    CHANGE is `live` for a setting that `duly config set` can change while nodes run; `duly config list` shows what the
    cluster has set. It is `restart` for a setting that a process reads when it starts.
    """
    rows = [*_process_settings(), *_node_settings(app)]
    if as_json:
        write_json(rows)
    else:
        _write(rows)


def _write(rows: Sequence[Row]) -> None:
    """Write a table. On a narrow terminal, names of variables would break in the middle: they are left out there."""
    narrow = on_terminal() and shutil.get_terminal_size().columns < _WIDE
    columns = len(_COLUMNS) - narrow
    write_table(_COLUMNS[:columns], [_cells(row)[:columns] for row in rows])
    if narrow:
        note(f"the variable of a setting is DULY_ and its name in capitals; {_WIDE} columns or --json show other names")


def _cells(row: Row) -> tuple[str, ...]:
    return (row.setting, _text(row.value), row.source, row.change, ", ".join(row.variables))


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
    for name in PROCESS_SETTINGS:
        if name == "url" and name not in given and "store" in given:
            continue
        found = given.get(name, Sourced(defaults.get(name), "default"))
        yield _row(name, found.value, found.source)


def _node_settings(app: str | None) -> Iterator[Row]:
    """The settings of the node: the fields of `SchedulerConfig`, and of its retention."""
    defaults = SchedulerConfig()
    code = defaults if app is None else _loaded(app)
    given = sourced_settings()
    for name in NODE_SETTINGS:
        value = own_value(code, name)
        if value != own_value(defaults, name):
            yield _row(name, value, "code")
        elif name in given:
            yield _row(name, given[name].value, given[name].source)
        else:
            yield _row(name, value, "default")


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
    match value:
        case None:
            text = "–"
        case bool():
            text = "yes" if value else "no"
        case float():
            text = duration(timedelta(seconds=value)) if value else "0"
        case list() | tuple():
            text = ", ".join(map(str, value)) or "–"
        case dict():
            text = ", ".join(f"{key}={each}" for key, each in value.items()) or "–"
        case _:
            text = str(value)
    return line(text, _WIDEST)


config.add_command(show, "show")
config.add_command(list_settings, "list")
config.add_command(get_setting, "get")
config.add_command(set_setting, "set")
config.add_command(unset_setting, "unset")
