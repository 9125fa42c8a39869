"""Explanations: why the run for an instant did or did not happen, in plain words, with the setting that decided.

A pure function of what the store knows. Every due instant ends in one record; if there is none yet, or none any more,
the job's own record says why.
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
from duly.model.holds import held_handler
from duly.model.job import MAIN
from duly.model.loss import Loss
from duly.model.outage import Outage
from duly.rules.admission import OVERLAP, REPLACED
from duly.rules.backfill import backfilled_by
from duly.rules.combined import excluded_at
from duly.rules.describe import duration, instant
from duly.rules.exclusion import Closure
from duly.rules.job_changes import CHANGED, NO_HANDLER, PAUSED
from duly.rules.misfires import MISFIRE
from duly.rules.schedules import Schedule, ScheduleValue, describe_schedule, latest, step
from duly.rules.settling import WORKER_VANISHED
from duly.rules.waiting import Situation, why_waiting

_TICK = timedelta(microseconds=1)
_FAR = timedelta(days=366)


class Explanation(Struct, frozen=True):
    """The answer: one word, the chain of reasons, and the setting that decided, if one did.

    `verdict` is a state of the run, or one of: not_due, excluded, not_yet, not_planned, before_job, after_end,
    forgotten.
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
    """What the store and the settings say.

    `record` is None where no definition of the job is stored. `occupant` is the unfinished run for which this one was
    skipped, if its record still exists; `all_searched` is False if it was not found because the job has too many runs.
    `outages` are the latest periods in which no node reached the store, `losses` the latest losses of changes.
    """

    job: str
    record: JobRecord | None
    schedule: Schedule | None
    at: datetime
    situation: Situation
    run: Run | None
    attempts: Sequence[Attempt]
    grace: float
    retention: Retention
    occupant: Run | None = None
    all_searched: bool = True
    outages: Sequence[Outage] = ()
    losses: Sequence[Loss] = ()

    @property
    def now(self) -> datetime:
        return self.situation.now


def explain(facts: Facts) -> Explanation:
    """Explain one instant of one job: the given one, or the nearest due one."""
    reasons = [_introduce(facts)]
    due = nearest(facts.schedule, facts.at) if facts.run is None else facts.run.due
    excluded = excluded_at(facts.schedule, facts.at)
    if excluded is not None and not _is_told_by(facts, due, excluded[0]):
        return _tell_excluded(facts, *excluded, reasons)
    if due is None:
        return _answer(facts, None, "not_due", [*reasons, _nothing_due(facts)], None)
    if not _is_meant(due, facts):
        reasons.append(_instead(facts, due))
    if isinstance(facts.schedule, ScheduleValue) and (note := facts.schedule.note(due)):
        reasons.append(note)
    if facts.run is not None:
        verdict, setting = _tell_run(facts, facts.run, reasons)
        reasons += _lost_changes(facts, facts.run)
    else:
        verdict, reason, setting = _tell_absence(facts, due)
        reasons.append(reason)
    return _answer(facts, due, verdict, reasons, setting)


def _is_told_by(facts: Facts, due: datetime | None, excluded: datetime) -> bool:
    """Whether an excluded instant has a run nevertheless, planned before it was excluded; or another one is meant."""
    if due is None or not _is_meant(due, facts):
        return False
    return facts.run is None or facts.run.until is None or due == excluded  # a range of skipped ones may surround it


def _tell_excluded(facts: Facts, due: datetime, closed: Closure, reasons: list[str]) -> Explanation:
    """An instant that a calendar excludes is not due: it gets no run, and no record."""
    assert facts.schedule is not None
    reasons.append(f"Nothing is due at {instant(due)}; {closed}.")
    following = step(facts.schedule, due)
    reasons.append(f"Next due: {instant(following)}." if following else "Nothing is due after it.")
    return Explanation(facts.job, facts.at, due, "excluded", tuple(reasons), f"calendar {closed.calendar}")


def nearest(schedule: Schedule | None, at: datetime) -> datetime | None:
    """The due instant that `at` refers to: one within that second, else the nearest."""
    if schedule is None:
        return None
    before = latest(schedule, at - _FAR, at + timedelta(seconds=1) - _TICK)
    if before is not None and before >= at.replace(microsecond=0):
        return before
    after = step(schedule, at)
    if before is None or after is None:
        return before or after
    return before if at - before <= after - at else after


def _is_meant(due: datetime, facts: Facts) -> bool:
    """Whether an instant is the one that was asked for: within its second, or of the range that its record covers."""
    until = due if facts.run is None or facts.run.until is None else facts.run.until
    return due.replace(microsecond=0) <= facts.at <= until + timedelta(seconds=1)


def _instead(facts: Facts, due: datetime) -> str:
    """Which instant is explained, and why not the one that was asked for."""
    assert facts.schedule is not None
    last, following = latest(facts.schedule, facts.at - _FAR, facts.at), step(facts.schedule, facts.at)
    near = [f"next due {instant(following)}"] if following else []
    near += [f"last {instant(last)}"] if last else []
    return f"Nothing is due at {instant(facts.at)} ({', '.join(near)}); explaining {instant(due)} instead."


