"""Liveness: what must have happened once faults have stopped for long enough and there is capacity.

L1 no silent miss: every due instant of every job has a record
L2 everything that was due has been done
L4 no limbo: what is not done is leased to a node or has its place in a queue
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime

from duly.model import Cause, JobRecord, JobStatus, Run, State, iso, shift
from duly.model.holds import hold_for_group, hold_for_job
from duly.testing.sim.facts import Deleted, Fact, Materialised, Removed, Saved, history_of
from duly.testing.sim.history import Call, History
from duly.testing.sim.invariants import Facts, Schedules, Violation

_IDLE = frozenset({JobStatus.PAUSED, JobStatus.REMOVED, JobStatus.RETIRED})


def no_silent_miss(facts: Facts, schedules: Schedules, until: datetime) -> Iterator[Violation]:
    """L1: each instant of each job, from its first cursor to `until`, was made a run or covered by a skip.

    A job counts as long as it was planned: up to its removal, or to the moment since which it has been paused or
    retired. What lay in a pause that is over must be covered too: resuming writes the skip.
    """
    covered: defaultdict[str, list[Run]] = defaultdict(list)
    versions: defaultdict[str, list[tuple[datetime, JobRecord]]] = defaultdict(list)
    ends: dict[str, datetime] = {}
    names: dict[str, str] = {}
    for fact in facts:
        match fact:
            case Materialised(run=run) if run.cause is Cause.SCHEDULE:
                covered[run.uid].append(run)
            case Deleted(run=run) if run.cause is Cause.SCHEDULE and fact.by != "store.purge":
                covered[run.uid] = [kept for kept in covered[run.uid] if kept.id != run.id]
            case Saved(record=record):
                versions[record.uid].append((fact.now, record))
                names[record.name] = record.uid
            case Removed():
                ends[names[fact.subject]] = fact.now
            case _:
                pass
    for uid, saved in versions.items():
        last = min(until, ends.get(uid, until), _idle_since(saved) or until)
        yield from _missed(facts, schedules, saved, covered[uid], last)


def _idle_since(saved: list[tuple[datetime, JobRecord]]) -> datetime | None:
    """Since when the job is not planned, if it is not."""
    since = None
    for at, record in reversed(saved):
        if record.status not in _IDLE:
            break
        since = at
    return since


def _missed(
    facts: Facts,
    schedules: Schedules,
    saved: list[tuple[datetime, JobRecord]],
    covered: list[Run],
    last: datetime,
) -> Iterator[Violation]:
    """Each version of the record answers for the instants from its saving to the next version's."""
    for (at, record), (replaced, _) in zip(saved, [*saved[1:], (last, None)], strict=True):
        next_run = schedules(record)
        if next_run is None or record.spec.max_runs is not None:  # a job with its number of runs may end early
            continue
        first = at if record is not saved[0][1] else _just_before(record.cursor or at)
        due = next_run(first)
        while due is not None and due <= min(last, replaced):
            if not any(run.due <= due <= (run.until or run.due) for run in covered):
                message = f"{iso(due)} has no record"
                yield Violation("L1", record.name, message, history_of(facts, record.name))
            due = next_run(due)


def _just_before(instant: datetime) -> datetime:
    return shift(instant, -1e-6)


def nothing_left_behind(
    history: History, facts: Facts, *, patience: float, paused_queues: frozenset[str] = frozenset()
) -> Iterator[Violation]:
    """L2 and L4: at the end of a quiet time nothing that was ready `patience` seconds ago still waits.

    A run may wait for its time, for its job to be resumed, in a paused queue, or behind a member of its group; it may
    run as long as its lease is good.
    """
    if not history.events:
        return
    now = history.events[-1].now
    runs = _final_picture(history)
    running = {run.group for run in runs.values() if run.member and not run.final}
    idle = {record.name for record in _records(facts).values() if record.status in _IDLE}
    for run in runs.values():
        reason = _limbo(run, shift(now, -patience), running, idle, paused_queues)
        if reason is not None:
            yield Violation(reason[0], run.id, reason[1], history_of(facts, run.id))


def _limbo(
    run: Run, deadline: datetime, occupied: set[str | None], idle: set[str], paused_queues: frozenset[str]
) -> tuple[str, str] | None:
    if run.final:
        return None
    if run.state is State.RUNNING:
        expired = run.expires_at is not None and run.expires_at <= deadline
        return ("L4", f"its lease ran out at {run.expires_at} and nobody took it over") if expired else None
    if run.ready_at > deadline or run.job in idle or run.queue in paused_queues:
        return None
    if run.hold is None:
        return "L2", f"it has been ready since {run.ready_at} and nobody runs it"
    if run.hold == hold_for_group(run.group or ""):
        return None if run.group in occupied else ("L4", f"it is held for group {run.group}, which is empty")
    if run.hold == hold_for_job(run.job):
        return "L4", f"it is held for job {run.job}, which is neither paused nor removed"
    return "L4", f"it is held under {run.hold} since {run.ready_at}"


def _final_picture(history: History) -> dict[str, Run]:
    """All runs as the last change left them."""
    runs: dict[str, Run] = {}
    for event in history.events:
        if isinstance(event, Call):
            for change in event.changes:
                if change.after is not None:
                    runs[change.after.id] = change.after
                elif change.before is not None:
                    runs.pop(change.before.id, None)
    return runs


def _records(facts: Facts) -> dict[str, JobRecord]:
    """All jobs as they were last saved."""
    records: dict[str, JobRecord] = {}
    fact: Fact
    for fact in facts:
        match fact:
            case Saved(record=record):
                records[record.name] = record
            case Removed():
                records.pop(fact.subject, None)
            case _:
                pass
    return records
