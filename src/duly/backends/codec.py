"""The codec of the stores that keep a run as columns: SQLite, PostgreSQL and memory.

A run is kept as the fields that stores search by, its policy, its payload, and one text with everything else
(`Extra`), which most runs do not need. What reaches a store has been checked and sanitised before (`model.sanitize`);
what comes back may have been written by another version, so reading is tolerant (`tolerance`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from duly.backends.tolerance import UNREADABLE, damage, damaged_job
from duly.errors import BackendError
from duly.model import (
    Attempt,
    Cause,
    Claim,
    CustomSpec,
    Delivery,
    Failure,
    JobRecord,
    JobStatistics,
    OutcomeKind,
    Progress,
    Run,
    RunPolicy,
    Settlement,
    State,
    WhenFull,
    from_micros,
    to_micros,
)
from duly.model.job import JOB_SHARD, MAIN
from duly.model.run import BACKFILLED_BY

T = TypeVar("T")
Row = Sequence[Any]

CAUSES = {cause.value: cause for cause in Cause}
_MOST_POLICIES = 10_000
_DEFAULT_POLICY = RunPolicy()


def stored_cause(cause: Cause) -> Cause:
    """The cause that a store keeps: one that 0.1.0 knows."""
    return Cause.TRIGGER if cause is Cause.BACKFILL else cause


def read_cause(stored: Cause, headers: Mapping[str, str] | None) -> Cause:
    """The cause of a run, from the stored one and its headers."""
    backfilled = headers is not None and stored is Cause.TRIGGER and BACKFILLED_BY in headers
    return Cause.BACKFILL if backfilled else stored


_failure = msgspec.json.Decoder(Failure)
_policy = msgspec.json.Decoder(RunPolicy)
_progress = msgspec.json.Decoder(Progress)
_record = msgspec.json.Decoder(JobRecord)
_text = msgspec.json.Decoder(str)
_policies: dict[str, RunPolicy] = {}
_policy_texts: dict[int, tuple[RunPolicy, str | None]] = {}


# --- values


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


def slices_of(items: Sequence[T], most: int) -> list[Sequence[T]]:
    """The items in their order, at most `most` at a time."""
    return [items[start : start + most] for start in range(0, len(items), most)]


# --- what few runs have


class Extra(Struct, omit_defaults=True):
    """Identity, headers and key, the rule of the group, and what earlier attempts left behind."""

    uid: str = ""
    revision: int = 0
    limit: int = 1
    when_full: WhenFull = WhenFull.SKIP
    dedupe_key: str | None = None
    headers: dict[str, str] | None = None
    failures: int = 0
    losses: int = 0
    fence: int = 0
    node: str | None = None
    request: int = 0
    started_at: int | None = None
    reason: str | None = None
    cancelling: bool = False
    progress: Progress | None = None
    result: bytes | None = None
    failure: Failure | None = None
    start_by: int | None = None
    strict: bool = False


NOTHING = Extra()
_extra = msgspec.json.Decoder(Extra)


def extra_of(run: Run) -> str | None:
    """A run's extras as text; None when it has none."""
    extra = Extra(run.uid, run.revision, run.limit, run.when_full, run.dedupe_key, run.headers)
    extra.start_by, extra.strict = micros(run.start_by), run.strict
    if run.fence or run.node is not None or run.reason is not None or run.failures or run.losses:
        extra.failures = run.failures
        extra.losses = run.losses
        extra.fence = run.fence
        extra.node = run.node
        extra.request = run.request
        extra.started_at = micros(run.started_at)
        extra.reason = run.reason
        extra.cancelling = run.cancelling
        extra.progress = run.progress
        extra.result = run.result
        extra.failure = run.failure
    text = to_json(extra)
    return None if text == "{}" else text


def read_extra(text: str | None) -> Extra:
    return NOTHING if text is None else _extra.decode(text)


def read_start_by(text: str | None) -> int | None:
    """Until when a run may start, in microseconds; None where that cannot be read."""
    return read_entry((text, None, None))[2]


