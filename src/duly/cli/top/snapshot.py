"""What `duly top` shows: one batch of bounded reads."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from duly.cli.client import store_time
from duly.cli.runs import lateness
from duly.model import Counts, Node, Run, RunOrder, State
from duly.scheduler import JobView, Scheduler, Upcoming

MOST_JOBS = 300
MOST_RUNS = 100
MOST_UPCOMING = 50

_BAD = (State.FAILED, State.LOST)


class Snapshot(Struct, frozen=True):
    """A cluster at one moment. `late` is the lateness of the runs that ended last."""

    now: datetime
    jobs: list[JobView]
    running: list[Run]
    upcoming: list[Upcoming]
    failed: list[Run]
    counts: Counts
    nodes: list[Node]
    leader: str | None = None
    late: list[float] = []


async def read(scheduler: Scheduler) -> Snapshot:
    """Read a snapshot. The cost has a bound, however many jobs and runs there are."""
    client = await scheduler.opened()
    jobs, _ = await client.definitions.page("", MOST_JOBS)
    running = await scheduler.runs(state=State.RUNNING, limit=MOST_RUNS)
    failed = await scheduler.runs(state=_BAD, order=RunOrder.ENDED, limit=MOST_RUNS)
    ended = await scheduler.runs(order=RunOrder.ENDED, limit=MOST_RUNS)
    return Snapshot(
        now=await store_time(scheduler),
        jobs=jobs,
        running=running.runs,
        upcoming=await scheduler.upcoming(MOST_UPCOMING),
        failed=failed.runs,
        counts=await scheduler.counts(),
        nodes=await scheduler.nodes(),
        leader=(await scheduler.health()).leader,
        late=[late for run in ended.runs if (late := lateness(run)) is not None],
    )
