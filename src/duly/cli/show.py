"""`duly show`: the details of one job or one run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

import click

from duly.cli.client import ask_with_time, find_instead, find_run, store_time
from duly.cli.completing import job_names_and_run_ids
from duly.cli.jobs import job_document
from duly.cli.options import command, json_option, store_option
from duly.cli.output import (
    Cell,
    Column,
    coloured,
    note,
    plain,
    shown_id,
    write_block,
    write_document,
    write_pairs,
    write_table,
)
from duly.cli.runs import duration, lateness, progress, tries
from duly.cli.text import full, line, lines, relative, span
from duly.errors import JobNotFound
from duly.model import Attempt, Delivery, RetrySpec, Run
from duly.model.job import COMMAND_HANDLER

if TYPE_CHECKING:
    from duly.scheduler import JobView, Scheduler, Upcoming

_NEXT = 5
_LATEST = 5
_MOST_PAGES = 5
_BAR = 10
_LATEST_COLUMNS = (Column("ID", importance=9), Column("STATE", importance=8), Column("DUE", wraps=True, importance=7))


@command("duly show nightly_report", "duly show 00064327ad31b0c71f7bd4e7f1")
@click.argument("id_", metavar="ID", shell_complete=job_names_and_run_ids)
@store_option
@json_option
def show(id_: str, url: str | None, as_json: bool) -> None:
    """Show a job by its name or a run by its id: definition, counts, attempts, tracebacks, payload, result.

    Ids of runs begin with a digit, names of jobs do not. Of an id, its beginning or its end is enough.
    """
    found, now = ask_with_time(url, lambda scheduler: _find(scheduler, id_))
    match found, as_json:
        case _Run(run, attempts), True:
            write_document({**plain(run), "attempts": plain(attempts)})
        case _Run(run, attempts, waits), False:
            _write_run(run, attempts, waits, now)
        case _Job(view, upcoming, latest), True:
            write_document({**job_document(view), "upcoming": plain(upcoming), "runs": plain(latest)})
        case _Job(view, upcoming, latest), False:
            _write_job(view, upcoming, latest, now)


class _Run(NamedTuple):
    """A run, its attempts, and what it waits for."""

    run: Run
    attempts: list[Attempt]
    waits: str | None


class _Job(NamedTuple):
    """A job, its next due times, and its latest runs."""

    view: JobView
    upcoming: list[Upcoming]
    latest: list[Run]


async def _find(scheduler: Scheduler, text: str) -> _Run | _Job:
    """The run with this id, or the job with this name; an end of an id may look like a name."""
    if text[:1].isdigit():
        return await _details(scheduler, await find_run(scheduler, text))
    try:
        view = await scheduler.get_job(text)
    except JobNotFound as exc:
        return await _details(scheduler, await find_instead(scheduler, text, exc))
    return _Job(view, await scheduler.upcoming(_NEXT, text), await _latest(scheduler, text))


async def _details(scheduler: Scheduler, run: Run) -> _Run:
    return _Run(run, await scheduler.attempts(run.id), await scheduler.waits_for(run.id))


async def _latest(scheduler: Scheduler, name: str) -> list[Run]:
    """The newest runs that are due. A page may be short where many runs that are due later were created since."""
    until, found, cursor = await store_time(scheduler), list[Run](), None
    for _ in range(_MOST_PAGES):
        page = await scheduler.runs(name, limit=_LATEST - len(found), due_until=until, cursor=cursor)
        found, cursor = [*found, *page.runs], page.next
        if cursor is None or len(found) >= _LATEST:
            return found
    note(f"searched back to {full(page.reached)} for the latest runs" if page.reached else "not all runs were searched")
    return found


# --- a run


def _write_run(run: Run, attempts: Sequence[Attempt], waits: str | None, now: datetime) -> None:
    late, took = lateness(run), duration(run, now)
    write_pairs(
        _present(
            ("run", run.id),
            ("job", run.job if run.handler in {run.job, COMMAND_HANDLER} else f"{run.job} (handler {run.handler})"),
            ("state", coloured(run.state.value)),
            ("reason", run.reason),
            ("held by", run.hold),
            ("waits", waits),
            ("assigned to", run.assignee),
            ("cancelling", "its worker has been asked to stop" if run.cancelling else None),
            ("due", _when(run.due, now) if run.until is None else f"{full(run.due)} to {full(run.until)}"),
            ("ready", None if run.ready_at == run.due else _when(run.ready_at, now)),
            ("cause", f"{run.cause.value}, revision {run.revision}" if run.revision else run.cause.value),
            ("queue", f"{run.queue}, priority {run.priority}"),
            ("dedupe key", run.dedupe_key),
            ("created", _when(run.created_at, now)),
            ("started", _when(run.started_at, now)),
            ("finished", _when(run.finished_at, now)),
            ("late", None if late is None else span(late)),
            ("took", None if took is None else span(took)),
            ("attempts", f"{tries(run)} ({run.failures} failed, {run.losses} lost)"),
            ("node", run.node),
            ("fence", str(run.fence) if run.fence else None),
            ("progress", None if run.progress is None else progress(run.progress)),
            ("policy", _policy(run.policy.delivery, run.policy.retry, run.policy.timeout)),
            *((f"header {name}", value) for name, value in sorted((run.headers or {}).items())),
        )
    )
    write_block("Payload", _document(run.payload))
    if run.result is not None:
        _write_result(run.result, of_command=run.handler == COMMAND_HANDLER)
    for attempt in attempts:
        _write_attempt(attempt)
    if run.failure is not None and not any(attempt.failure == run.failure for attempt in attempts):
        write_block(line(f"{run.failure.type}: {run.failure.message}"), lines(run.failure.traceback))


def _write_result(result: bytes, *, of_command: bool) -> None:
    """The result of a run; for a command, its exit code and output."""
    value = plain(result)
    if not (of_command and isinstance(value, dict) and value.keys() == {"exit_code", "stdout", "stderr"}):
        write_block("Result", _document(result))
        return
    write_block(f"Exit code {value['exit_code']}", [])
    for title, text in (("Standard output", value["stdout"]), ("Standard error", value["stderr"])):
        if text:
            write_block(title, lines(text))


def progress_bar(run: Run) -> str:
    """The progress of a run: a bar if its end is known, and what the handler said."""
    if run.progress is None:
        return "–"
    if not run.progress.total:
        return progress(run.progress)
    share = min(1.0, max(0.0, run.progress.done / run.progress.total))
    full = round(share * _BAR)
    return f"{'█' * full}{'░' * (_BAR - full)} {share:4.0%} {run.progress.note}".rstrip()


def _policy(delivery: Delivery, retry: RetrySpec, timeout: float | None) -> str:
    words = [delivery.value, "no retries"]
    if retry.max_retries:
        retries = "1 retry" if retry.max_retries == 1 else f"{retry.max_retries} retries"
        words[1] = f"{retries} ({retry.strategy}, from {span(retry.initial_interval)})"
    if timeout is not None:
        words.append(f"timeout {span(timeout)}")
    return ", ".join(words)


def _write_attempt(attempt: Attempt) -> None:
    took = span((attempt.ended_at - attempt.started_at).total_seconds())
    failure = f": {attempt.failure.type}: {attempt.failure.message}" if attempt.failure else ""
    write_block(
        line(f"Attempt {attempt.number}: {attempt.outcome.value} after {took} on {attempt.node}{failure}"),
        [f"started {full(attempt.started_at)}, ended {full(attempt.ended_at)}, fence {attempt.fence}"]
        + (lines(attempt.failure.traceback) if attempt.failure else []),
    )


def _document(encoded: bytes) -> list[str]:
    return lines(json.dumps(plain(encoded), indent=2, ensure_ascii=False))


# --- a job


def _write_job(view: JobView, upcoming: Sequence[Upcoming], latest: Sequence[Run], now: datetime) -> None:
    average = view.average_seconds
    write_pairs(
        _present(
            ("job", view.name),
            ("description", view.description or None),
            ("status", coloured(view.status.value)),
            ("note", view.note or None),
            ("schedule", view.schedule or "none: it runs when submitted"),
            ("next run", _when(view.next_run_at, now)),
            ("handler", None if view.command is not None else view.handler),
            ("command", view.command),
            ("directory", view.cwd),
            ("environment", ", ".join(view.environment) or None),
            ("queue", f"{view.queue}, priority {view.priority}"),
            ("policy", _policy(view.delivery, view.retry, view.timeout)),
            ("overlap", view.overlap.value if view.overlap else None),
            ("misfire", view.misfire.value if view.schedule else None),
            ("at most", None if view.max_runs is None else f"{view.max_runs} runs"),
            ("notifies", None if view.notify is None else ", ".join(view.notify) or "nobody"),
            ("expected every", None if view.expect_every is None else span(view.expect_every)),
            ("only on", ", ".join(f"{name}={value}" for name, value in (view.selector or {}).items()) or None),
            ("payload", None if view.payload == "{}" else line(view.payload)),
            ("tags", ", ".join(view.tags) or None),
            ("defined by", f"{_origin(view)}, revision {view.revision}"),
            ("created", _when(view.created_at, now)),
            ("changed", None if view.updated_at == view.created_at else _when(view.updated_at, now)),
            ("runs", f"{view.run_count} ended: {view.completed} completed, {view.failed} failed"),
            ("retried", str(view.retried) if view.retried else None),
            ("takes", None if average is None else f"{span(average)} on average"),
            ("last run", _when(view.last_run_at, now)),
            ("last outcome", coloured(view.last_outcome.value) if view.last_outcome else None),
        )
    )
    if upcoming:
        write_block("Next", [_when(each.at, now) or "" for each in upcoming])
    if latest:
        write_block("Latest runs", [])
        rows = [(shown_id(run.id), coloured(run.state.value), full(run.due)) for run in latest]
        write_table(_LATEST_COLUMNS, rows, titles=False, indent=2)


def _origin(view: JobView) -> str:
    return view.origin.value if view.job_file is None else f"{view.origin.value} {view.job_file}"


def _when(at: datetime | None, now: datetime) -> str | None:
    return None if at is None else f"{full(at)} ({relative(at, now)})"


def _present(*pairs: tuple[str, str | Cell | None]) -> list[tuple[str, str | Cell]]:
    """The pairs that have a value."""
    return [(name, value) for name, value in pairs if value is not None]