def read_entry(row: Row) -> tuple[int, WhenFull, int | None]:
    """How many of its group may run at a time, what happens otherwise, and until when a run may start.

    From its extra, limit and rule as they are stored. The defaults where that cannot be read.
    """
    text, limit, when_full = row
    try:
        extra = read_extra(text)
    except UNREADABLE:
        extra = NOTHING
    if limit is None:
        return extra.limit, extra.when_full, extra.start_by
    return limit, WhenFull(when_full), extra.start_by


class Ending(Struct, omit_defaults=True):
    """How a run ended. A success at the first attempt has the defaults."""

    failures: int = 0
    losses: int = 0
    reason: str | None = None
    progress: Progress | None = None
    failure: Failure | None = None


_ending = msgspec.json.Decoder(Ending)


def ending_of(run: Run, reason: str | None) -> str | None:
    """How a run ended, as text; None for a success at the first attempt."""
    text = to_json(Ending(run.failures, run.losses, reason, run.progress, run.failure))
    return None if text == "{}" else text


# --- what a store keeps of the structs that it is given, for one that keeps structs


def kept_run(run: Run) -> Run:
    """A run as it comes back from a store: its columns as they are, everything else through its text."""
    extra = read_extra(extra_of(run))
    return replace(
        run,
        policy=read_policy(policy_of(run.policy)),
        payload=bytes(run.payload),
        uid=extra.uid,
        cause=read_cause(stored_cause(run.cause), extra.headers),
        dedupe_key=extra.dedupe_key,
        headers=extra.headers,
        reason=extra.reason if run.reason is None else _text.decode(to_json(run.reason)),
    )


def kept_settlement(settlement: Settlement) -> Settlement:
    """The same for a settlement. Most contain no text from a handler."""
    if settlement.reason is None and settlement.failure is None and settlement.attempt is None:
        return settlement
    ending = _ending.decode(to_json(Ending(reason=settlement.reason, failure=settlement.failure)))
    attempt = settlement.attempt
    if attempt is not None:
        attempt = read_attempt(attempt_row(0, attempt)[1:])
    return replace(settlement, reason=ending.reason, failure=ending.failure, attempt=attempt)


def kept_progress(progress: Progress | None) -> Progress | None:
    return read_progress(optional_json(progress))


def kept_job(record: JobRecord) -> JobRecord:
    """The same for a definition."""
    plan = (micros(record.cursor), micros(record.plan_at), record.planned)
    return read_job((job_text(record), *plan, record.name, record.uid, record.revision, record.shard))


# --- policies: few, and mostly the same objects again and again


def policy_of(policy: RunPolicy) -> str | None:
    """A policy as text; None for the default."""
    known = _policy_texts.get(id(policy))
    if known is None:
        if len(_policy_texts) >= _MOST_POLICIES:
            _policy_texts.clear()
        text = None if policy == _DEFAULT_POLICY else to_json(policy)
        known = _policy_texts[id(policy)] = (policy, text)  # keeps the policy alive, so that its id is not reused
    return known[1]


def read_policy(text: str | None) -> RunPolicy:
    """A policy from its text: the same object for equal texts."""
    if text is None:
        return _DEFAULT_POLICY
    policy = _policies.get(text)
    if policy is None:
        if len(_policies) >= _MOST_POLICIES:
            _policies.clear()
        policy = _policies[text] = _policy.decode(text)
    return policy


def read_progress(text: str | None) -> Progress | None:
    return None if text is None else _progress.decode(text)


# --- lines: "queue" is for any node, "queue@node" for one node, "queue@" for runs that are not assigned yet


def queue_of(line: str) -> str:
    """The queue that a line belongs to."""
    return line.partition("@")[0]


def line_of(run: Run) -> str:
    """The line that a run waits in."""
    return f"{run.queue}@{run.assignee or ''}" if run.assignable else run.queue


# --- ranks: the smaller, the more urgent. Scheduled runs have separate ranks, so that a claim can give both kinds
# --- their share (`rules.sharing`).

MIDDLE = 500  # the rank of priority 0
SCHEDULED = 400  # the ranks of scheduled runs are less by this
_MOST_PRIORITY = 99


def rank_of(run: Run) -> int:
    """The rank of a new run. 0.1.0 has one rank for both kinds, and would take scheduled runs first."""
    return MIDDLE - run.priority - (SCHEDULED if run.cause is Cause.SCHEDULE and not run.legacy else 0)


