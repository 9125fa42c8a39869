"""What the stores that speak SQL have in common: rows as structs, instants and structs as columns.

Each keeps its own tables and statements; where two of them give the same columns in the same order, they are read here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from duly.backends.tolerance import UNREADABLE, damage, damaged_job
from duly.model import (
    Attempt,
    Counts,
    Depth,
    Failure,
    JobRecord,
    JobStatistics,
    OutcomeKind,
    Settlement,
    State,
    from_micros,
    to_micros,
)

T = TypeVar("T")

_failure = msgspec.json.Decoder(Failure)


# --- columns


def to_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def optional_json(value: Any) -> str | None:
    return None if value is None else to_json(value)


def micros(instant: datetime | None) -> int | None:
    return None if instant is None else to_micros(instant)


def duration(seconds: float) -> int:
    """Seconds in microseconds."""
    return round(seconds * 1_000_000)


def instant(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


# --- many runs


def slices_of(items: Sequence[T], most: int) -> list[Sequence[T]]:
    """Many things in their order, at most so many at a time."""
    return [items[start : start + most] for start in range(0, len(items), most)]


# --- definitions

_record = msgspec.json.Decoder(JobRecord)


def read_job(row: Sequence[Any]) -> JobRecord:
    """The record as it was saved, then cursor, time to plan and count as they are now; name, uid and revision."""
    text, cursor, plan_at, planned = row[:4]
    try:
        record = _record.decode(text)
    except UNREADABLE as exc:
        name, uid, revision = row[4:7]
        record = damaged_job(name, uid, revision, exc)
    return replace(record, cursor=instant(cursor), plan_at=instant(plan_at), planned=planned)


# --- answers


def answers(settlements: Sequence[Settlement], stale: Sequence[Settlement]) -> list[bool]:
    """In order, whether each settlement applied: all but the stale ones."""
    if not stale:
        return [True] * len(settlements)
    refused = {id(settled) for settled in stale}
    return [id(settled) not in refused for settled in settlements]


# --- history and counters


def read_attempt(row: Sequence[Any]) -> Attempt:
    """Number, fence, node, start, end, outcome, failure."""
    number, fence, node, started_at, ended_at, outcome, failure = row
    return Attempt(
        number,
        fence,
        node,
        from_micros(started_at),
        from_micros(ended_at),
        OutcomeKind(outcome),
        None if failure is None else _read_failure(failure),
    )


def _read_failure(text: str) -> Failure:
    try:
        return _failure.decode(text)
    except UNREADABLE as exc:
        return Failure("Unreadable", damage(exc))


def read_statistics(row: Sequence[Any]) -> JobStatistics:
    """The job, then its counters in the order of `JobStatistics`."""
    _, completed, failed, cancelled, lost, retried, seconds, last_run_at, last_outcome = row
    return JobStatistics(
        completed=completed,
        failed=failed,
        cancelled=cancelled,
        lost=lost,
        retried=retried,
        seconds=seconds,
        last_run_at=from_micros(last_run_at),
        last_outcome=OutcomeKind(last_outcome),
    )


class _Sum(Struct):
    """What is in one queue, in the making."""

    queued: int = 0
    pending: int = 0
    running: int = 0
    oldest: int | None = None


def counts_of(
    lines: Iterable[tuple[str, int, int, int, int | None]], ended: Iterable[Sequence[Any]], paused: Collection[str]
) -> Counts:
    """Runs by state and queue: of each line its queue, what is queued, pending and running, and the oldest queued."""
    sums: dict[str, _Sum] = {}
    for queue, queued, pending, running, oldest in lines:
        entry = sums.setdefault(queue, _Sum())
        entry.queued += queued
        entry.pending += pending
        entry.running += running
        entry.oldest = min((at for at in (entry.oldest, oldest) if at is not None), default=None)
    states = dict.fromkeys(State, 0) | {State(state): number for state, number in ended}
    states[State.QUEUED] = sum(entry.queued for entry in sums.values())
    states[State.PENDING] = sum(entry.pending for entry in sums.values())
    states[State.RUNNING] = sum(entry.running for entry in sums.values())
    names = sorted(sums.keys() | set(paused))
    return Counts(states, {name: _depth(sums.get(name, _Sum()), paused=name in paused) for name in names})


def _depth(entry: _Sum, *, paused: bool) -> Depth:
    return Depth(entry.queued, entry.pending, entry.running, instant(entry.oldest), paused)
