"""`duly next`: the next due times of an expression or a job, with notes about clock changes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import click
from msgspec import Struct

from duly.cli.client import ask
from duly.cli.explain import job_zone
from duly.cli.options import command, json_option, store_option, watch_option
from duly.cli.output import WARN, Cell, Column, note, write_json, write_table
from duly.cli.text import full, relative
from duly.cli.time_args import TimeArg, time_type, zone_option
from duly.model import CustomSpec, JobStatus
from duly.rules.durations import seconds_of
from duly.rules.schedules import Cron, Every, Once, from_spec

if TYPE_CHECKING:
    from duly.scheduler import JobView, Scheduler

_COLUMNS = (
    Column("LOCAL", importance=9),
    Column("UTC", importance=6),
    Column("FROM NOW", importance=8),
    Column("NOTE", wraps=True, importance=7, least=30),
)


class Due(Struct, frozen=True):
    """One due time. The run may start at `at`, which is later than `due` if the schedule has jitter."""

    due: datetime
    at: datetime
    local: str
    note: str | None = None


class Answer(Struct, frozen=True):
    """A schedule in words, and its next due times."""

    schedule: str | None
    timezone: str
    next: tuple[Due, ...]


@command(
    'duly next "30 2 * * *" --tz Europe/Berlin',
    'duly next "every 15m" -n 3',
    "duly next @daily",
    "duly next nightly_report",
    name="next",
)
@click.argument("what", metavar='"CRON"|JOB', nargs=-1, required=True)
@click.option("-n", "--count", type=click.IntRange(1, 1000), default=5, show_default=True, help="How many.")
@zone_option("The time zone. Default: the job's, or UTC.")
@click.option("--after", type=time_type, metavar="T", help="Start at this time. Default: now.")
@watch_option
@store_option
@json_option
def next_(
    what: tuple[str, ...], count: int, timezone: str | None, after: TimeArg | None, url: str | None, as_json: bool
) -> None:
    """Show when a cron expression, an interval or a job is due.

    Text with spaces, or with @ at its beginning, is an expression; anything else is the name of a job in the store.
    """
    text = " ".join(what).strip()
    now = datetime.now(UTC)
    if " " in text or text.startswith("@"):
        schedule = _schedule_from(text, timezone)
        answer = _preview(schedule, timezone or "UTC", _start(after, timezone or "UTC"), count)
    else:
        answer = ask(url, lambda scheduler: _of_job(scheduler, text, timezone, after, count))
    if as_json:
        write_json(answer)
    else:
        _write(answer, now)


def _schedule_from(text: str, timezone: str | None) -> Cron | Every:
    first, _, rest = text.partition(" ")
    if first.lower() == "every":
        return Every(seconds=seconds_of(rest))
    return Cron(text, timezone=timezone)


def _start(after: TimeArg | None, zone: str) -> datetime:
    now = datetime.now(UTC)
    return now if after is None else after.resolve(now, zone)


def _preview(schedule: Cron | Every | Once, timezone: str, after: datetime, count: int) -> Answer:
    instants = schedule.preview(count, after=after)
    return Answer(schedule.describe(), timezone, tuple(_due(schedule, due, due, timezone) for due in instants))


def _due(schedule: Cron | Every | Once | None, due: datetime, at: datetime, timezone: str) -> Due:
    clock_change = schedule.note(due) if isinstance(schedule, Cron) else None
    return Due(due, at, f"{due.astimezone(ZoneInfo(timezone)):%a %Y-%m-%d %H:%M:%S %Z}", clock_change)


async def _of_job(scheduler: Scheduler, name: str, timezone: str | None, after: TimeArg | None, count: int) -> Answer:
    view = await scheduler.get_job(name)
    schedule = _schedule(view)
    zone = timezone or job_zone(view.schedule_spec)
    if view.status is not JobStatus.ACTIVE:
        note(f"{name} is {view.status.value}: nothing is planned")
    if schedule is not None and (after is not None or view.status is not JobStatus.ACTIVE):
        return _preview(schedule, zone, _start(after, zone), count)
    if isinstance(view.schedule_spec, CustomSpec):
        note(f"only nodes that have the code of {name} can compute more than the next due time")
    upcoming = await scheduler.upcoming(count, name)
    return Answer(view.schedule, zone, tuple(_due(schedule, each.due, each.at, zone) for each in upcoming))


def _schedule(view: JobView) -> Cron | Every | Once | None:
    spec = view.schedule_spec
    return None if spec is None or isinstance(spec, CustomSpec) else from_spec(spec)


def _write(answer: Answer, now: datetime) -> None:
    click.secho(answer.schedule or "runs when submitted", bold=True)
    if not answer.next:
        click.echo("  nothing is due any more" if answer.schedule else "  nothing is waiting")
    rows = [(each.local, full(each.due), relative(each.at, now), Cell(each.note or "", WARN)) for each in answer.next]
    write_table(_COLUMNS, rows, titles=False, indent=2)
