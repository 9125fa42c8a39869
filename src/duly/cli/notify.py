"""`duly notify`: the targets of notifications, what was sent to them, and a test."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from duly.cli.client import ask_with_time
from duly.cli.options import Group, command, json_option, store_option
from duly.cli.output import BAD, GOOD, Cell, Column, Row, write_json, write_line, write_list
from duly.cli.text import line, relative
from duly.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from duly.model.notification import NotificationTarget, NotifyState
    from duly.scheduler import Scheduler

_COLUMNS = (
    Column("TARGET"),
    Column("ADDRESS", wraps=True),
    Column("ON", wraps=True),
    Column("SENT", right=True),
    Column("WAITING", right=True),
    Column("LOST", right=True),
    Column("LAST SENT"),
    Column("LAST ERROR", wraps=True),
)


class TargetRow(Struct, frozen=True):
    """One target. `lost` messages were rejected, were undeliverable for a day, or were too many to keep."""

    name: str
    address: str
    on: tuple[str, ...]
    sent: int
    waiting: int
    lost: int
    last_sent_at: datetime | None
    last_error: str
    last_error_at: datetime | None
    retry_at: datetime | None
    node: str


@click.group(
    cls=Group, examples=("duly notify list", "duly notify test app:scheduler", "duly notify test jobs.toml ops")
)
def notify() -> None:
    """List and test the targets of notifications."""


@command("duly notify list", "duly notify list --json")
@store_option
@json_option
def list_targets(url: str | None, as_json: bool) -> None:
    """List the targets that the sending node has, their last delivery and their last error. Secrets are not shown."""
    state, now = ask_with_time(url, _read)
    rows = [] if state is None else _rows(state)
    if as_json:
        write_json(rows)
    else:
        write_list(rows, _COLUMNS, lambda row: _cells(row, now), "no node has sent notifications: see `duly notify -h`")


async def _read(scheduler: Scheduler) -> NotifyState | None:
    return await scheduler.notifications()


def _rows(state: NotifyState) -> list[TargetRow]:
    waiting = [each.target for each in state.outbox]
    return [
        TargetRow(
            name,
            each.about,
            each.on,
            each.sent,
            waiting.count(name),
            each.given_up + each.dropped,
            each.last_sent_at,
            each.last_error,
            each.last_error_at,
            each.retry_at,
            each.node,
        )
        for name, each in sorted(state.targets.items())
    ]


def _cells(row: TargetRow, now: datetime) -> Row:
    failed = row.last_error_at is not None and (row.last_sent_at is None or row.last_error_at > row.last_sent_at)
    error = "–" if row.last_error_at is None else f"{relative(row.last_error_at, now)}: {row.last_error}"
    return (
        row.name,
        row.address,
        ", ".join(row.on),
        str(row.sent),
        str(row.waiting),
        Cell(str(row.lost), BAD if row.lost else ""),
        "–" if row.last_sent_at is None else Cell(relative(row.last_sent_at, now), GOOD),
        Cell(error, BAD if failed else ""),
    )


@command("duly notify test app:scheduler", "duly notify test jobs.toml ops")
@click.argument("app", required=False, metavar="APP|FILE")
@click.argument("target", required=False)
def send_test(app: str | None, target: str | None) -> None:
    """Send a test message from this machine to all targets of APP (module:attribute, or jobs.toml), or to one.

    Without APP, the targets of duly.toml are used. The exit code is 1 if a target did not take the message.
    """
    targets = [each for each in _targets(app) if target is None or each.name == target]
    if not targets:
        known = ", ".join(each.name for each in _targets(app))
        raise ConfigurationError(
            f"there is no target {target!r}; known: {known}" if known else "no targets of notifications are configured"
        )
    failed = asyncio.run(_send(targets))
    if failed:
        raise SystemExit(1)


def _targets(app: str | None) -> Sequence[NotificationTarget]:
    from duly.cli.programs import configured  # noqa: PLC0415  # the help needs none of these
    from duly.cli.settings import read_settings  # noqa: PLC0415
    from duly.model import SchedulerConfig  # noqa: PLC0415

    settings = read_settings()
    named = app or settings.app
    if named is not None and named.endswith(".toml"):
        from duly.cli.job_files import JobFileProgram, load  # noqa: PLC0415

        return JobFileProgram(load(named), settings.field("namespace")).scheduler.config.notify
    if named is not None:
        from duly.cli.app import load_app  # noqa: PLC0415

        return configured(load_app(named).config, {}, settings).notify
    return configured(SchedulerConfig(allow_commands=True), {}, settings).notify


async def _send(targets: Sequence[NotificationTarget]) -> bool:
    """Send to all targets in turn; whether one of them failed."""
    from duly.rules.notifications import trial_message  # noqa: PLC0415  # the help needs none of this

    failed = False
    for target in targets:
        now = datetime.now(UTC)
        message = trial_message(f"test-{now:%Y%m%d%H%M%S%f}", target.name, now)
        try:
            async with asyncio.timeout(30):
                await target.send(message)
        except Exception as exc:  # noqa: BLE001  # a target may be the user's code; its failure is what is asked for
            failed = True
            click.secho(f"{target.name} ({target}): {type(exc).__name__}: {line(str(exc), 300)}", fg=BAD, err=True)
        else:
            write_line(f"{target.name} ({target}): delivered {message.id}")
    return failed


notify.add_command(list_targets, "list")
notify.add_command(send_test, "test")
