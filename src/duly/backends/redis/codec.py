"""Converts between the records on the server and structs. The package's docstring describes the records.

Bodies and statuses are msgpack arrays. A body begins with the fields that the server adds; a status begins with numbers
at fixed offsets, which scripts read and write without decoding. Scripts cannot decode msgpack's `bin`: fields of bytes
come after all that a script reads.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from duly.backends.codec import in_shard, read_cause, stored_cause
from duly.backends.tolerance import UNREADABLE, damaged_job
from duly.model import (
    EPOCH,
    Attempt,
    Cause,
    Failure,
    JobRecord,
    JobStatus,
    OutcomeKind,
    Progress,
    Run,
    RunPolicy,
    State,
    WhenFull,
    from_micros,
    to_micros,
)

STATES = tuple(State)
NUMBERS = {state: number for number, state in enumerate(STATES)}
CAUSES = tuple(Cause)
WHEN_FULL = tuple(WhenFull)
OUTCOMES = tuple(OutcomeKind)
OUTCOME_NUMBERS = {kind: number for number, kind in enumerate(OUTCOMES, 1)}

GROUPED, DEDUPED, SCHEDULED, RANGED, ENDED, HELD, TIMED = 1, 2, 4, 8, 16, 32, 64
CANCELLING = 1

_CAUSE_NUMBERS = {cause: CAUSES.index(stored_cause(cause)) for cause in CAUSES}
_WHEN_NUMBERS = {when: number for number, when in enumerate(WHEN_FULL)}
_PENDING, _QUEUED, _RUNNING = NUMBERS[State.PENDING], NUMBERS[State.QUEUED], NUMBERS[State.RUNNING]
_DEFAULT_POLICY = RunPolicy()
_RUNNING_STATE = State.RUNNING
_NO_START: tuple[None, bool] = (None, False)
STATUS = struct.Struct(">BBBBQBqBIBIBqBqBQ")
_START = struct.Struct(">q?")  # the last nine bytes of a body: until when it may start, and whether strictly
_BEFORE_TRAITS = 5  # bytes: the header of an array of more than 15, and two zeros
_ARRAY = struct.Struct(">BI")

encode = msgspec.msgpack.Encoder().encode


class Body(Struct, array_like=True, frozen=True, gc=False):
    """A run as it was put. The server fills in when that was, and the place of its batch in the order of creation."""

    created: int
    place: int
    traits: int
    handler: str
    job: str | None
    queue_key: str
    group: str | None
    limit: int
    when_full: int
    dedupe: str | None
    cause: int
    index: int
    due: int
    ready: int | None
    uid: str | None
    revision: int
    payload: bytes
    policy: RunPolicy | None
    headers: dict[str, str] | None
    until: int | None
    start: bytes | None = None  # see `_START`; 0.1.0 did not write it, and runs that it must find have none


class Head(Struct, array_like=True, frozen=True, gc=False):
    """The fields of a body that scripts read first."""

    created: int
    place: int
    traits: int
    handler: str
    job: str | None
    queue_key: str


class Status(Struct, array_like=True, frozen=True, gc=False):
    """What has become of a run. An instant of 0 means none."""

    state: int
    flags: int
    fence: int
    ready: int
    failures: int
    losses: int
    started: int
    finished: int
    request: int
    node: str | None
    hold: str | None
    reason: str | None
    progress: Progress | None
    result: bytes | None
    failure: Failure | None


_NEVER_CLAIMED = Status(_PENDING, 0, 0, 0, 0, 0, 0, 0, 0, None, None, None, None, None, None)

_read_body = msgspec.msgpack.Decoder(Body).decode
_read_head = msgspec.msgpack.Decoder(Head).decode
_read_bodies = msgspec.msgpack.Decoder(list[Body]).decode
_read_status = msgspec.msgpack.Decoder(Status).decode
_read_attempts = msgspec.msgpack.Decoder(list[Attempt]).decode


def score_of(text: bytes | int) -> int:
    """A score as the server sends it: with more than 17 digits in exponent notation, as for the year 9999."""
    try:
        return int(text)
    except ValueError:
        return int(float(text))


def instant_of(score: bytes | int) -> datetime:
    """The instant of a score. Rounding may carry one beyond the calendar: that is the calendar's last."""
    try:
        return from_micros(score_of(score))
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def optional_instant(micros: int) -> datetime | None:
    return from_micros(micros) if micros else None