def checked_rank_of(run: Run) -> int:
    """The same, if the priority is within the range of ranks."""
    if not 0 <= run.priority <= _MOST_PRIORITY:
        raise BackendError(f"run {run.id} has priority {run.priority}: expected 0 to 9")
    return rank_of(run)


def urgency_of(rank: int) -> int:
    """The urgency of runs of a rank, scheduled or not: a smaller number is more urgent."""
    return rank + SCHEDULED if rank < SCHEDULED else rank


def priority_of(rank: int) -> int:
    return MIDDLE - urgency_of(rank)


# --- definitions


def job_text(record: JobRecord) -> str:
    """A record as it is kept: without what its plan keeps."""
    return to_json(replace(record, cursor=None, plan_at=None, planned=0, planned_in=None))


def in_shard(record: JobRecord, shard: str) -> JobRecord:
    """The record of a job that is kept in this shard."""
    apart = isinstance(record.spec.schedule, CustomSpec) or shard.startswith(JOB_SHARD)
    home = None if apart or shard == MAIN else shard
    return record if record.planned_in == home else replace(record, planned_in=home)


def read_job(row: Row) -> JobRecord:
    """The record as it was saved, then cursor, time to plan and count as they are now; name, uid, revision, shard."""
    text, cursor, plan_at, planned = row[:4]
    try:
        record = _record.decode(text)
    except UNREADABLE as exc:
        name, uid, revision = row[4:7]
        record = damaged_job(name, uid, revision, exc)
    record = in_shard(record, row[7])
    return replace(record, cursor=instant(cursor), plan_at=instant(plan_at), planned=planned)


# --- answers


def answers(settlements: Sequence[Settlement], stale: Sequence[Settlement]) -> list[bool]:
    """In order, whether each settlement applied: all but the stale ones."""
    if not stale:
        return [True] * len(settlements)
    refused = {id(settled) for settled in stale}
    return [id(settled) not in refused for settled in settlements]


# --- history and counters


def attempt_row(seq: int, attempt: Attempt) -> tuple[Any, ...]:
    """The run's number, then number, fence, node, start, end, outcome, failure."""
    return (
        seq,
        attempt.number,
        attempt.fence,
        attempt.node,
        to_micros(attempt.started_at),
        to_micros(attempt.ended_at),
        attempt.outcome.value,
        optional_json(attempt.failure),
    )


def read_attempt(row: Row) -> Attempt:
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


def read_statistics(row: Row) -> JobStatistics:
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


# --- whole runs


# The fields of a new run that an SQL store writes, with their types and how to read them from the run.
NEW_RUN: tuple[tuple[str, str, Callable[[Run], Any]], ...] = (
    ("id", "text", lambda run: run.id),
    ("job", "text", lambda run: run.job),
    ("handler", "text", lambda run: run.handler),
    ("line", "text", line_of),
    ("rank", "int", checked_rank_of),
    ("cause", "text", lambda run: stored_cause(run.cause).value),
    ("policy", "text", lambda run: policy_of(run.policy)),
    ("due", "bigint", lambda run: to_micros(run.due)),
    ("ready_at", "bigint", lambda run: to_micros(run.ready_at)),
    ("group", "text", lambda run: run.group),
    ("extra", "text", extra_of),
    ("payload", "bytea", lambda run: run.payload),
)


class Record(Struct, frozen=True):
    """A run as it stands, with its number and where it waits: its line and its rank there."""

    seq: int
    line: str
    rank: int
    run: Run

    @property
    def entrant(self) -> bool:
        """Whether it waits to enter its group, or would if it were not held."""
        return self.run.group is not None and not self.run.member


