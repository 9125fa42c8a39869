"""Cancelling and redriving many runs: shows how many match, with samples, asks, and acts in slices.

Only the runs that matched when they were counted are changed. Each slice is recorded in the audit log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from duly.cli.client import ask, record_action, store_time
from duly.cli.confirming import confirm
from duly.cli.output import Column, Row, coloured, note, write_line, write_table
from duly.cli.run_filters import RunFilters, only_states, refuse_empty
from duly.cli.text import line, short
from duly.model import CancelReply, RedriveReply, Run, RunFilter, State
from duly.rules.bulk import CANCELLABLE, may_cancel, may_redrive
from duly.rules.lifecycle import REDRIVABLE

if TYPE_CHECKING:
    from duly.scheduler import Scheduler
    from duly.scheduler.bulk_runs import RunCount, Slice
    from duly.scheduler.client import Client

_COLUMNS = (
    Column("ID", wraps=True),
    Column("JOB", wraps=True),
    Column("STATE"),
    Column("DUE (UTC)"),
    Column("WHY", wraps=True),
)
_ALL = 2**31

Change = Callable[["Client", Sequence[Run]], Awaitable[Counter[str]]]


class Operation(Struct, frozen=True):
    """What is done to many runs: its verb, the states in which it is possible, and those that are meant by default."""

    verb: str
    possible: Callable[[Run], bool]
    states: frozenset[State]
    default: tuple[State, ...]
    change: Change


def change_many(
    url: str | None, operation: Operation, filters: RunFilters, details: dict[str, Any], *, yes: bool
) -> None:
    """Count, show, ask, and change what matched when it was counted."""
    for state in filters.state:
        if State(state) not in operation.states:
            known = ", ".join(each.value for each in State if each in operation.states)
            raise click.UsageError(f"--state {state}: {operation.verb} is possible for {known} runs")
    done = ask(url, lambda scheduler: _change(scheduler, operation, filters, details, yes=yes))
    if done is not None:
        write_line(", ".join(f"{number:,} {what}" for what, number in done.items()) or "nothing was changed")


async def _change(
    scheduler: Scheduler, operation: Operation, filters: RunFilters, details: dict[str, Any], *, yes: bool
) -> Counter[str] | None:
    from duly.scheduler.bulk_runs import count_runs  # noqa: PLC0415  # the help of commands needs no scheduler

    client, now = await scheduler.opened(), await store_time(scheduler)
    wanted = filters.resolve(now)
    refuse_empty(wanted)
    wanted = only_states(wanted, operation.default)
    count = await count_runs(client, wanted, operation.possible)
    if not count.count and count.exact:
        write_line("no runs match")
        return None
    _preview(count, now)
    confirm(f"{operation.verb.capitalize()} {count}?", yes=yes)
    return await _change_slices(scheduler, client, operation, wanted, count.as_of, details)


def _preview(count: RunCount, now: datetime) -> None:
    write_table(_COLUMNS, [_row(run, now) for run in count.samples])
    jobs = f" of {', '.join(count.jobs[:5])}{', …' if len(count.jobs) > 5 else ''}"
    verb = "matches" if count.count == 1 else "match"
    write_line(f"{count}{jobs} {verb}; the newest are listed")
    if count.searched_to is not None:
        note(f"the search stopped at {short(count.searched_to, now)} UTC: it continues when you confirm")


def _row(run: Run, now: datetime) -> Row:
    failure = "" if run.failure is None else f"{run.failure.type}: {run.failure.message}"
    return (run.id, run.job, coloured(run.state.value), short(run.due, now), line(failure or run.reason or "–", 60))


async def _change_slices(
    scheduler: Scheduler,
    client: Client,
    operation: Operation,
    wanted: RunFilter,
    as_of: datetime,
    details: dict[str, Any],
) -> Counter[str]:
    from duly.scheduler.bulk_runs import slices_of  # noqa: PLC0415

    done: Counter[str] = Counter()
    cursor: str | None = None
    while True:
        part: Slice | None = None
        async for part in slices_of(client, wanted, operation.possible, as_of, _ALL, cursor):
            if part.runs:
                done += await _change_slice(scheduler, client, operation, wanted, as_of, part.runs, details)
        cursor = None if part is None else part.next
        if cursor is None:
            return done


async def _change_slice(
    scheduler: Scheduler,
    client: Client,
    operation: Operation,
    wanted: RunFilter,
    as_of: datetime,
    runs: Sequence[Run],
    details: dict[str, Any],
) -> Counter[str]:
    from duly.scheduler.audit_actions import chosen_runs, runs_of  # noqa: PLC0415

    counts = await operation.change(client, runs)
    changed = counts.total() - counts[_LEFT]
    if changed:
        after = {**chosen_runs(wanted, as_of, runs), **details}
        await record_action(scheduler, operation.verb, runs_of(changed), after=after)
    return counts


_LEFT = "left as they were"
_CANCELLED = {CancelReply.DONE: "cancelled", CancelReply.REQUESTED: "running and asked to stop"}


def cancelling(reason: str | None) -> Operation:
    """Cancel unfinished runs."""

    async def change(client: Client, runs: Sequence[Run]) -> Counter[str]:
        return Counter(_CANCELLED.get(reply, _LEFT) for reply in await client.cancel_each(runs, reason))

    states = tuple(state for state in State if state in CANCELLABLE)
    return Operation("cancel", may_cancel, CANCELLABLE, states, change)


def redriving() -> Operation:
    """Run failed, lost or cancelled runs again."""

    async def change(client: Client, runs: Sequence[Run]) -> Counter[str]:
        replies = await client.redrive_each(runs)
        return Counter("wait to be run again" if reply is RedriveReply.DONE else _LEFT for reply in replies)

    return Operation("redrive", may_redrive, REDRIVABLE, (State.FAILED,), change)