def bodies_of(joined: bytes, number: int) -> list[Body]:
    """The bodies in a string that a script has concatenated."""
    return _read_bodies(_ARRAY.pack(0xDD, number) + joined)


def body_of(text: bytes) -> Body:
    return _read_body(text)


def status_of(text: bytes) -> Status:
    return _read_status(text)


def damaged_run(run_id: str, body: bytes | None, status: bytes | None, why: str) -> Run:
    """The readable part of a run whose records cannot be decoded."""
    found = Run(id=run_id, job="", handler="", due=EPOCH, ready_at=EPOCH, damage=why)
    with suppress(*UNREADABLE):
        head = _read_head(body or b"")
        queue, assignable, assignee = parse_queue_key(head.queue_key)
        found = msgspec.structs.replace(
            found,
            job=head.job or head.handler,
            handler=head.handler,
            queue=queue,
            priority=int(head.queue_key[0]),
            assignable=assignable,
            assignee=assignee,
            created_at=from_micros(head.created),
        )
    with suppress(*UNREADABLE):
        numbers = STATUS.unpack_from(status or b"")
        found = msgspec.structs.replace(
            found,
            state=STATES[numbers[1]],
            fence=numbers[4],
            failures=numbers[8],
            losses=numbers[10],
            started_at=optional_instant(numbers[12]),
        )
    return found


def attempts_of(text: bytes) -> list[Attempt]:
    """The attempts of a run: their number in four bytes, then one after the other. Empty if they cannot be decoded."""
    try:
        return _read_attempts(b"\xdd" + text)
    except UNREADABLE:
        return []


# --- putting


def queue_key_of(run: Run) -> str:
    """The queue key of a run: its priority (one digit) and its queue; if nodes are assigned, also `@` and the node."""
    return f"{run.priority}{run.queue}@{run.assignee or ''}" if run.assignable else f"{run.priority}{run.queue}"


def parse_queue_key(queue_key: str) -> tuple[str, bool, str | None]:
    """The queue in a queue key, whether its runs are assigned to nodes, and the node."""
    queue, sign, node = queue_key[1:].partition("@")
    return queue, bool(sign), node or None


def rest_of(run: Run, index: int, due: int, ready: int, queue_key: str) -> bytes:
    """The encoded body of a run from `traits` on: the server puts the header and the first two fields before it."""
    traits = (
        (GROUPED if run.group is not None else 0)
        | (DEDUPED if run.dedupe_key is not None else 0)
        | (SCHEDULED if run.cause is Cause.SCHEDULE else 0)
        | (RANGED if run.until is not None else 0)
        | (ENDED if run.final else 0 if run.hold is None else HELD)
        | (TIMED if run.start_by is not None else 0)
    )
    body = Body(
        0,
        0,
        traits,
        run.handler,
        None if run.job == run.handler else run.job,
        queue_key,
        run.group,
        run.limit,
        _WHEN_NUMBERS[run.when_full],
        run.dedupe_key,
        _CAUSE_NUMBERS[run.cause],
        index,
        due,
        None if ready == due else ready,
        run.uid or None,
        run.revision,
        run.payload,
        None if run.policy == _DEFAULT_POLICY else run.policy,
        run.headers,
        None if run.until is None else to_micros(run.until),
        _start_part(run),
    )
    return encode(body)[_BEFORE_TRAITS:]


def _start_part(run: Run) -> bytes | None:
    """Until when a run may start. Scheduled runs that wait in separate sets have this, with or without a time."""
    apart = run.cause is Cause.SCHEDULE and not run.legacy
    if run.start_by is None and not run.strict and not apart:
        return None
    return _START.pack(to_micros(run.start_by or EPOCH), run.strict)


