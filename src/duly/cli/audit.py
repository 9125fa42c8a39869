"""`duly audit`: who changed what, and whether the log of it is whole."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from duly.cli.client import ask
from duly.cli.options import Group, command, json_option, store_option
from duly.cli.output import Column, write_json, write_table
from duly.cli.words import full
from duly.errors import DulyError

if TYPE_CHECKING:
    from duly.scheduler import Scheduler
    from duly.scheduler.audit import Audit, Recorded

_COLUMNS = (
    Column("#", right=True),
    Column("AT (UTC)"),
    Column("WHO", gives_way=True),
    Column("ACTION"),
    Column("WHAT", gives_way=True),
    Column("BEFORE", gives_way=True),
    Column("AFTER", gives_way=True),
)


@click.group(cls=Group, examples=("duly audit list", "duly audit verify"))
def audit() -> None:
    """The log of administrative actions: every entry is bound to the one before by its hash."""


async def _log(scheduler: Scheduler) -> Audit:
    from duly.scheduler.audit import Audit  # noqa: PLC0415

    return Audit((await scheduler.opened()).backend.store)


@command("duly audit list --after 120 --limit 20")
@click.option("--after", type=click.IntRange(0), default=0, help="Only entries with a greater number.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="How many at most.")
@store_option
@json_option
def list_deeds(after: int, limit: int, url: str | None, as_json: bool) -> None:
    """List administrative actions, the oldest first."""

    async def find(scheduler: Scheduler) -> list[Recorded]:
        return await (await _log(scheduler)).read(after, limit)

    found = ask(url, find)
    if as_json:
        write_json(found)
    else:
        write_table(_COLUMNS, [_row(each) for each in found])


@command("duly audit verify")
@store_option
def verify(url: str | None) -> None:
    """Check that no entry was changed, removed or slipped in. The exit code is 1 if one was."""

    async def check(scheduler: Scheduler) -> tuple[int, int | None]:
        return await (await _log(scheduler)).verify()

    count, broken = ask(url, check)
    if broken is not None:
        raise DulyError(f"the audit log is not what was written: entry {broken} was changed, or is missing")
    click.echo(f"{count} entries, all as they were written")


def _row(recorded: Recorded) -> tuple[str, ...]:
    deed = recorded.deed
    return (
        str(recorded.sequence),
        full(deed.at),
        deed.actor,
        deed.action,
        deed.target,
        _brief(deed.before),
        _brief(deed.after),
    )


def _brief(value: object) -> str:
    return "–" if value is None else json.dumps(value, ensure_ascii=False)


audit.add_command(list_deeds, "list")
audit.add_command(verify, "verify")
