"""`duly purge`: delete ended runs before retention does."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click

from duly.cli.client import ask, record_action, store_time
from duly.cli.confirming import confirm, yes_option
from duly.cli.options import F, command, store_option
from duly.cli.output import note, write_line
from duly.cli.text import full
from duly.cli.time_args import past_type
from duly.model import FINAL, RunFilter, RunOrder, RunQuery, State, iso
from duly.rules.time_words import TimeText

if TYPE_CHECKING:
    from duly.scheduler import Scheduler

_STEP = 1000  # runs that are deleted before the next progress report and entry of the audit log
_TICK = timedelta(microseconds=1)
_STATES = tuple(state for state in State if state in FINAL)


def _state_options(function: F) -> F:
    """One flag for each final state."""
    for state in reversed(_STATES):
        function = click.option(f"--{state.value}", is_flag=True, help=f"Delete {state.value} runs.")(function)
    return function


@command("duly purge --failed --before 2027-01-01", 'duly purge --completed --skipped --before "30 days ago" --yes')
@_state_options
@click.option(
    "--before",
    type=past_type,
    metavar="T",
    required=True,
    help="Only runs that ended before this time: a time, or 30d.",
)
@yes_option
@store_option
def purge(before: TimeText, yes: bool, url: str | None, **states: bool) -> None:
    """Delete ended runs and their attempts for good, the earliest ended first. Counters stay.

    Shows first how many there are, and asks; without a terminal this needs --yes. They are deleted in short steps, so
    that nodes are not delayed; an interrupted command has deleted whole steps.
    """
    chosen = [state for state in _STATES if states[state.value]]
    if not chosen:
        raise click.UsageError(f"say which runs: {', '.join(f'--{state.value}' for state in _STATES)}")
    purged = ask(url, lambda scheduler: _purge(scheduler, chosen, before, yes=yes))
    write_line(f"{purged:,} run{'' if purged == 1 else 's'} deleted" if purged else "no runs match")


async def _purge(scheduler: Scheduler, states: Sequence[State], before: TimeText, *, yes: bool) -> int:
    from duly.scheduler.bulk_runs import count_runs  # noqa: PLC0415  # the help of commands needs no scheduler

    client = await scheduler.opened()
    at = before.resolve(await store_time(scheduler), "UTC")
    query = RunQuery(states=tuple(states), ended_until=at - _TICK, order=RunOrder.ENDED)
    count = await count_runs(client, RunFilter(query), lambda _: True)
    if not count.count and count.exact:
        return 0
    words = " and ".join(state.value for state in states)
    write_line(f"{count} {words} ended before {full(at)}")
    confirm("Delete them for good?", yes=yes)
    return await _delete(scheduler, states, at)


async def _delete(scheduler: Scheduler, states: Sequence[State], before: datetime) -> int:
    from duly.scheduler.audit_actions import runs_of  # noqa: PLC0415
    from duly.scheduler.purging import purge_some  # noqa: PLC0415

    store = (await scheduler.opened()).backend.store
    purged = 0
    while some := await purge_some(store, states, before, _STEP):
        purged += some
        after = {"status": [state.value for state in states], "before": iso(before)}
        await record_action(scheduler, "purge", runs_of(some), after=after)
        if some == _STEP:
            note(f"{purged:,} deleted so far")
    return purged