def _nothing_due(facts: Facts) -> str:
    if facts.record is None or facts.record.spec.schedule is None:
        return f"It has no schedule, so nothing was due at {instant(facts.at)}; it runs when submitted."
    if facts.schedule is None:
        return "Its schedule is computed by code that this process does not have: ask a process that has it."
    return f"Its schedule has no instant near {instant(facts.at)}."


def _answer(
    facts: Facts, due: datetime | None, verdict: str, reasons: Sequence[str], setting: str | None
) -> Explanation:
    run_id = None if facts.run is None else facts.run.id
    return Explanation(facts.job, facts.at, due, verdict, tuple(reasons), setting, run_id)


def _introduce(facts: Facts) -> str:
    record = facts.record
    if record is None:
        return f"{facts.job}: no definition is stored; it runs when submitted."
    words = describe_schedule(record.spec.schedule, facts.schedule) or "runs when submitted"
    return f"{record.name}: {words} (revision {record.revision}, {record.status.value})."


# --- there is a record


def _tell_run(facts: Facts, run: Run, reasons: list[str]) -> tuple[str, str | None]:
    """Add what happened to a run to the reasons; returns its verdict and the setting that decided."""
    covered = f"{instant(run.due)}" if run.until is None else f"{instant(run.due)} to {instant(run.until)}"
    reasons.append(f"{_origin(run)} for {covered}: run {run.id}.")
    reasons.extend(_tell_attempt(run, attempt) for attempt in facts.attempts)
    sentence, setting = _tell_state(facts, run)
    reasons.append(sentence)
    return run.state.value, setting


_ORIGIN = {
    Cause.SCHEDULE: "Planned",
    Cause.SUBMIT: "Submitted",
    Cause.TRIGGER: "Triggered by hand",
    Cause.BACKFILL: "Backfilled",
}


def _origin(run: Run) -> str:
    by = backfilled_by(run)
    if by is None:
        return _ORIGIN[run.cause]
    at = "" if run.created_at is None else f" at {instant(run.created_at)}"
    return f"{_ORIGIN[Cause.BACKFILL]} by {by}{at}"


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
    OutcomeKind.INTERRUPTED: "was interrupted because its node stopped (not counted)",
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
            return f"It is lost{_because(run)}. It may have begun, and must not be tried twice.", "delivery"
        case State.SKIPPED:
            return _tell_skipped(facts, run)
        case State.RUNNING:
            since = instant(run.started_at) if run.started_at else "now"
            lost = f"; workers that vanished with it before: {run.losses}" if run.losses else ""
            return f"It has been running on {run.node} since {since} (attempt {run.attempt}){lost}.", None
        case State.QUEUED | State.PENDING:
            waits = why_waiting(run, facts.situation)
            return waits.text, waits.setting
        case _:
            assert_never(run.state)


def _tell_failed(run: Run) -> tuple[str, str | None]:
    if run.losses and run.reason:
        vanished = run.failure is not None and run.failure.type == WORKER_VANISHED
        return f"It failed for good: {run.reason}.", "max_losses" if vanished else None
    retries = run.policy.retry.max_retries
    if run.failures > retries:
        return f"It failed for good: {run.failures} failures, and max_retries is {retries}.", f"max_retries={retries}"
    return "It failed for good: this failure is not retried.", "retry_on / give_up_on, GiveUp, or a hook"


def _tell_skipped(facts: Facts, run: Run) -> tuple[str, str | None]:
    spec = None if facts.record is None else facts.record.spec
    overlap = run.when_full if spec is None or run.cause is not Cause.SCHEDULE else spec.overlap or "skip"
    match run.reason:
        case str(reason) if reason == OVERLAP:
            return f"It was skipped: {_occupied(facts, run)}.", f"overlap={str(overlap)!r}"
        case str(reason) if reason == REPLACED:
            return "It was skipped: a later run took its place.", "overlap='replace'"
        case str(reason) if reason == MISFIRE:
            late = f"It was not started within misfire_grace ({_span(facts.grace)}) of its time: {_missed(facts, run)}."
            if run.start_by is not None and not run.strict:
                late += " Of the instants that were missed, only the latest is run."
            return late, None if spec is None else f"misfire={spec.misfire.value!r}"
        case str(reason) if reason == PAUSED:
            return "It was skipped: the job was paused.", "pause"
        case str(reason) if reason == NO_HANDLER:
            return "It was skipped: no live node had the job's handler.", "no_handler"
        case str(reason) if reason == CHANGED:
            return "It was skipped: the schedule was changed before it was planned.", "schedule"
        case _:
            return f"It was skipped{_because(run)}.", None