def is_plain(run: Run) -> bool:
    """Whether a run to be put has no traits and is for any node, so that `put_one` can add it."""
    return not (
        run.cause is Cause.SCHEDULE
        or run.group is not None
        or run.dedupe_key is not None
        or run.until is not None
        or run.start_by is not None
        or run.hold is not None
        or run.assignable
        or run.final
    )


def plain_arguments(run: Run) -> tuple[str, int, str, str, str, bytes]:
    """A plain run as the arguments of `put_one`."""
    due = to_micros(run.due)
    ready = due if run.ready_at is run.due else to_micros(run.ready_at)
    queue_key = queue_key_of(run)
    return run.id, ready, queue_key, run.queue, run.job, rest_of(run, 0, due, ready, queue_key)


BatchArguments = tuple[bytes, bytes, bytes]


def batch_arguments(runs: Sequence[Run]) -> BatchArguments:
    """Runs as the three arguments of `add_runs`: five fields for each, the bodies, and what only some runs have.

    That is, by id: state and reason of one that has already ended, or the hold of one that is held, and how long a
    dedupe key stays unique.
    """
    fields: list[str | int] = []
    bodies: list[bytes] = []
    extras: dict[str, tuple[int, str | None, int | None]] = {}
    for index, run in enumerate(runs):
        due = to_micros(run.due)
        ready = due if run.ready_at is run.due else to_micros(run.ready_at)
        queue_key = queue_key_of(run)
        rest = rest_of(run, index, due, ready, queue_key)
        fields += (run.id, ready, queue_key, run.job, len(rest))
        bodies.append(rest)
        if run.final:
            extras[run.id] = (NUMBERS[run.state], run.reason, None)
        elif run.hold is not None or run.unique_for is not None:
            extras[run.id] = (_PENDING, run.hold, None if run.unique_for is None else round(run.unique_for * 1_000_000))
    return encode(fields), b"".join(bodies), encode(extras)


# --- reading


def start_of(body: Body) -> tuple[datetime | None, bool]:
    """Until when a run may start, and whether strictly.

    A script that lifts the limit removes the trait and leaves the time in place.
    """
    if body.start is None:
        return None, False
    start_by, strict = _START.unpack(body.start)
    return None if body.traits < TIMED else from_micros(start_by), strict


def claimed_run(
    run_id: str,
    due: datetime,
    ready: datetime,
    body: Body,
    status: Status | None,
    fence: int,
    node: str,
    request: int,
    created: datetime,
    now: datetime,
    until: datetime,
) -> Run:
    """A run that was claimed just now. `status` is its status before the claim, if it had one."""
    job, queue_key, group = body.job, body.queue_key, body.group
    queue, assignable, assignee = parse_queue_key(queue_key) if "@" in queue_key else (queue_key[1:], False, None)
    start_by, strict = _NO_START if body.start is None else start_of(body)
    return Run(
        run_id,
        body.handler if job is None else job,
        body.handler,
        due,
        ready,
        body.uid or "",
        body.revision,
        CAUSES[body.cause] if body.headers is None else read_cause(CAUSES[body.cause], body.headers),
        queue,
        ord(queue_key[0]) - 48,
        body.payload,
        body.policy or _DEFAULT_POLICY,
        group,
        body.limit,
        WHEN_FULL[body.when_full],
        body.dedupe,
        body.headers,
        _RUNNING_STATE,
        None if status is None else status.reason,
        None if body.until is None else from_micros(body.until),
        None,
        group is not None,
        0 if status is None else status.failures,
        0 if status is None else status.losses,
        fence,
        node,
        request,
        created,
        now,
        until,
        None,
        status is not None and status.flags % 2 == CANCELLING,
        None,
        None if status is None else status.result,
        None if status is None else status.failure,
        assignable,
        assignee,
        None,
        None,
        start_by,
        strict,
    )


