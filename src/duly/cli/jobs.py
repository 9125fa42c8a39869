"""`duly jobs`: the jobs, their next runs and their last outcomes."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from duly.cli.client import ask_with_time
from duly.cli.options import command, json_option, store_option, watch_option
from duly.cli.output import WARN, Cell, Column, Row, coloured, plain, write_document, write_list
from duly.cli.text import relative, short
from duly.model import JobStatus

if TYPE_CHECKING:
    from duly.scheduler import JobView

_OVERDUE_AFTER = timedelta(seconds=1)
_COLUMNS = (
    Column("NAME", wraps=True, importance=9, least=20),
    Column("STATUS", importance=7),
    Column("SCHEDULE", wraps=True, importance=6, least=16),
    Column("NEXT RUN (UTC)", wraps=True, importance=8, least=14),
    Column("LAST", importance=5),
    Column("RUNS", right=True, importance=3),
    Column("FAILED", right=True, importance=4),
)


@command("duly jobs", "duly jobs --tag billing --status paused", "duly jobs --json | jq '.[].next_run_at'")
@click.option("--tag", multiple=True, help="Only jobs with this tag; repeatable, then with all of them.")
@click.option("--status", type=click.Choice([each.value for each in JobStatus]), help="Only jobs of this status.")
@watch_option
@store_option
@json_option
def jobs(url: str | None, tag: tuple[str, ...], status: str | None, as_json: bool) -> None:
    """List the jobs: status, schedule in words, next run, last outcome, counts."""
    found, now = ask_with_time(url, lambda scheduler: scheduler.jobs(removed=status == JobStatus.REMOVED))
    chosen = [view for view in found if set(tag) <= set(view.tags) and status in {None, view.status.value}]
    if as_json:
        write_document([job_document(view) for view in chosen])
    else:
        empty = "no jobs" if not found else f"none of the {len(found)} jobs matches"
        write_list(chosen, _COLUMNS, lambda view: _row(view, now), empty)


def job_document(view: JobView) -> dict[str, Any]:
    """A job as JSON: the payload as the JSON value that it is, and `fleet` as the deprecated name of `job_file`."""
    return {**plain(replace(view, payload=view.payload.encode())), "fleet": view.job_file}


def _row(view: JobView, now: datetime) -> Row:
    coming = view.next_run_at
    return (
        view.name,
        coloured(view.status.value),
        view.schedule or "when submitted",
        "–" if coming is None else _coming(coming, now),
        coloured(view.last_outcome.value if view.last_outcome else None),
        str(view.run_count),
        Cell(str(view.failed), "red" if view.failed else ""),
    )


def _coming(at: datetime, now: datetime) -> Cell:
    if at < now - _OVERDUE_AFTER:
        return Cell(f"overdue since {short(at, now)}", WARN, "overdue")
    return Cell(f"{relative(at, now)} ({short(at, now)})", short=relative(at, now))