# What an SQL store keeps of a run, in the order that `read_record` expects. Exactly one of the last three lines
# is not NULL: a run waits, is claimed, or has ended.
RUN_COLUMNS = (
    *("seq", "line", "rank", "id", "job", "handler", "cause", "due", "ready_at", "created_at", "group", "until"),
    *("policy", "limit", "when_full", "extra", "payload"),
    *("entering", "hold", "member"),
    *(f"claim.{name}" for name in ("fence", "node", "request", "started_at", "expires_at", "cancelling")),
    *(f"claim.{name}" for name in ("reason", "reason_json", "progress")),
    *(f"ended.{name}" for name in ("state", "finished_at", "fence", "node", "request", "started_at")),
    *(f"ended.{name}" for name in ("failures", "losses", "reason", "progress", "failure", "story", "result")),
)
_WAITING, _CLAIM, _ENDED = (RUN_COLUMNS.index(name) for name in ("entering", "claim.fence", "ended.state"))
_TEXTS = frozenset(
    RUN_COLUMNS.index(name)
    for name in (
        *("policy", "extra", "claim.reason_json", "claim.progress"),
        *("ended.progress", "ended.failure", "ended.story"),
    )
)


def run_columns(own: Mapping[str, str]) -> str:
    """The columns of a run for a statement that calls its record r, its claim c and its end e.

    `own` is what a dialect has in place of a column of that name.
    """
    return ", ".join(own.get(name) or _column(name) for name in RUN_COLUMNS)


def _column(name: str) -> str:
    table, _, column = name.rpartition(".")
    return f'{table[:1] or "r"}."{column}"'


def bare(row: Row) -> tuple[Any, ...]:
    """The row without the columns that may be unreadable."""
    return tuple(None if place in _TEXTS else value for place, value in enumerate(row))


def read_record(row: Row, now: int | None) -> Record:
    """A run from its row. With `now` a waiting run that is ready and not held is queued."""
    seq, line, rank, run_id, job, handler, cause, due, ready_at, created_at, group = row[:11]
    until, policy, limit, when_full, extra_text, payload = row[11:_WAITING]
    queue, sign, assignee = line.partition("@")
    extra = read_extra(extra_text)
    run = Run(
        id=run_id,
        job=job,
        handler=handler,
        due=from_micros(due),
        ready_at=from_micros(ready_at),
        uid=extra.uid,
        revision=extra.revision,
        cause=read_cause(CAUSES[cause], extra.headers),
        queue=queue,
        priority=priority_of(rank),
        payload=payload,
        policy=read_policy(policy),
        group=group,
        limit=extra.limit if limit is None else limit,
        when_full=extra.when_full if when_full is None else WhenFull(when_full),
        dedupe_key=extra.dedupe_key,
        headers=extra.headers,
        until=instant(until),
        created_at=from_micros(created_at),
        assignable=bool(sign),
        assignee=assignee or None,
        start_by=instant(extra.start_by),
        strict=extra.strict,
        **_standing(row, extra, now),
    )
    return Record(seq, line, rank, run)


def _standing(row: Row, extra: Extra, now: int | None) -> dict[str, Any]:
    """The fields that change during a run's life."""
    if row[_ENDED] is not None:
        return _ended(row)
    past: dict[str, Any] = {
        "failures": extra.failures,
        "losses": extra.losses,
        "failure": extra.failure,
        "result": extra.result,
        "reason": extra.reason,
    }
    return past | (_waiting(row, extra, now) if row[_CLAIM] is None else _claimed(row, extra))


def _waiting(row: Row, extra: Extra, now: int | None) -> dict[str, Any]:
    ready_at, group, (entering, hold, member) = row[8], row[10], row[_WAITING:_CLAIM]
    queued = now is not None and hold is None and ready_at <= now
    return {
        "state": State.QUEUED if queued else State.PENDING,
        "hold": hold,
        "member": group is not None and (not entering if hold is None else bool(member)),
        "fence": extra.fence,
        "node": extra.node,
        "request": extra.request,
        "started_at": instant(extra.started_at),
        "cancelling": extra.cancelling,
        "progress": extra.progress,
    }


def _claimed(row: Row, extra: Extra) -> dict[str, Any]:
    fence, node, request, started_at, expires_at, cancelling, reason, text, progress = row[_CLAIM:_ENDED]
    asked = reason if text is None else _text.decode(text)
    return {
        "state": State.RUNNING,
        "member": row[10] is not None,
        "fence": fence,
        "node": node,
        "request": request,
        "started_at": from_micros(started_at),
        "expires_at": from_micros(expires_at),
        "cancelling": bool(cancelling),
        "reason": asked if cancelling else extra.reason,
        "progress": read_progress(progress),
    }


