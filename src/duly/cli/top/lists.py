"""The lists of `duly top`: what each shows of a snapshot, and what its lines stand for."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from msgspec import Struct

from duly.cli.columns import Column
from duly.cli.output import BAD, DIM, GOOD, LIVE, WARN, Cell, Row, coloured
from duly.cli.runs import duration, lateness, tries
from duly.cli.show import progress_bar
from duly.cli.text import relative, short, span
from duly.cli.top.snapshot import MOST_JOBS, MOST_RUNS, MOST_UPCOMING, Snapshot
from duly.model import Counts, Depth, JobStatus, Node, Run, State, short_id
from duly.scheduler import JobView, Upcoming


class Item(Struct, frozen=True):
    """One line of a list. What it stands for: a job, a run, a queue, or none of them.

    `key` identifies it in the next snapshot, so that it stays selected. `due` is set for a time that is not yet a run.
    """

    key: str
    row: Row
    job: str | None = None
    run: str | None = None
    queue: str | None = None
    due: datetime | None = None
    paused: bool = False


class Listing(Struct, frozen=True):
    """One list: its title, its columns, its items, what is shown if there are none, and how many are read at most."""

    title: str
    columns: tuple[Column, ...]
    items: Callable[[Snapshot], list[Item]]
    empty: str
    most: int | None = None


# --- jobs

_JOBS = (
    Column("NAME", wraps=True, importance=9, least=20),
    Column("STATUS", importance=7),
    Column("SCHEDULE", wraps=True, importance=6, least=14),
    Column("NEXT", right=True, importance=8),
    Column("LAST", importance=5),
    Column("TAKES", right=True, importance=2),
    Column("RUNS", right=True, importance=3),
    Column("FAILED", right=True, importance=4),
)


def _jobs(snapshot: Snapshot) -> list[Item]:
    return [_job(view, snapshot.now) for view in snapshot.jobs]


def _job(view: JobView, now: datetime) -> Item:
    row = (
        view.name,
        coloured(view.status.value),
        view.schedule or "when submitted",
        "–" if view.next_run_at is None else _until(view.next_run_at, now),
        coloured(view.last_outcome.value if view.last_outcome else None),
        "–" if view.average_seconds is None else span(view.average_seconds),
        str(view.run_count),
        Cell(str(view.failed), BAD if view.failed else ""),
    )
    return Item(view.name, row, job=view.name, paused=view.status is JobStatus.PAUSED)


def _until(at: datetime, now: datetime) -> Cell:
    late = (now - at).total_seconds()
    return Cell(f"{span(late)} late", WARN) if late > 1 else Cell(relative(at, now))


# --- running

_RUNNING = (
    Column("ID", importance=8),
    Column("JOB", wraps=True, importance=9, least=18),
    Column("PROGRESS", wraps=True, importance=7, least=16),
    Column("FOR", right=True, importance=6),
    Column("ATTEMPT", right=True, importance=2),
    Column("LATE", right=True, importance=3),
    Column("NODE", wraps=True, importance=5),
)


def _running(snapshot: Snapshot) -> list[Item]:
    return [_running_run(run, snapshot.now) for run in snapshot.running]


def _running_run(run: Run, now: datetime) -> Item:
    took, late = duration(run, now), lateness(run)
    row = (
        short_id(run.id),
        run.job,
        Cell("stopping", WARN) if run.cancelling else Cell(progress_bar(run), LIVE),
        "–" if took is None else span(took),
        str(tries(run)),
        "–" if late is None else span(late),
        run.node or "–",
    )
    return Item(run.id, row, job=run.job, run=run.id)


# --- next

_NEXT = (
    Column("JOB", wraps=True, importance=9, least=20),
    Column("IN", right=True, importance=8),
    Column("AT (UTC)", importance=7),
    Column("RUN", importance=4),
)


def _upcoming(snapshot: Snapshot) -> list[Item]:
    return [_coming(each, snapshot.now) for each in snapshot.upcoming]


def _coming(each: Upcoming, now: datetime) -> Item:
    run = "not created yet" if each.run_id is None else short_id(each.run_id)
    row = (each.job, _until(each.at, now), short(each.at, now), run)
    return Item(f"{each.job} {each.due}", row, job=each.job, run=each.run_id, due=each.due)


# --- failed

_FAILED = (
    Column("ID", importance=8),
    Column("JOB", wraps=True, importance=9, least=18),
    Column("STATE", importance=4),
    Column("ENDED", right=True, importance=6),
    Column("ATTEMPT", right=True, importance=3),
    Column("WHY", wraps=True, importance=7, least=20),
)


def _failed(snapshot: Snapshot) -> list[Item]:
    return [_failed_run(run, snapshot.now) for run in snapshot.failed]


def _failed_run(run: Run, now: datetime) -> Item:
    why = f"{run.failure.type}: {run.failure.message}" if run.failure else run.reason or "–"
    row = (
        short_id(run.id),
        run.job,
        coloured(run.state.value),
        "–" if run.finished_at is None else relative(run.finished_at, now),
        str(tries(run)),
        why,
    )
    return Item(run.id, row, job=run.job, run=run.id)


# --- queues

_QUEUES = (
    Column("QUEUE", wraps=True, importance=9, least=20),
    Column("STATUS", importance=8),
    Column("QUEUED", right=True, importance=7),
    Column("PENDING", right=True, importance=5),
    Column("RUNNING", right=True, importance=6),
    Column("OLDEST WAITS", right=True, importance=6),
)


def _queues(snapshot: Snapshot) -> list[Item]:
    return [_queue(name, depth, snapshot.now) for name, depth in sorted(snapshot.counts.queues.items())]


def _queue(name: str, depth: Depth, now: datetime) -> Item:
    row = (
        name,
        coloured("paused" if depth.paused else "active"),
        _count(depth, State.QUEUED, depth.queued),
        _count(depth, State.PENDING, depth.pending),
        _count(depth, State.RUNNING, depth.running),
        "–" if depth.oldest is None else span((now - depth.oldest).total_seconds()),
    )
    return Item(name, row, queue=name, paused=depth.paused)


def _count(depth: Depth, state: State, number: int) -> str:
    return f"{number}+" if state in depth.at_least else str(number)


# --- nodes

_NODES = (
    Column("NODE", wraps=True, importance=9, least=20),
    Column("BUSY", right=True, importance=8),
    Column("LEADER", importance=7),
    Column("ROLES", importance=5),
    Column("STARTED", importance=6),
    Column("HOST", wraps=True, importance=4),
    Column("PID", right=True, importance=3),
    Column("VERSION", importance=2),
)


def _nodes(snapshot: Snapshot) -> list[Item]:
    return [_node(node, snapshot) for node in snapshot.nodes]


def _node(node: Node, snapshot: Snapshot) -> Item:
    busy, slots = node.metrics.get("running"), node.metrics.get("slots", node.capacity)
    row = (
        node.id,
        "–" if busy is None else f"{busy:.0f}/{slots:.0f}",
        Cell("leads", GOOD) if node.id == snapshot.leader else Cell("–", DIM),
        ", ".join(role.value for role in node.roles),
        relative(node.started_at, snapshot.now),
        node.host,
        str(node.pid),
        node.version or "–",
    )
    return Item(node.id, row)


LISTS: tuple[Listing, ...] = (
    Listing("Jobs", _JOBS, _jobs, "no jobs", MOST_JOBS),
    Listing("Running", _RUNNING, _running, "nothing is running", MOST_RUNS),
    Listing("Next", _NEXT, _upcoming, "nothing is due", MOST_UPCOMING),
    Listing("Failed", _FAILED, _failed, "nothing has failed", MOST_RUNS),
    Listing("Queues", _QUEUES, _queues, "nothing waits"),
    Listing("Nodes", _NODES, _nodes, "no node is alive: duly run starts one"),
)


def of_state(counts: Counts, state: State) -> str:
    """How many runs are in a state; a number that is too small has a plus."""
    return f"{counts.states.get(state, 0)}{'+' if state in counts.at_least else ''}"
