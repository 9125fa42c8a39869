"""`duly runs`: what is to be done, is being done and was done."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from duly.cli.client import ask
from duly.cli.options import command, json_option, store_option
from duly.cli.output import Column, Row, note, worded, write_json, write_table
from duly.cli.words import line, point, span
from duly.model import Run, State

_COLUMNS = (
    Column("ID", gives_way=True),
    Column("JOB"),
    Column("STATE"),
    Column("DUE (UTC)", gives_way=True),
    Column("LATE", right=True),
    Column("ATTEMPT", right=True),
    Column("TOOK", right=True),
    Column("NODE / WHY", gives_way=True),
)


@command(
    "duly runs",
    "duly runs nightly_report --limit 10",
    "duly runs --state failed --state lost",
    "duly runs --state failed --json | jq -r '.[].id' | xargs -n1 duly redrive",
)
@click.argument("job", required=False)
@click.option(
    "--state",
    multiple=True,
    type=click.Choice([each.value for each in State]),
    help="Only runs in this state; repeatable.",
)
@click.option("--queue", help="Only runs of this queue.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many at most.")
@store_option
@json_option
def runs(
    job: str | None, state: tuple[str, ...], queue: str | None, limit: int, url: str | None, as_json: bool
) -> None:
    """List runs, the newest first; of one JOB, or of all."""
    page = ask(url, lambda scheduler: scheduler.runs(job, list(state) or None, queue=queue, limit=limit))
    if as_json:
        write_json(page.runs)
    elif not page.runs:
        click.echo("no runs" if not (job or state or queue) else "no runs match")
    else:
        now = datetime.now(UTC)
        write_table(_COLUMNS, [_row(run, now) for run in page.runs])
    if page.next is not None:
        note(f"only the newest {limit} are listed: --limit lists more")


def _row(run: Run, now: datetime) -> Row:
    late, took = lateness(run), duration(run, now)
    return (
        run.id,
        run.job,
        worded(run.state.value),
        point(run.due, now),
        "–" if late is None else span(late),
        str(tries(run) or "–"),
        "–" if took is None else span(took),
        line(_where_or_why(run), 60),
    )


def lateness(run: Run) -> float | None:
    """How many seconds after it was ready the latest attempt began."""
    if run.started_at is None or run.state is State.SKIPPED:
        return None
    late = (run.started_at - run.ready_at).total_seconds()
    return late if late >= 0 else None  # waiting for a retry, `ready_at` is that of the next attempt


def duration(run: Run, now: datetime) -> float | None:
    """How many seconds the latest attempt took, or takes so far."""
    if run.started_at is None:
        return None
    if run.state is State.RUNNING:
        return (now - run.started_at).total_seconds()
    return None if run.finished_at is None else (run.finished_at - run.started_at).total_seconds()


def tries(run: Run) -> int:
    """How many attempts have begun."""
    over = run.failures + run.losses
    begun = run.state in {State.RUNNING, State.COMPLETED} or (
        run.state is State.CANCELLED and run.started_at is not None
    )
    return over + 1 if begun else over


def _where_or_why(run: Run) -> str:
    if run.failure is not None and run.state is not State.COMPLETED:
        return f"{run.failure.type}: {run.failure.message}"
    if run.hold is not None:
        return f"held: {run.hold}"
    return run.reason or run.node or "–"