def _ended(row: Row) -> dict[str, Any]:
    state, finished_at, fence, node, request, started_at, failures, losses, reason = row[_ENDED : _ENDED + 9]
    progress, failure, text, result = row[_ENDED + 9 :]
    if failures is None:
        ending = Ending() if text is None else _ending.decode(text)
    else:
        decoded = None if failure is None else _failure.decode(failure)
        ending = Ending(failures, losses, reason, read_progress(progress), decoded)
    return {
        "state": State(state),
        "finished_at": from_micros(finished_at),
        "fence": fence,
        "node": node,
        "request": request,
        "started_at": instant(started_at),
        "failures": ending.failures,
        "losses": ending.losses,
        "reason": ending.reason,
        "progress": ending.progress,
        "failure": ending.failure,
        "result": result,
    }


# --- claims


class Kind(Struct, frozen=True):
    """What runs of one kind have in common. `limit` and `when_full` are None where each run has its own."""

    job: str
    handler: str
    cause: Cause
    policy: RunPolicy
    limit: int | None = None
    when_full: WhenFull | None = None
    damage: str | None = None

    @property
    def at_most_once(self) -> bool:
        return self.policy.delivery is Delivery.AT_MOST_ONCE


class Place(Struct, frozen=True):
    """What runs that wait in one line with one rank have in common."""

    queue: str
    priority: int
    assignable: bool
    assignee: str | None


def place_of(line: str, rank: int) -> Place:
    """The place of runs in a line that have this rank."""
    queue, sign, node = line.partition("@")
    return Place(queue, priority_of(rank), bool(sign), node or None)


def begun(run: Run, fence: int, node: str, request: int, started_at: datetime, expires_at: datetime) -> Claim:
    """The claim of a run that was read ahead."""
    lent = replace(
        run,
        state=State.RUNNING,
        member=run.group is not None,
        fence=fence,
        node=node,
        request=request,
        started_at=started_at,
        expires_at=expires_at,
        progress=None,
    )
    return Claim(lent, fence, expires_at)


class Lender:
    """Makes the claims of one call: what they share is converted once. The hottest loop of a worker."""

    __slots__ = ("_created", "_created_at", "_due", "_due_at", "_expires_at", "_node", "_request", "_started_at")

    def __init__(self, node: str, request: int, started_at: int, expires_at: int) -> None:
        self._node = node
        self._request = request
        self._started_at = self._due_at = self._created_at = from_micros(started_at)
        self._expires_at = from_micros(expires_at)
        self._due = self._created = started_at

    def claim(
        self,
        kind: Kind,
        place: Place,
        run_id: str,
        due: int,
        ready_at: int,
        created: int,
        group: str | None,
        extra_text: str | None,
        payload: bytes,
        fence: int,
    ) -> Claim:
        """One claim. The fields of the run are given by position, in their order."""
        if due != self._due:
            self._due, self._due_at = due, from_micros(due)
        if created != self._created:
            self._created, self._created_at = created, from_micros(created)
        extra = NOTHING if extra_text is None else _extra.decode(extra_text)
        limit, when_full = kind.limit, kind.when_full
        run = Run(
            run_id,
            kind.job,
            kind.handler,
            self._due_at,
            self._due_at if ready_at == due else from_micros(ready_at),
            extra.uid,
            extra.revision,
            kind.cause if extra.headers is None else read_cause(kind.cause, extra.headers),
            place.queue,
            place.priority,
            payload,
            kind.policy,
            group,
            extra.limit if limit is None else limit,
            extra.when_full if when_full is None else when_full,
            extra.dedupe_key,
            extra.headers,
            State.RUNNING,
            extra.reason,
            None,
            None,
            group is not None,
            extra.failures,
            extra.losses,
            fence,
            self._node,
            self._request,
            self._created_at,
            self._started_at,
            self._expires_at,
            None,
            extra.cancelling,
            None,
            extra.result,
            extra.failure,
            place.assignable,
            place.assignee,
            kind.damage,
            None,
            None if extra.start_by is None else from_micros(extra.start_by),
            extra.strict,
        )
        return Claim(run, fence, self._expires_at)
