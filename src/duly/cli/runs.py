"""`duly runs`: waiting, running and ended runs."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct
from msgspec.structs import replace

from duly.cli.client import ask_with_time, store_time
from duly.cli.completing import job_names
from duly.cli.options import command, json_option, store_option, watch_option
from duly.cli.output import Column, Row, coloured, note, shown_id, write_json, write_list
from duly.cli.run_filters import RunFilters, run_filters
from duly.cli.text import short, span
from duly.model import WAITING, Cause, Page, Progress, Run, RunFilter, RunOrder, State
from duly.model.holds import UNPLACED

if TYPE_CHECKING:
    from duly.scheduler import Scheduler

_COLUMNS = (
    Column("ID", importance=9),
    Column("JOB", wraps=True, importance=8, least=16),
    Column("STATE", importance=7),
    Column("DUE (UTC)", importance=6),
    Column("LATE", right=True, importance=4),
    Column("ATTEMPT", right=True, importance=2),
    Column("TOOK", right=True, importance=3),
    Column("NODE / WHY", wraps=True, importance=5, least=20),
)


@command(
    "duly runs",
    "duly runs nightly_report --limit 10",
    "duly runs --state failed --state lost",
    "duly runs --order ended --error timeout --ended-since 1h",
    "duly runs --where payload.customer=7 --since yesterday",
    "duly runs --state failed --json | jq -r '.[].id' | xargs -n1 duly redrive",
)
@click.argument("job", required=False, shell_complete=job_names)
@run_filters(job_option=False)
@click.option(
    "--order",
    type=click.Choice([each.value for each in RunOrder]),
    default=RunOrder.CREATED.value,
    show_default=True,
    help="created: newest first; ended: ended runs, latest first; ready: waiting runs, earliest first.",
)
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many at most.")
@watch_option
@store_option
@json_option
def runs(job: str | None, filters: RunFilters, order: str, limit: int, url: str | None, as_json: bool) -> None:
    """List runs, the newest first; of one JOB, or of all.

    Runs of a schedule are created ahead of time. Those that are not due yet are left out, unless --state, --until or
    --order is given. A search for what few runs have stops after some thousand runs and says how far it came.
    """
    chosen = replace(filters, job=job)
    found, now = ask_with_time(url, lambda scheduler: _find(scheduler, chosen, RunOrder(order), limit))
    if as_json:
        write_json(found.runs)
    else:
        write_list(found.runs, _COLUMNS, lambda run: _row(run, now), "no runs match" if chosen.given else "no runs")
    if found.reached is not None:
        direction = "ahead" if order == RunOrder.READY else "back"
        note(f"searched {direction} to {short(found.reached, now)} UTC: narrow the search, or give a JOB")
    elif found.more:
        note(f"only the newest {limit} are listed: --limit lists more")


class _Found(Struct, frozen=True):
    """Runs that match, whether there are more, and how far the search came if it stopped early."""

    runs: list[Run]
    more: bool
    reached: datetime | None


async def _find(scheduler: Scheduler, filters: RunFilters, order: RunOrder, limit: int) -> _Found:
    from duly.scheduler.run_search import page_of  # noqa: PLC0415  # the help of commands needs no scheduler

    client, now = await scheduler.opened(), await store_time(scheduler)
    wanted = filters.resolve(now, order)
    if filters.state or filters.until is not None or order is not RunOrder.CREATED:
        page = await page_of(client, wanted, limit)
        return _Found(page.runs, page.next is not None, page.reached)
    due = await page_of(client, _with(wanted, due_until=now), limit)
    later = Page([])
    if wanted.query.cause in {None, Cause.SUBMIT}:
        start = max(now, wanted.query.due_from or now)
        later = await page_of(client, _with(wanted, cause=Cause.SUBMIT, due_from=start), limit)
    found = list({run.id: run for run in (*later.runs, *due.runs)}.values())
    found.sort(key=lambda run: run.created_at or run.due, reverse=True)
    more = len(found) > limit or any(page.next is not None for page in (due, later))
    reached = [page.reached for page in (due, later) if page.reached is not None]
    return _Found(found[:limit], more, max(reached, default=None))


def _with(wanted: RunFilter, **changes: Any) -> RunFilter:
    return replace(wanted, query=replace(wanted.query, **changes))


def _row(run: Run, now: datetime) -> Row:
    late, took = lateness(run), duration(run, now)
    return (
        shown_id(run.id),
        run.job,
        coloured(run.state.value),
        short(run.due, now),
        "–" if late is None else span(late),
        str(tries(run) or "–"),
        "–" if took is None else span(took),
        _where_or_why(run),
    )


def lateness(run: Run) -> float | None:
    """The seconds between the time a run was ready and the start of its latest attempt."""
    if run.started_at is None or run.state is State.SKIPPED:
        return None
    late = (run.started_at - run.ready_at).total_seconds()
    return late if late >= 0 else None  # before a retry, `ready_at` is the time of the next attempt


def duration(run: Run, now: datetime) -> float | None:
    """The seconds that the latest attempt took, or has taken so far."""
    if run.started_at is None:
        return None
    if run.state is State.RUNNING:
        return (now - run.started_at).total_seconds()
    return None if run.finished_at is None else (run.finished_at - run.started_at).total_seconds()


def tries(run: Run) -> int:
    """The number of attempts that have begun."""
    over = run.failures + run.losses
    begun = run.state in {State.RUNNING, State.COMPLETED} or (
        run.state is State.CANCELLED and run.started_at is not None
    )
    return over + 1 if begun else over


def progress(reported: Progress) -> str:
    """The progress that a handler reported: "3 of 5 (60 %), packing"."""
    text = f"{reported.done:g}"
    if reported.total:
        text += f" of {reported.total:g} ({100 * reported.done / reported.total:.0f} %)"
    return f"{text}, {reported.note}" if reported.note else text


def _where_or_why(run: Run) -> str:
    if run.state is State.RUNNING:  # also where the attempt before has failed
        return str(run.node) if run.progress is None else f"{progress(run.progress)}, on {run.node}"
    if run.failure is not None and run.state is not State.COMPLETED:
        return f"{run.failure.type}: {run.failure.message}"
    if run.hold == UNPLACED:
        return "waits to be placed"
    if run.hold is not None:
        return f"held: {run.hold}"
    if run.state in WAITING and run.assignee is not None:
        return f"for {run.assignee}"
    return run.reason or run.node or "–"
