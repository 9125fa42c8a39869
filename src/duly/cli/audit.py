"""`duly audit`: the log of administrative actions, and whether it is complete."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import click

from duly.cli.client import ask
from duly.cli.options import MOST_SEQUENCE, Group, command, json_option, store_option, watch_option
from duly.cli.output import Cell, Column, Row, write_json, write_line, write_table
from duly.cli.text import full, line
from duly.errors import DulyError

if TYPE_CHECKING:
    from duly.scheduler import Scheduler
    from duly.scheduler.audit_check import Recorded, Report

_HASH = re.compile(r"[0-9a-f]{64}")
_COLUMNS = (
    Column("#", right=True, importance=9),
    Column("AT (UTC)", wraps=True, importance=6, least=20),
    Column("WHO", wraps=True, importance=7, least=12),
    Column("ACTION", importance=8),
    Column("WHAT", wraps=True, importance=8, least=20),
    Column("BEFORE", wraps=True, importance=4),
    Column("AFTER", wraps=True, importance=5),
)


@click.group(cls=Group, examples=("duly audit list", "duly audit verify"))
def audit() -> None:
    """List and verify the log of administrative actions. Each entry contains the hash of the previous one."""


@command("duly audit list --after 120 --limit 20")
@click.option("--after", type=click.IntRange(0, MOST_SEQUENCE), default=0, help="Only entries with a greater number.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="How many at most.")
@watch_option
@store_option
@json_option
def list_actions(after: int, limit: int, url: str | None, as_json: bool) -> None:
    """List administrative actions, the oldest first."""

    async def find(scheduler: Scheduler) -> list[Recorded]:
        return await (await scheduler.opened()).audit.read(after, limit)

    found = ask(url, find)
    if as_json:
        write_json(found)
    else:
        write_table(_COLUMNS, [_row(each) for each in found])


@command("duly audit verify", "duly audit verify --expect 5f0c…")
@click.option(
    "--expect", metavar="HASH", help="The hash of the head that you noted earlier: this entry must still be there."
)
@store_option
@json_option
def verify(expect: str | None, url: str | None, as_json: bool) -> None:
    """Check that no entry was changed, removed or inserted. The exit code is 1 if one was.

    Prints the hash of the last entry, the head. Keep it in another place and pass it with --expect: this also detects a
    log that was rewritten as a whole. With DULY_AUDIT_KEY the authentication codes of the entries are checked as well.
    """
    if expect is not None and not _HASH.fullmatch(expect.strip().lower()):
        raise click.BadParameter(
            "expected the 64 hexadecimal digits that `duly audit verify` prints", param_hint="--expect"
        )

    async def check(scheduler: Scheduler) -> Report:
        expected = None if expect is None else expect.strip().lower()
        return await (await scheduler.opened()).audit.verify(expected)

    report = ask(url, check)
    if as_json:
        write_json(report)
    else:
        _write(report)
    if report.findings:
        first, *more = report.findings
        rest = f" (and {len(more)} more findings)" if more else ""
        raise DulyError(f"the audit log was changed: {first}{rest}")


def _write(report: Report) -> None:
    for finding in report.findings:
        write_line(line(finding), "found: ")
    for damage in report.known:
        write_line(line(damage), "known: ")
    if not report.findings:
        click.echo(f"{report.entries} entries, none was changed")
    if report.expected_at is not None:
        click.echo(f"expected: entry {report.expected_at}")
    if report.authenticated:
        click.echo(f"authenticated: {report.authenticated} entries")
    write_line(f"{report.head.hash} (entry {report.head.sequence})", "head: ")


def _row(recorded: Recorded) -> Row:
    deed = recorded.deed
    if deed is None:
        return (str(recorded.sequence), "?", "?", "?", "cannot be read", "–", "–")
    return (
        str(recorded.sequence),
        Cell(full(deed.at), short=full(deed.at.replace(microsecond=0))),
        deed.actor,
        deed.action,
        deed.target,
        _brief(deed.before),
        _brief(deed.after),
    )


def _brief(value: object) -> str:
    return "–" if value is None else json.dumps(value, ensure_ascii=False)


audit.add_command(list_actions, "list")
audit.add_command(verify, "verify")
