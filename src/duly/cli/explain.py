"""`duly explain`: why a run did or did not happen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from duly.cli.client import ask, find_instead, find_run, store_time
from duly.cli.completing import job_names_and_run_ids
from duly.cli.options import command, json_option, store_option
from duly.cli.output import COLOURS, write_json, write_line
from duly.cli.text import full, line
from duly.cli.time_args import time_type, zone_option
from duly.errors import JobNotFound
from duly.model import CronSpec, ScheduleSpec, is_run_id
from duly.model.job import only_in_code
from duly.rules.combined import zone_of
from duly.rules.schedules import from_spec
from duly.rules.time_words import TimeText

if TYPE_CHECKING:
    from duly.rules.explain import Explanation
    from duly.scheduler import Scheduler


@command(
    'duly explain nightly_report --at "yesterday 03:00"',
    'duly explain nightly_report --at "10 minutes ago"',
    "duly explain nightly_report --at 2027-03-14T02:30",
    "duly explain 00064327ad31b0c71f7bd4e7f1",
)
@click.argument("job", metavar="JOB|RUN", shell_complete=job_names_and_run_ids)
@click.option("--at", type=time_type, default="now", show_default=True, metavar="T", help="The time to explain.")
@zone_option("The time zone of --at, if it has none. Default: the job's.")
@store_option
@json_option
def explain(job: str, at: TimeText, timezone: str | None, url: str | None, as_json: bool) -> None:
    """Explain why a run did or did not happen at a time, and which setting decided; or explain the state of a run.

    If the job has nothing due at that time, the nearest due time is explained. The time is ISO 8601, `now`,
    `10 minutes ago`, `03:00`, `today 14:30`, `yesterday 03:00 Europe/Berlin`, or a time as Duly prints it. Without a
    zone it is in the job's time zone, or in UTC.
    """
    found = ask(url, lambda scheduler: _explain(scheduler, job, at, timezone))
    if as_json:
        write_json(found)
    else:
        write_explanation(found)


async def _explain(scheduler: Scheduler, job: str, at: TimeText, timezone: str | None) -> Explanation:
    if is_run_id(job):
        return await scheduler.explain((await find_run(scheduler, job)).id)
    zone = timezone or await _zone_of(scheduler, job)
    try:
        return await scheduler.explain(job, at.resolve(await store_time(scheduler), zone))
    except JobNotFound as exc:
        return await scheduler.explain((await find_instead(scheduler, job, exc)).id)


async def _zone_of(scheduler: Scheduler, job: str) -> str:
    try:
        return job_zone((await scheduler.get_job(job)).schedule_spec)
    except JobNotFound:
        return "UTC"  # it may have been removed, which can be explained


def job_zone(spec: ScheduleSpec | None) -> str:
    """The time zone of a job's schedule."""
    if isinstance(spec, CronSpec):
        return spec.timezone
    return "UTC" if spec is None or only_in_code(spec) else zone_of(from_spec(spec)) or "UTC"


def write_explanation(found: Explanation) -> None:
    verdict = click.style(found.verdict.replace("_", " "), fg=COLOURS.get(found.verdict, "cyan"), bold=True)
    click.echo(f"{found.job} at {full(found.due or found.at)}: {verdict}")
    for reason in found.reasons:
        write_line(line(reason), "  ")
    if found.setting is not None:
        write_line(found.setting, "decided by: ")