def _occupied(facts: Facts, skipped: Run) -> str:
    """The unfinished run for which a run was skipped."""
    occupant = facts.occupant
    then = skipped.finished_at or skipped.due
    if occupant is None:
        why = "its record is gone" if facts.all_searched else "the job has too many runs to look for it in all of them"
        return f"an earlier run of the job was not finished then, and {why}"
    name = f"run {occupant.id} (due {instant(occupant.due)})"
    if occupant.started_at is None:
        unknown = occupant.hold is not None and held_handler(occupant.hold) is not None
        return f"{name} was waiting to start{', because no node had its handler' if unknown else ''}"
    if occupant.started_at > then:
        return f"{name} was waiting to start; it started at {instant(occupant.started_at)} on {occupant.node}"
    if occupant.finished_at is None:
        return f"{name} has been running on {occupant.node} since {instant(occupant.started_at)}"
    return f"{name} was not finished: it ran on {occupant.node} and ended at {instant(occupant.finished_at)}"


def _lost_changes(facts: Facts, run: Run) -> list[str]:
    """What the store lost while this run was unfinished, if the end of one of its attempts is unknown."""
    if not (run.losses or run.state is State.LOST):
        return []
    begun, ended = run.created_at or run.due, run.finished_at or facts.now
    return [
        f"The store lost {loss}, noticed at {instant(loss.at)}: an attempt of this run may have ended before that."
        for loss in facts.losses
        if begun <= loss.at <= ended
    ]


def _missed(facts: Facts, run: Run) -> str:
    """Why no worker started the run for an instant in time."""
    last = run.until or run.due
    outage = next((each for each in facts.outages if each.since <= last and run.due <= each.until), None)
    if outage is not None:
        span = f"from {instant(outage.since)} to {instant(outage.until)}"
        return f"no node reached the store {span}, because the nodes or the store were down"
    if run.started_at is not None:
        late = _span(seconds_between(run.ready_at, run.started_at))
        return f"{run.node} was the first worker with a free slot for it, {late} late"
    if run.created_at is not None and run.created_at < run.due:
        return "it was planned, but no worker started it in time"
    return "no leader planned it in time"


# --- there is none


def _tell_absence(facts: Facts, due: datetime) -> tuple[str, str, str | None]:
    record, now = facts.record, facts.now
    assert record is not None  # without one there is no schedule, and nothing is due
    if due <= record.created_at:
        return "before_job", f"The job was registered later, at {instant(record.created_at)}.", None
    if record.status is JobStatus.REMOVED and record.removed_at is not None and due >= record.removed_at:
        return "not_planned", f"The job was removed at {instant(record.removed_at)}.", "remove"
    cursor = record.cursor
    if cursor is None or due < cursor:
        return _tell_forgotten(facts, due)
    if record.paused is not None:
        note = f" ({record.paused.note})" if record.paused.note else ""
        since = f"The job has been paused since {instant(record.paused.at)}{note}"
        return "not_planned", f"{since}; what it misses is recorded as skipped when it is resumed.", "pause"
    if record.retired_at is not None:
        since = f"No live node has its handler; the job was retired at {instant(record.retired_at)}"
        return "not_planned", f"{since}. What it misses is recorded as skipped when one has it again.", "no_handler"
    if due > now:
        planned = instant(record.plan_at) if record.plan_at else "in time"
        return "not_yet", f"It is not due yet; its run is created ahead of time, at {planned}.", None
    return "not_planned", f"It has not been planned yet: {_why_unplanned(facts, cursor)}.", "leader"


def _why_unplanned(facts: Facts, cursor: datetime) -> str:
    situation = facts.situation
    if situation.nodes is None:
        return "the coordinator is away, so nobody can lead and plan"
    if not situation.nodes:
        return "no node is alive"
    shard = MAIN if facts.record is None else facts.record.shard
    if situation.planner is None:
        return (
            "nobody leads, and only a leader plans" if shard == MAIN else f"nobody leads {shard}, where it is planned"
        )
    if situation.doubt:
        return f"the store's clock has jumped by {situation.doubt:+.0f} s, which is not believed yet"
    leads = "leads" if shard == MAIN else f"leads {shard}"
    return f"{situation.planner} {leads} and has come as far as {instant(cursor)}"


def _tell_forgotten(facts: Facts, due: datetime) -> tuple[str, str, str | None]:
    record = facts.record
    assert record is not None
    most = record.spec.max_runs
    if record.cursor is None and due > record.updated_at and most is not None and record.planned >= most:
        return "after_end", f"The job had its {most} runs before that.", f"max_runs={most}"
    kept, most_kept = facts.retention.completed, facts.retention.max_completed
    if kept is not None and seconds_between(due, facts.now) > kept:
        return "forgotten", f"No record is left: completed runs are kept for {_span(kept)}.", "retention"
    number = "" if most_kept is None else f", because more than max_completed={most_kept} came after it"
    return "forgotten", f"No record is left: it was purged{number}, by hand, or with its store.", "retention"


def _because(run: Run) -> str:
    return f": {run.reason}" if run.reason else ""


def _note(run: Run) -> str:
    return f" ({run.reason})" if run.reason else ""


def _span(seconds: float) -> str:
    if seconds < 1:
        return f"{max(0.0, seconds) * 1000:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 120 else duration(timedelta(seconds=round(seconds)))