def run_of(run_id: str, body: Body, status: Status | None, member: bool, expires: int | None, now: int) -> Run:
    """A run as it is now. A pending run that is ready and not held is queued."""
    ready = (body.due if body.ready is None else body.ready) if status is None else status.ready
    state = _PENDING if status is None else status.state
    if state == _PENDING and ready <= now and (status is None or status.hold is None):
        state = _QUEUED
    due, created = from_micros(body.due), from_micros(body.created)
    run = claimed_run(run_id, due, from_micros(ready), body, status, 0, "", 0, created, created, created)
    known = _NEVER_CLAIMED if status is None else status
    return msgspec.structs.replace(
        run,
        state=STATES[state],
        member=member,
        hold=known.hold,
        fence=known.fence,
        node=known.node,
        request=known.request,
        started_at=optional_instant(known.started),
        expires_at=None if expires is None else from_micros(expires),
        finished_at=optional_instant(known.finished),
        cancelling=known.flags % 2 == CANCELLING and not known.finished,
        progress=known.progress,
    )


# --- jobs: fields that scripts compare and change, at fixed offsets, then the record as it was saved

_JOB_HEAD = struct.Struct(">IBqqq")
_ACTIVE, _BLOCKED, _HAS_CURSOR, _HAS_PLAN = 1, 2, 4, 8
_STOPPED = (JobStatus.REMOVED, JobStatus.PAUSED, JobStatus.RETIRED)
_BLOCKING = (JobStatus.REMOVED, JobStatus.PAUSED)

_decode_record = msgspec.msgpack.Decoder(JobRecord).decode


def encode_job(record: JobRecord) -> bytes:
    """A record as it is stored. Scripts read uid and shard, and not what follows."""
    status = record.status
    flags = (
        (_ACTIVE if status not in _STOPPED else 0)
        | (_BLOCKED if status in _BLOCKING else 0)
        | (_HAS_CURSOR if record.cursor is not None else 0)
        | (_HAS_PLAN if record.plan_at is not None else 0)
    )
    head = _JOB_HEAD.pack(
        record.revision, flags, _micros_or_zero(record.cursor), _micros_or_zero(record.plan_at), record.planned
    )
    return head + encode(record.uid) + encode(record.shard) + encode(record)


def decode_job(name: str, text: bytes) -> JobRecord:
    """A record as it is now: scripts may have changed cursor, time to plan and count since it was saved."""
    try:
        revision, flags, cursor, plan_at, planned = _JOB_HEAD.unpack_from(text)
        uid_end = _string_end(text, _JOB_HEAD.size)
        uid = bytes(text[_JOB_HEAD.size : uid_end])
        shard_end = _string_end(text, uid_end)
        shard = msgspec.msgpack.decode(text[uid_end:shard_end], type=str)
    except UNREADABLE as exc:
        return damaged_job(name, "", 0, exc)
    try:
        record = _decode_record(memoryview(text)[shard_end:])
    except UNREADABLE as exc:
        record = damaged_job(name, msgspec.msgpack.decode(uid, type=str), revision, exc)
    return replace(
        in_shard(record, shard),
        cursor=from_micros(cursor) if flags & _HAS_CURSOR else None,
        plan_at=from_micros(plan_at) if flags & _HAS_PLAN else None,
        planned=planned,
    )


def decode_jobs(names: Sequence[str | bytes], texts: Sequence[bytes | None]) -> list[JobRecord]:
    """The records of those jobs that exist."""
    return [
        decode_job(name.decode() if isinstance(name, bytes) else name, text)
        for name, text in zip(names, texts, strict=True)
        if text is not None
    ]


def _string_end(text: bytes, at: int) -> int:
    """The end of the msgpack string that begins at this offset."""
    kind = text[at]
    if kind < 0xC0:
        return at + 1 + (kind & 0x1F)
    width = 1 << (kind - 0xD9)
    return at + 1 + width + int.from_bytes(text[at + 1 : at + 1 + width], "big")


def _micros_or_zero(instant: datetime | None) -> int:
    return 0 if instant is None else to_micros(instant)
