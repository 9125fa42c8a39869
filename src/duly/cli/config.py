"""`duly config show`: every setting, its value, and who said so."""

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
from duly.cli.programs import env
from duly.cli.run import API_PORT, WORKER_PORT
from duly.cli.settings import VARIABLES, Said, Settings, read_settings, said_around
from duly.cli.words import line
from duly.model import SchedulerConfig
from duly.rules.redaction import redacted

_DEFAULTS: dict[str, Any] = {
    "url": "sqlite:///duly.db",
    "log_level": "INFO",
    "log_format": "TEXT",
    "http_addr": f"127.0.0.1:{API_PORT}",
    "worker_http_addr": f"127.0.0.1:{WORKER_PORT}",
    "auth": "token",
    "max_body_bytes": 1 << 20,
    "max_connections": 1000,
    "max_header_bytes": 32_768,
    "max_request_line": 8192,
    "max_headers": 100,
    "header_timeout": 10.0,
    "body_timeout": 30.0,
    "idle_timeout": 75.0,
    "max_streams": 100,
    "max_streams_per_token": 10,
    "unique_for": "24h",
}
_ELSEWHERE = {
    "concurrency": "max_concurrent",
    "queues": "queues",
    "node_id": "node_id",
    "namespace": "namespace",
    "publish_events": "publish_events",
    "keep_events": "keep_events",
    "audit_key": "audit_key",
    "default_handler": "default_handler",
    "pinned": "pinned",
}
_SECRET = frozenset({"audit_key"})
_WIDEST = 60
_COLUMNS = (Column("SETTING"), Column("VALUE", gives_way=True), Column("FROM"), Column("VARIABLES", gives_way=True))


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
    """Say every setting and where it comes from; with APP also what its code says. Secrets are hidden."""
    rows = [*_program(), *_node(app)]
    if as_json:
        write_json(rows)
    else:
        write_table(_COLUMNS, [(row.setting, _text(row.value), row.source, ", ".join(row.variables)) for row in rows])


def _program() -> Iterator[Row]:
    """What concerns the process: its store, its port, its logs."""
    said = said_around()
    address_said = any(part in said for part in ("url", "store"))
    for name in Settings.__struct_fields__:
        if name in _ELSEWHERE or (name == "url" and name not in said and address_said):
            continue
        found = said.get(name, Said(_DEFAULTS.get(name), "default"))
        yield Row(name, _hidden(name, found.value), found.source, VARIABLES.get(name, ()))


def _node(app: str | None) -> Iterator[Row]:
    """What concerns the node: the fields of `SchedulerConfig`."""
    unsaid = SchedulerConfig()
    code = unsaid if app is None else _loaded(app)
    outside, said = env(read_settings()), said_around()
    for name, value in asdict(code).items():
        setting = next((key for key, field in _ELSEWHERE.items() if field == name), name)
        variables = VARIABLES.get(setting, ())
        if value != getattr(unsaid, name):
            yield Row(name, _hidden(name, value), "code", variables)
        elif outside.get(name) is not None:
            yield Row(name, _hidden(name, outside[name]), said[setting].source, variables)
        else:
            yield Row(name, _hidden(name, value), "default", variables)


def _loaded(app: str) -> SchedulerConfig:
    from duly.cli.app import load_app  # noqa: PLC0415

    return load_app(app).config


def _hidden(name: str, value: Any) -> Any:
    """A value as it may be shown."""
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
    return "–" if value is None else line(str(value), _WIDEST)


config.add_command(show, "show")
config.add_command(list_settings, "list")
config.add_command(get_setting, "get")
config.add_command(set_setting, "set")
config.add_command(unset_setting, "unset")
