"""Explaining: why the run of an instant did or did not happen, in plain words, with the setting that decided.

A pure function of what the store knows. Every due instant ends in one record; where there is none (yet, or any more)
the job's own record tells why.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import assert_never

from msgspec import Struct

from duly.model import (
    Attempt,
    Cause,
    JobRecord,
    JobStatus,
    OutcomeKind,
    Retention,
    Run,
    State,
    seconds_between,
)
from duly.model.job import COMMAND_HANDLER
from duly.rules.admission import OVERLAP, REPLACED, UNPLACED, hold_for_group, hold_for_handler, hold_for_job
from duly.rules.changes import CHANGED, NO_HANDLER, PAUSED
from duly.rules.describe import duration, instant
from duly.rules.planning import MISFIRE
from duly.rules.schedules import Cron, Schedule, describe_schedule, latest, step

_TICK = timedelta(microseconds=1)


class Explanation(Struct, frozen=True):
    """The answer: one word, the chain of reasons, and the setting that decided, if one did.

    `verdict` is a state of the run, or one of: not_due, not_yet, not_planned, before_job, after_end, forgotten.
    """

    job: str
    at: datetime
    due: datetime | None
    verdict: str
    reasons: tuple[str, ...]
    setting: str | None = None
    run_id: str | None = None

    def __str__(self) -> str:
        return "\n".join(self.reasons)


class Facts(Struct, frozen=True):
    """What the store and the settings say; `unplaced` is why the run is not placed yet, where it is to be."""

    record: JobRecord
    schedule: Schedule | None
    at: datetime
    now: datetime
    run: Run | None
    attempts: Sequence[Attempt]
    grace: float
    retention: Retention
    unplaced: str = ""


def explain(facts: Facts) -> Explanation:
    """Tell the story of one instant of one job."""
    reasons = [_introduce(facts.record, facts.schedule)]
    if facts.run is not None:
        verdict, setting = _tell_run(facts, facts.run, reasons)
        return _answer(facts, facts.run.due, verdict, reasons, setting)
    due = due_at(facts.schedule, facts.at)
    if due is None:
        return _answer(facts, None, "not_due", [*reasons, _neighbours(facts)], None)
    if isinstance(facts.schedule, Cron) and (note := facts.schedule.note(due)):
        reasons.append(note)
    verdict, reason, setting = _tell_absence(facts, due)
    return _answer(facts, due, verdict, [*reasons, reason], setting)


def due_at(schedule: Schedule | None, at: datetime) -> datetime | None:
    """The due instant that somebody who names `at` means: that very instant, or one within the same second."""
    if schedule is None:
        return None
    found = latest(schedule, at - timedelta(days=1), at + timedelta(seconds=1) - _TICK)
    return found if found is not None and found >= at.replace(microsecond=0) else None


def _answer(
    facts: Facts, due: datetime | None, verdict: str, reasons: Sequence[str], setting: str | None
) -> Explanation:
    run_id = None if facts.run is None else facts.run.id
    return Explanation(facts.record.name, facts.at, due, verdict, tuple(reasons), setting, run_id)


def _introduce(record: JobRecord, schedule: Schedule | None) -> str:
    words = describe_schedule(record.spec.schedule, schedule) or "runs when submitted"
    return f"{record.name}: {words} (revision {record.revision}, {record.status.value})."


def _neighbours(facts: Facts) -> str:
    if facts.schedule is None:
        return f"It has no schedule, so nothing was due at {instant(facts.at)}."
    before = latest(facts.schedule, facts.at - timedelta(days=366), facts.at)
    after = step(facts.schedule, facts.at)
    near = [f"the last before is {instant(before)}"] if before else []
    near += [f"the next is {instant(after)}"] if after else []
    tail = f"; {', '.join(near)}" if near else ""
    return f"{instant(facts.at)} is not a due instant of this schedule{tail}."


# --- there is a record


def _tell_run(facts: Facts, run: Run, reasons: list[str]) -> tuple[str, str | None]:
    """Add the story of a run to the reasons; its verdict and the setting that decided."""
    covered = f"{instant(run.due)}" if run.until is None else f"{instant(run.due)} to {instant(run.until)}"
    reasons.append(f"{_ORIGIN[run.cause]} for {covered}: run {run.id}.")
    reasons.extend(_tell_attempt(run, attempt) for attempt in facts.attempts)
    sentence, setting = _tell_state(facts, run)
    reasons.append(sentence)
    return run.state.value, setting


_ORIGIN = {Cause.SCHEDULE: "Planned", Cause.SUBMIT: "Submitted", Cause.TRIGGER: "Triggered by hand"}


def _tell_attempt(run: Run, attempt: Attempt) -> str:
    late = seconds_between(run.ready_at if attempt.number == 1 else attempt.started_at, attempt.started_at)
    lateness = f", {_span(late)} after it was ready" if attempt.number == 1 and late >= 0 else ""
    took = _span(seconds_between(attempt.started_at, attempt.ended_at))
    failure = f": {attempt.failure.type}: {attempt.failure.message}" if attempt.failure else ""
    outcome = _OUTCOME[attempt.outcome]
    return (
        f"Attempt {attempt.number} started at {instant(attempt.started_at)} on {attempt.node}{lateness}"
        f" and {outcome} after {took}{failure}."
    )


_OUTCOME = {
    OutcomeKind.SUCCEEDED: "succeeded",
    OutcomeKind.FAILED: "failed",
    OutcomeKind.TIMED_OUT: "timed out",
    OutcomeKind.CANCELLED: "was cancelled",
    OutcomeKind.INTERRUPTED: "was interrupted by a stop of its node (not counted)",
    OutcomeKind.LOST: "was lost with its worker",
}


def _tell_state(facts: Facts, run: Run) -> tuple[str, str | None]:
    match run.state:
        case State.COMPLETED:
            return f"It completed.{_note(run)}", None
        case State.FAILED:
            return _tell_failed(run)
        case State.CANCELLED:
            return f"It was cancelled{_because(run)}.", None
        case State.LOST:
            return "It is lost: its worker vanished after the start, and it may not be tried twice.", "delivery"
        case State.SKIPPED:
            return _tell_skipped(facts, run)
        case State.RUNNING:
            since = instant(run.started_at) if run.started_at else "now"
            return f"It is running on {run.node} since {since} (attempt {run.attempt}).", None
        case State.QUEUED | State.PENDING:
            return tell_waiting(run, facts.unplaced)
        case _:
            assert_never(run.state)


def _tell_failed(run: Run) -> tuple[str, str | None]:
    if run.losses and run.reason:
        return f"It failed for good: {run.reason}.", None
    retries = run.policy.retry.max_retries
    if run.failures > retries:
        return f"It failed for good: {run.failures} failures, and max_retries is {retries}.", f"max_retries={retries}"
    return "It failed for good: the failure was not to be retried.", "retry_on / give_up_on, GiveUp, or a hook"


def _tell_skipped(facts: Facts, run: Run) -> tuple[str, str | None]:
    overlap = (facts.record.spec.overlap or "skip") if run.cause is Cause.SCHEDULE else run.when_full
    match run.reason:
        case str(reason) if reason == OVERLAP:
            return "It was skipped: an earlier run of the job was not finished.", f"overlap={str(overlap)!r}"
        case str(reason) if reason == REPLACED:
            return "It was skipped: a later run took its place.", "overlap='replace'"
        case str(reason) if reason == MISFIRE:
            late = f"It was missed by more than misfire_grace ({_span(facts.grace)}): nobody planned it in time."
            return late, f"misfire={facts.record.spec.misfire.value!r}"
        case str(reason) if reason == PAUSED:
            return "It was skipped: the job was paused.", "pause"
        case str(reason) if reason == NO_HANDLER:
            return "It was skipped: no live node had the job's handler.", "no_handler"
        case str(reason) if reason == CHANGED:
            return "It was skipped: the schedule was changed before it was planned.", "schedule"
        case _:
            return f"It was skipped{_because(run)}.", None


def tell_waiting(run: Run, unplaced: str) -> tuple[str, str | None]:
    """Why a waiting run waits, and the setting that decides; `unplaced` is why it is not placed yet."""
    if run.hold is None:
        whom = "a worker with room" if run.assignee is None else f"room on {run.assignee}, which it is assigned to"
        ready = f"(ready at {instant(run.ready_at)}, attempt {run.attempt})"
        if run.state is not State.QUEUED:
            return f"It waits{_whereabouts(run)} {ready}.", None
        return f"It is ready and waits for {whom} {ready}. {_turn(run)}", None
    if run.hold == UNPLACED:
        return f"It waits to be given to a node: {unplaced or 'the leader has not placed it yet'}.", "placement"
    if run.hold == hold_for_job(run.job):
        return "It waits because the job is paused or removed.", "pause"
    if run.hold == hold_for_handler(run.handler):
        needed = "runs the commands of files" if run.handler == COMMAND_HANDLER else f"has the handler {run.handler!r}"
        return f"It waits for a node that {needed}.", "no_handler"
    if run.group is not None and run.hold == hold_for_group(run.group):
        return "It waits for an earlier run of the job to finish.", f"overlap={run.when_full.value!r}"
    return f"It is held ({run.hold}).", run.hold


def _turn(run: Run) -> str:
    """Who starts before a ready run."""
    share = f"of the places for priority {run.priority}, scheduled runs get at least a quarter"
    kind = "this is one of them" if run.cause is Cause.SCHEDULE else "this is not one of them"
    return f"Runs with a higher priority start first; {share} ({kind})."


def _whereabouts(run: Run) -> str:
    return "" if run.assignee is None else f" for its time on {run.assignee}, which it is assigned to"


# --- there is none


def _tell_absence(facts: Facts, due: datetime) -> tuple[str, str, str | None]:
    record, now = facts.record, facts.now
    if due < record.created_at:
        return "before_job", f"The job was registered later, at {instant(record.created_at)}.", None
    if record.status is JobStatus.REMOVED and record.removed_at is not None and due >= record.removed_at:
        return "not_planned", f"The job was removed at {instant(record.removed_at)}.", "remove"
    cursor = record.cursor
    if cursor is None or due < cursor:
        return _tell_forgotten(facts, due)
    if record.paused is not None:
        note = f" ({record.paused.note})" if record.paused.note else ""
        since = f"The job is paused since {instant(record.paused.at)}{note}"
        return "not_planned", f"{since}; what it misses is recorded as skipped when it is resumed.", "pause"
    if record.retired_at is not None:
        since = f"No live node has its handler since {instant(record.retired_at)}"
        return "not_planned", f"{since}; what it misses is recorded as skipped when one comes back.", "no_handler"
    if due > now:
        planned = instant(record.plan_at) if record.plan_at else "in time"
        return "not_yet", f"It is not due yet; its run is made ahead of time, at {planned}.", None
    behind = f"It has not been planned yet: planning has come as far as {instant(cursor)}"
    return "not_planned", f"{behind}; without a leader nothing is planned.", "leader"


def _tell_forgotten(facts: Facts, due: datetime) -> tuple[str, str, str | None]:
    record = facts.record
    most = record.spec.max_runs
    if record.cursor is None and due > record.updated_at and most is not None and record.planned >= most:
        return "after_end", f"The job had its {most} runs before that.", f"max_runs={most}"
    kept = facts.retention.completed
    how_long = "for ever" if kept is None else f"for {_span(kept)}"
    return "forgotten", f"No record is left: completed runs are kept {how_long}.", "retention"


def _because(run: Run) -> str:
    return f": {run.reason}" if run.reason else ""


def _note(run: Run) -> str:
    return f" ({run.reason})" if run.reason else ""


def _span(seconds: float) -> str:
    if seconds < 1:
        return f"{max(0.0, seconds) * 1000:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 120 else duration(timedelta(seconds=round(seconds)))
