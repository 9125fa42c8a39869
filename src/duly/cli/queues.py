"""`duly queues`: what waits in each queue, since when, and whether it is paused."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from duly.cli.client import ask_with_time
from duly.cli.options import command, json_option, store_option
from duly.cli.output import WARN, Cell, Column, Row, write_json, write_list
from duly.cli.text import relative
from duly.model import Counts, Depth, State

_COLUMNS = (
    Column("QUEUE", wraps=True),
    Column("STATUS"),
    Column("QUEUED", right=True),
    Column("PENDING", right=True),
    Column("RUNNING", right=True),
    Column("OLDEST DUE"),
)


class Queue(Struct, frozen=True):
    """A queue. The numbers of the states in `at_least` are lower bounds."""

    name: str
    paused: bool
    queued: int
    pending: int
    running: int
    oldest: datetime | None
    at_least: tuple[str, ...]


@command("duly queues", "duly queues --json | jq '.[] | select(.paused)'", "duly pause --queue mail")
@store_option
@json_option
def queues(url: str | None, as_json: bool) -> None:
    """List the queues: how many runs are due, wait for their time or run, and since when the oldest due one waits.

    A + after a number means that there may be more. duly pause --queue and duly resume --queue change a queue.
    """
    counts, now = ask_with_time(url, lambda scheduler: scheduler.counts())
    found = _queues(counts)
    if as_json:
        write_json(found)
    else:
        write_list(found, _COLUMNS, lambda queue: _row(queue, now), "no queue has waiting or running runs")


def _queues(counts: Counts) -> list[Queue]:
    return [_queue(name, depth) for name, depth in sorted(counts.queues.items())]


def _queue(name: str, depth: Depth) -> Queue:
    bounds = tuple(sorted(state.value for state in depth.at_least))
    return Queue(name, depth.paused, depth.queued, depth.pending, depth.running, depth.oldest, bounds)


def _row(queue: Queue, now: datetime) -> Row:
    def number(state: State, value: int) -> str:
        return f"{value:,}{'+' if state.value in queue.at_least else ''}"

    return (
        queue.name,
        Cell("paused", WARN) if queue.paused else "open",
        number(State.QUEUED, queue.queued),
        number(State.PENDING, queue.pending),
        number(State.RUNNING, queue.running),
        "–" if queue.oldest is None else relative(queue.oldest, now),
    )
