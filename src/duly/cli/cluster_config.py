"""`duly config list`, `get`, `set` and `unset`: the settings that all nodes of a cluster take over while they run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from duly.cli.client import actor, ask
from duly.cli.options import command, json_option, store_option, watch_option
from duly.cli.output import Cell, Column, Row, write_json, write_table
from duly.cli.text import full, line

if TYPE_CHECKING:
    from duly.scheduler import Scheduler
    from duly.scheduler.cluster_settings import SettingView

_COLUMNS = (
    Column("SETTING", importance=9),
    Column("VALUE", wraps=True, importance=8),
    Column("FROM", importance=7),
    Column("REVISION", right=True, importance=4),
    Column("BY", wraps=True, importance=6, least=12),
    Column("AT (UTC)", wraps=True, importance=5, least=20),
)


@command("duly config list", "duly config list --json")
@watch_option
@store_option
@json_option
def list_settings(url: str | None, as_json: bool) -> None:
    """List the settings that can change while nodes run.

    FROM is `cluster` for a value that `duly config set` stored; it applies to every node that does not pin the setting.
    Otherwise each node uses its own configuration, and VALUE is what this command's own configuration says.
    """
    views = ask(url, lambda scheduler: scheduler.settings.list())
    if as_json:
        write_json(views)
    else:
        write_table(_COLUMNS, [_row(view) for view in views])
        for view in views:
            if view.problem is not None:
                click.echo(f"not applied: {line(view.problem)}", err=True)


@command("duly config get max_concurrent", "duly config get")
@click.argument("name", required=False)
@store_option
@json_option
@click.pass_context
def get_setting(ctx: click.Context, name: str | None, url: str | None, as_json: bool) -> None:
    """Show one of these settings; without NAME all of them, as `duly config list` does."""
    if name is None:
        ctx.invoke(list_settings, url=url, as_json=as_json)
        return
    view = ask(url, lambda scheduler: scheduler.settings.get(name))
    if as_json:
        write_json(view)
    else:
        click.echo(_text(view))


@command(
    "duly config set max_concurrent=20",
    "duly config set retention.completed=7d",
    "duly config set log_level=DEBUG --expect 3",
)
@click.argument("assignment", metavar="NAME=VALUE")
@click.option("--expect", type=click.IntRange(0), help="Change it only at this revision (0: only if it is not set).")
@store_option
def set_setting(assignment: str, expect: int | None, url: str | None) -> None:
    """Set a value for the whole cluster: all nodes take it over within moments, without a restart.

    `none` is no limit, where a setting accepts that. See `duly config list` for the names.
    """
    name, equals, value = assignment.partition("=")
    if not equals:
        raise click.UsageError(f"{assignment!r}: expected NAME=VALUE, e.g. max_concurrent=20")

    async def change(scheduler: Scheduler) -> SettingView:
        return await scheduler.settings.set(name.strip(), value, by=actor(), expect=expect)

    view = ask(url, change)
    click.echo(f"{view.name} is {_value(view.stored)} for the cluster (revision {view.revision})")


@command("duly config unset max_concurrent")
@click.argument("name")
@click.option("--expect", type=click.IntRange(0), help="Change it only at this revision.")
@store_option
def unset_setting(name: str, expect: int | None, url: str | None) -> None:
    """Take a value back: each node uses its own configuration again."""
    ask(url, lambda scheduler: scheduler.settings.unset(name, by=actor(), expect=expect))
    click.echo(f"{name} is not set for the cluster: each node uses its own configuration")


def _row(view: SettingView) -> Row:
    return (
        view.name,
        _text(view),
        f"{view.origin} (pinned)" if view.pinned else view.origin,
        "–" if view.revision is None else str(view.revision),
        "–" if view.by is None else line(view.by),
        "–" if view.at is None else Cell(full(view.at), short=full(view.at.replace(microsecond=0))),
    )


def _text(view: SettingView) -> str:
    return "–" if view.value is None and view.origin != "cluster" else _value(view.value)


def _value(value: object) -> str:
    return "none" if value is None else line(f"{value:.15g}" if isinstance(value, float) else str(value))
