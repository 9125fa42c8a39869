"""`duly backfill`: create the runs of past due times that have none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from duly.cli.client import actor, ask, record_action, store_time
from duly.cli.confirming import can_ask, yes_option
from duly.cli.explain import job_zone
from duly.cli.options import command, json_option, store_option
from duly.cli.output import note, write_json, write_line, write_pairs
from duly.cli.text import full
from duly.cli.time_args import time_type, zone_option
from duly.model import Overlap
from duly.rules.time_words import TimeText

if TYPE_CHECKING:
    from duly.scheduler import JobView, Scheduler
    from duly.scheduler.backfills import Backfill

_MOST = 10_000


@command(
    "duly backfill nightly_report --from 2026-11-01 --to 2026-11-08",
    'duly backfill nightly_report --from "3 days ago" --to now --limit 100 --yes',
    "duly backfill nightly_report --from yesterday --to today --dry-run --json",
)
@click.argument("job")
@click.option("--from", "start", type=time_type, metavar="T", required=True, help="The first due time.")
@click.option("--to", "end", type=time_type, metavar="T", required=True, help="Due times before this one.")
@zone_option("The time zone of times without one. Default: the job's.")
@click.option("--limit", type=click.IntRange(1, _MOST), default=1000, show_default=True, help="How many runs at most.")
@click.option("--dry-run", is_flag=True, help="Only show what would be created.")
@yes_option
@store_option
@json_option
def backfill(
    job: str,
    start: TimeText,
    end: TimeText,
    timezone: str | None,
    limit: int,
    dry_run: bool,
    yes: bool,
    url: str | None,
    as_json: bool,
) -> None:
    """Create the runs of JOB's past due times that have no run: those without a record, and skipped ones.

    A due time whose run exists is not repeated, whatever became of it. The runs have the job's present definition and
    wait in its queue with its priority. What is to be created is shown first, and on a terminal you are asked to
    confirm it.
    """

    async def look(scheduler: Scheduler) -> tuple[Backfill, JobView]:
        view = await scheduler.get_job(job)
        now, zone = await store_time(scheduler), timezone or job_zone(view.schedule_spec)
        since, until = start.resolve(now, zone), end.resolve(now, zone)
        return await scheduler.backfill(job, since, until, limit=limit, dry_run=True), view

    planned, view = ask(url, look)
    if not as_json:
        _write(planned, view)
    if not dry_run and planned.created:
        if not yes and can_ask():
            click.confirm(f"Create {_runs(planned.created)}?", abort=True, err=True)
        planned = ask(url, lambda scheduler: _create(scheduler, planned, limit))
        if not as_json:
            write_line(f"created {_runs(planned.created)}")
    elif dry_run and not as_json:
        write_line("nothing was created: --dry-run")
    if as_json:
        write_json(planned)


async def _create(scheduler: Scheduler, planned: Backfill, limit: int) -> Backfill:
    done = await scheduler.backfill(planned.job, planned.start, planned.end, limit=limit, by=actor())
    if done.created:
        what = {"from": full(done.start), "to": full(done.end), "created": done.created}
        await record_action(scheduler, "backfill", f"job {done.job}", None, what)
    return done


def _runs(number: int) -> str:
    return f"{number} run{'s'[: number != 1]}"


def _write(found: Backfill, view: JobView) -> None:
    write_line(f"{found.job} from {full(found.start)} to before {full(found.end)}: {_runs(found.created)} to create")
    pairs = []
    if found.missing:
        unsure = f"; {found.unsure} of them may have run before retention deleted the record" if found.unsure else ""
        pairs.append(("without a record", f"{found.missing}{unsure}"))
    pairs += [(f"skipped: {reason}", str(number)) for reason, number in found.skipped.items()]
    pairs += [(f"not repeated: {state}", str(number)) for state, number in found.present.items()]
    if found.created:
        pairs.append(("due times", _samples(found)))
    write_pairs(pairs)
    for text in _notes(found, view):
        note(text)


def _samples(found: Backfill) -> str:
    times = [full(at) for at in found.samples]
    if found.last is not None and found.last not in found.samples:
        between: list[str] = [] if found.created == len(times) + 1 else ["…"]
        times += [*between, full(found.last)]
    return ", ".join(times)


def _notes(found: Backfill, view: JobView) -> list[str]:
    notes = []
    if found.created > 1 and view.overlap is not Overlap.ALLOW:
        notes.append(
            "they run one after the other; scheduled runs that are due meanwhile follow the job's overlap policy"
        )
    if found.reached is not None:
        notes.append(f"a limit was reached: due times from {full(found.reached)} on were not looked at")
    if found.planned_from is not None:
        notes.append(
            f"due times from {full(found.planned_from)} on are left to the leader, which has not planned them yet"
        )
    return notes
