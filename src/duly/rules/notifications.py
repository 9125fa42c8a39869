"""Notifications: what is reported, how events become messages, and what happens to a message that cannot be delivered.

Pure functions on `NotifyState`. Events of one job are collected for a moment and become one message with a count; then
that job and kind is muted, and further events are only counted until the time is over. The node that sends stores each
state before it acts on it, so that nothing is forgotten if it dies, and a message may be sent twice, under the same id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import blake2b

from msgspec import Struct
from msgspec.structs import replace

from duly.model import Failure, JobRecord, JobStatistics, JobStatus, OutcomeKind, Run, State, shift, to_micros
from duly.model.notification import (
    Concern,
    Delivery,
    Expectation,
    Failing,
    Group,
    Notification,
    NotificationKind,
    NotifyState,
    TargetState,
)
from duly.model.sanitize import text
from duly.rules.describe import duration, instant
from duly.rules.misfires import MISFIRE

LOOK_BACK = 3600.0  # seconds: a run whose end is stored later than that after it ended is not reported
LISTED = 20  # messages that one target gets at once; of more, it gets one digest

_MOST_SEEN = 5_000
_MOST_JOBS = 1_000  # jobs that are remembered as failing, and jobs with an expectation
_MOST_GROUPS = 1_000
_MOST_OUTBOX = 500
_MOST_ERROR = 300
_FIRST_RETRY = 5.0
_LONGEST_RETRY = 900.0
_GIVE_UP = timedelta(hours=24)
_FORGET = timedelta(days=90)  # a job that has not run since its failure, or was deleted, is not watched for ever

_IDLE = (JobStatus.PAUSED, JobStatus.FINISHED, JobStatus.REMOVED)

Kind = NotificationKind
Routes = Mapping[str, tuple[str, ...] | None]


class Pace(Struct, frozen=True):
    """How long events are collected, for how long a job is then muted, and when a waiting run is late; in seconds."""

    wait: float
    repeat: float
    late_after: float


def fresh(now: datetime, totals: Mapping[str, int]) -> NotifyState:
    """The state of a store in which nothing has been reported yet: what ended before is not reported."""
    return NotifyState(since=now, totals=dict(totals))


# --- what has ended


def increase(state: NotifyState, totals: Mapping[str, int], names: Iterable[str]) -> int:
    """How many more runs have ended in these states than have been looked at."""
    return sum(max(0, totals.get(name, 0) - state.totals.get(name, 0)) for name in names)


def unseen(state: NotifyState, runs: Iterable[Run]) -> list[Run]:
    """Those runs that have not been looked at yet."""
    known = set(state.seen)
    return [run for run in runs if key_of(run) not in known]


def without_content(run: Run) -> Run:
    """A run without payload, result and traceback, of which thousands can be kept in memory."""
    failure = run.failure
    short = None if failure is None else Failure(failure.type, failure.message[:_MOST_ERROR])
    return replace(run, payload=b"{}", result=None, failure=short)


def key_of(run: Run) -> str:
    """A short hash of one end of a run: it may end again after it was redriven."""
    end = 0 if run.finished_at is None else to_micros(run.finished_at)
    return blake2b(f"{run.id}:{end}".encode(), digest_size=8).hexdigest()


def note_ended(
    state: NotifyState, runs: Sequence[Run], totals: Mapping[str, int], now: datetime, pace: Pace, *, more: bool
) -> NotifyState:
    """Collect runs that have failed, were lost, or were missed. `more`: there are others that were not read."""
    groups, failing = dict(state.groups), dict(state.failing)
    ordered = sorted(runs, key=lambda each: each.finished_at or each.due)
    for run in ordered:
        kind = _kind(run)
        if kind is None:
            continue
        _collect(groups, state, kind, run, now, pace, at_least=more)
        if kind is Kind.FAILURE and (run.job in failing or len(failing) < _MOST_JOBS):
            before = failing.get(run.job)
            ended, begun = run.finished_at or now, run.started_at or run.due
            since, told = (ended, False) if before is None else (before.since, before.told)
            failing[run.job] = Failing(since, begun, None, told)
    seen = (*state.seen, *map(key_of, ordered))[-_MOST_SEEN:]
    return replace(state, groups=groups, failing=failing, seen=seen, totals=dict(totals))


def note_late(state: NotifyState, runs: Iterable[Run], now: datetime, pace: Pace) -> NotifyState:
    """Collect scheduled runs that should have started long ago: one message per job while it is not muted."""
    groups = dict(state.groups)
    for run in runs:
        key = _key(Kind.LATE, run.job)
        if key not in groups and state.muted.get(key, now) <= now:
            _collect(groups, state, Kind.LATE, run, now, pace)
    return replace(state, groups=groups)


def _kind(run: Run) -> NotificationKind | None:
    if run.state in {State.FAILED, State.LOST}:
        return Kind.FAILURE
    return Kind.MISSED if run.state is State.SKIPPED and run.reason == MISFIRE else None


def _collect(
    groups: dict[str, Group],
    state: NotifyState,
    kind: NotificationKind,
    run: Run,
    now: datetime,
    pace: Pace,
    *,
    at_least: bool = False,
) -> None:
    key, at = _key(kind, run.job), run.finished_at or now
    before = groups.get(key)
    if before is None and len(groups) >= _MOST_GROUPS:
        return
    failure = run.failure
    error = "" if failure is None else text(f"{failure.type}: {failure.message}", _MOST_ERROR)
    latest = {"run_id": run.id, "error": error, "reason": text(run.reason or "", _MOST_ERROR)}
    if before is None:
        send_at = max(shift(now, pace.wait), state.muted.get(key, now))
        groups[key] = Group(kind, run.job, send_at, 1, at, at, at_least, **latest)
    else:
        groups[key] = replace(
            before,
            count=before.count + 1,
            last_at=max(at, before.last_at),
            at_least=before.at_least or at_least,
            **latest,
        )


def _key(kind: NotificationKind, job: str) -> str:
    return f"{kind.value}:{job}"


# --- recoveries and expectations


def note_definitions(state: NotifyState, records: Sequence[JobRecord], now: datetime, *, last: bool) -> NotifyState:
    """Take over the expectations of a slice of all definitions, which begins after `state.scan`; `last`: it ends there.

    A job that is paused, finished or removed is not expected to run; one that no node has the code of is.
    """
    end = "" if last or not records else records[-1].name
    found = {record.name: record for record in records}
    expected = dict(state.expected)
    for name in state.expected:
        if name > state.scan and (not end or name <= end) and name not in found:
            del expected[name]  # its definition was deleted
    for name, record in found.items():
        if record.status is JobStatus.UNREADABLE:
            continue
        every, before = record.spec.expect_every, expected.pop(name, None)
        if every is None or record.status in _IDLE:
            continue
        if before is not None:
            expected[name] = replace(before, every=every)
        elif len(expected) < _MOST_JOBS:
            expected[name] = Expectation(every, now)
    return replace(state, expected=expected, scan=end)


def watched(state: NotifyState) -> list[str]:
    """The jobs whose counters decide about a recovery or an expectation."""
    return sorted({*state.failing, *state.expected})


def note_statistics(state: NotifyState, statistics: Mapping[str, JobStatistics], now: datetime) -> NotifyState:
    """Notice jobs that have succeeded again, and jobs that have not succeeded in time."""
    groups, failing, expected = dict(state.groups), dict(state.failing), dict(state.expected)
    for job, each in state.failing.items():
        if now - each.since > _FORGET:
            del failing[job]
            continue
        counted = statistics.get(job, JobStatistics())
        if each.completed is None:
            each = failing[job] = replace(each, completed=_completed_before(each, counted))  # noqa: PLW2901
        waits = _key(Kind.FAILURE, job) in groups and not each.told
        if counted.completed > (each.completed or 0) and not waits:
            del failing[job]
            if each.told:
                _announce(groups, Kind.RECOVERY, job, now, each.since)
    for job, hope in state.expected.items():
        expected[job] = _expect(groups, job, hope, statistics.get(job, JobStatistics()), now)
    return replace(state, groups=groups, failing=failing, expected=expected)


def _completed_before(failing: Failing, counted: JobStatistics) -> int:
    """How many runs had completed when the job failed: one less than now if a later run has already succeeded."""
    latest = counted.last_run_at
    recovered = counted.last_outcome is OutcomeKind.SUCCEEDED and latest is not None and latest > failing.started_at
    return counted.completed - 1 if recovered else counted.completed


def _expect(
    groups: dict[str, Group], job: str, hope: Expectation, counted: JobStatistics, now: datetime
) -> Expectation:
    if hope.completed is None or counted.completed > hope.completed:
        if hope.overdue:
            _announce(groups, Kind.RECOVERY, job, now, hope.since)
        began = hope.since if hope.completed is None else now
        return Expectation(hope.every, began, counted.completed)
    if not hope.overdue and now >= shift(hope.since, hope.every):
        _announce(groups, Kind.OVERDUE, job, now, hope.since)
        return replace(hope, overdue=True)
    return hope


def _announce(groups: dict[str, Group], kind: NotificationKind, job: str, now: datetime, since: datetime) -> None:
    """A message of its own, without waiting for more."""
    if len(groups) < _MOST_GROUPS:
        groups[_key(kind, job)] = Group(kind, job, now, 1, since, now)


# --- messages


def make_messages(
    state: NotifyState, now: datetime, pace: Pace, targets: Mapping[str, tuple[str, ...]], routes: Routes
) -> NotifyState:
    """Turn what has been collected long enough into messages for the targets, which are the kinds they get by name.

    `routes` names the targets of a job; None, or a job that is not there, means all.
    """
    ready = [group for group in state.groups.values() if group.send_at <= now]
    muted = {key: until for key, until in state.muted.items() if until > now}
    failing = dict(state.failing)
    for group in ready:
        if group.kind is not Kind.RECOVERY:
            muted[_key(group.kind, group.job)] = shift(now, pace.repeat)
        if group.kind is Kind.FAILURE and group.job in failing:
            failing[group.job] = replace(failing[group.job], told=True)
    left = {key: group for key, group in state.groups.items() if group.send_at > now}
    state = replace(state, groups=left, muted=muted, failing=failing)
    numbered = list(enumerate(ready, state.made + 1))
    added: list[Delivery] = []
    made = state.made + len(ready)
    for name, kinds in targets.items():
        mine = [each for each in numbered if each[1].kind.value in kinds and _goes_to(name, each[1].job, routes)]
        if len(mine) > LISTED:
            made += 1
            added.append(Delivery(name, _digest(_id(state, made), [group for _, group in mine], now)))
        else:
            added += [Delivery(name, _message(_id(state, number), group, now)) for number, group in mine]
    return _enqueued(replace(state, made=made), added)


def _goes_to(target: str, job: str, routes: Routes) -> bool:
    chosen = routes.get(job)
    return chosen is None or target in chosen


def _id(state: NotifyState, number: int) -> str:
    return f"{to_micros(state.since):x}-{number}"


def _enqueued(state: NotifyState, added: Sequence[Delivery]) -> NotifyState:
    """The outbox with new deliveries; if there are too many, the oldest are dropped and counted."""
    outbox = (*state.outbox, *added)
    over = outbox[: max(0, len(outbox) - _MOST_OUTBOX)]
    targets = dict(state.targets)
    for each in over:
        known = targets.get(each.target, TargetState())
        targets[each.target] = replace(known, dropped=known.dropped + 1)
    return replace(state, outbox=outbox[len(over) :], targets=targets)


def _message(number: str, group: Group, now: datetime) -> Notification:
    return Notification(
        id=number,
        kind=group.kind,
        text=_words(group, now),
        at=now,
        job=group.job,
        count=group.count,
        at_least=group.at_least,
        first_at=group.first_at,
        last_at=group.last_at,
        run_id=group.run_id,
        error=group.error,
        reason=group.reason,
    )


def _digest(number: str, groups: Sequence[Group], now: datetime) -> Notification:
    events = sum(group.count for group in groups)
    concerns = tuple(Concern(group.kind, group.job, group.count, group.error) for group in groups[:LISTED])
    listed = ", ".join(f"{each.job} ({each.kind.value}, {each.count})" for each in concerns)
    words = f"{len(groups)} jobs need attention: {listed} and {len(groups) - len(concerns)} more"
    at_least = any(group.at_least for group in groups)
    return Notification(number, Kind.DIGEST, words, now, count=events, at_least=at_least, concerns=concerns)


def trial_message(number: str, target: str, now: datetime) -> Notification:
    """A message to try out a target."""
    return Notification(number, Kind.TEST, f"This is a test of the notification target {target}.", now)


def _words(group: Group, now: datetime) -> str:
    at_least = "at least " if group.at_least else ""
    span = instant(group.first_at.replace(microsecond=0))
    times = ""
    if group.count > 1:
        times, span = f" {at_least}{group.count} times", f"{span} to {instant(group.last_at.replace(microsecond=0))}"
    match group.kind:
        case Kind.FAILURE:
            last = ", the latest" if group.count > 1 else ""
            detail = f": {group.error or group.reason}" if group.error or group.reason else ""
            return f"{group.job} failed{times} ({span}{last} in run {group.run_id}){detail}"
        case Kind.MISSED:
            return f"{group.job} was not started in time{times} ({span})"
        case Kind.LATE:
            return f"{group.job} is late: run {group.run_id} is ready, and has not been started"
        case Kind.OVERDUE:
            return f"{group.job} has not succeeded for {duration(_whole(now - group.first_at))}"
        case _:
            return f"{group.job} succeeded again; it had not since {span}"


def _whole(span: timedelta) -> timedelta:
    return timedelta(seconds=max(1, round(span.total_seconds())))


# --- delivery


def due(state: NotifyState, target: str, now: datetime) -> list[Delivery]:
    """The deliveries to a target that may be tried now, oldest first."""
    known = state.targets.get(target)
    if known is not None and known.retry_at is not None and known.retry_at > now:
        return []
    return [each for each in state.outbox if each.target == target]


def delivered(state: NotifyState, delivery: Delivery, now: datetime) -> NotifyState:
    """The target has the message."""
    known = state.targets.get(delivery.target, TargetState())
    new = replace(known, sent=known.sent + 1, failures=0, retry_at=None, last_sent_at=now)
    return _without(state, delivery, new)


def refused(state: NotifyState, delivery: Delivery, error: str, now: datetime, *, for_good: bool) -> NotifyState:
    """The target did not take the message. It is tried again later, unless that is useless or it is a day old."""
    known = state.targets.get(delivery.target, TargetState())
    failures = known.failures + 1
    new = replace(known, last_error=text(error, _MOST_ERROR), last_error_at=now)
    if for_good or now - delivery.notification.at > _GIVE_UP:
        return _without(state, delivery, replace(new, given_up=known.given_up + 1))
    retry_at = shift(now, min(_FIRST_RETRY * 2.0 ** min(failures - 1, 16), _LONGEST_RETRY))
    return replace(
        state, targets={**state.targets, delivery.target: replace(new, failures=failures, retry_at=retry_at)}
    )


def _without(state: NotifyState, delivery: Delivery, target: TargetState) -> NotifyState:
    outbox = tuple(each for each in state.outbox if each != delivery)
    return replace(state, outbox=outbox, targets={**state.targets, delivery.target: target})


def present(state: NotifyState, targets: Mapping[str, TargetState], now: datetime) -> NotifyState:
    """The state with the targets as the sending node has them.

    Messages to a target that it does not have are kept for a day: another node may have it.
    """
    mine = {
        name: replace(state.targets.get(name, TargetState()), about=each.about, on=each.on, node=each.node)
        for name, each in targets.items()
    }
    outbox = tuple(each for each in state.outbox if each.target in mine or now - each.notification.at <= _GIVE_UP)
    others = {each.target for each in outbox if each.target not in mine}
    kept = {name: known for name, known in state.targets.items() if name in others}
    return replace(state, targets=kept | mine, outbox=outbox)


def next_at(state: NotifyState) -> datetime | None:
    """When something that was collected becomes a message, or a delivery is tried again; None if nothing waits."""
    times = [group.send_at for group in state.groups.values()]
    times += [
        state.targets[each.target].retry_at or state.since for each in state.outbox if each.target in state.targets
    ]
    return min(times, default=None)
