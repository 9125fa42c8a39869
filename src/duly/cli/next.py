"""`duly next`: the next due times of an expression or a job, with notes about clock changes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import click
from msgspec import Struct

from duly.cli.client import ask
from duly.cli.completing import job_names
from duly.cli.explain import job_zone
from duly.cli.options import command, json_option, store_option, watch_option
from duly.cli.output import WARN, Cell, Column, note, write_json, write_table
from duly.cli.text import full, relative
from duly.cli.time_args import time_type, zone_option
from duly.model import JobStatus
from duly.model.job import only_in_code
from duly.rules.combined import closures
from duly.rules.schedule_text import schedule_from
from duly.rules.schedules import ScheduleValue, from_spec
from duly.rules.time_words import TimeText

if TYPE_CHECKING:
    from duly.scheduler import JobView, Scheduler

_COLUMNS = (
    Column("LOCAL", importance=9),
    Column("UTC", importance=6),
    Column("FROM NOW", importance=8),
    Column("NOTE", wraps=True, importance=7, least=30),
)


_MOST_EXCLUDED = 100


class Due(Struct, frozen=True):
    """One due time. The run may start at `at`, which is later than `due` if the schedule has jitter."""

    due: datetime
    at: datetime
    local: str
    note: str | None = None


class Answer(Struct, frozen=True):
    """A schedule in words, its next due times, and what calendars exclude until the last of them."""

    schedule: str | None
    timezone: str
    next: tuple[Due, ...]
    excluded: tuple[Due, ...] = ()


@command(
    'duly next "30 2 * * *" --tz Europe/Berlin',
    'duly next "every 15m" -n 3',
    'duly next "at 09:00 on Monday to Friday, Europe/Berlin"',
    "duly next @daily",
    "duly next nightly_report",
    name="next",
)
@click.argument("what", metavar='"CRON"|JOB', nargs=-1, required=True, shell_complete=job_names)
@click.option("-n", "--count", type=click.IntRange(1, 1000), default=5, show_default=True, help="How many.")
@zone_option("The time zone. Default: the job's, or UTC.")
@click.option("--after", type=time_type, metavar="T", help="Start at this time. Default: now.")
@watch_option
@store_option
@json_option
def next_(
    what: tuple[str, ...], count: int, timezone: str | None, after: TimeText | None, url: str | None, as_json: bool
) -> None:
    """Show when a cron expression, an interval or a job is due.

    Text with spaces, or with @ at its beginning, is an expression; anything else is the name of a job in the store.
    """
    text = " ".join(what).strip()
    now = datetime.now(UTC)
    if " " in text or text.startswith("@"):
        schedule = schedule_from(text, timezone)
        zone = timezone or getattr(schedule, "timezone", None) or "UTC"
        answer = _preview(schedule, zone, _start(after, zone), count)
    else:
        answer = ask(url, lambda scheduler: _of_job(scheduler, text, timezone, after, count))
    if as_json:
        write_json(answer)
    else:
        _write(answer, now)


def _start(after: TimeText | None, zone: str) -> datetime:
    now = datetime.now(UTC)
    return now if after is None else after.resolve(now, zone)


def _preview(schedule: ScheduleValue, timezone: str, after: datetime, count: int) -> Answer:
    instants = schedule.preview(count, after=after)
    dues = tuple(_due(schedule, due, due, timezone) for due in instants)
    return Answer(schedule.describe(), timezone, dues, _excluded(schedule, after, dues, timezone))


def _due(schedule: ScheduleValue | None, due: datetime, at: datetime, timezone: str) -> Due:
    clock_change = None if schedule is None else schedule.note(due)
    return Due(due, at, _local(due, timezone), clock_change)


def _local(at: datetime, timezone: str) -> str:
    return f"{at.astimezone(ZoneInfo(timezone)):%a %Y-%m-%d %H:%M:%S %Z}"


def _excluded(schedule: ScheduleValue | None, after: datetime, dues: Sequence[Due], timezone: str) -> tuple[Due, ...]:
    """The first instant of each stretch that a calendar excludes before the last due time shown, as far as listed."""
    if schedule is None or not dues:
        return ()
    found = islice(closures(schedule, after, dues[-1].due), _MOST_EXCLUDED)
    return tuple(Due(due, due, _local(due, timezone), str(closed)) for due, closed in sorted(found, key=itemgetter(0)))


async def _of_job(scheduler: Scheduler, name: str, timezone: str | None, after: TimeText | None, count: int) -> Answer:
    view = await scheduler.get_job(name)
    schedule = _schedule(view)
    zone = timezone or job_zone(view.schedule_spec)
    if view.status is not JobStatus.ACTIVE:
        note(f"{name} is {view.status.value}: nothing is planned")
    if schedule is not None and (after is not None or view.status is not JobStatus.ACTIVE):
        return _preview(schedule, zone, _start(after, zone), count)
    if only_in_code(view.schedule_spec):
        note(f"only nodes that have the code of {name} can compute more than the next due time")
    upcoming = await scheduler.upcoming(count, name)
    dues = tuple(_due(schedule, each.due, each.at, zone) for each in upcoming)
    return Answer(view.schedule, zone, dues, _excluded(schedule, datetime.now(UTC), dues, zone))


def _schedule(view: JobView) -> ScheduleValue | None:
    spec = view.schedule_spec
    return None if spec is None or only_in_code(spec) else from_spec(spec)


def _write(answer: Answer, now: datetime) -> None:
    click.secho(answer.schedule or "runs when submitted", bold=True)
    if not answer.next:
        click.echo("  nothing is due any more" if answer.schedule else "  nothing is waiting")
    shown = sorted((*answer.next, *answer.excluded), key=lambda each: each.due)
    rows = [(each.local, full(each.due), relative(each.at, now), Cell(each.note or "", WARN)) for each in shown]
    write_table(_COLUMNS, rows, titles=False, indent=2)
