"""Between the records on the server and structs. `layout` says what the records are.

Bodies and lives are msgpack arrays; a body begins with what the server adds when it is put, a life with numbers at
fixed places that scripts read and write without decoding. Bytes are msgpack's `bin`, which scripts cannot read: they
travel behind everything that a script looks at.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime

import msgspec
from msgspec import Struct

from duly.backends.tolerance import UNREADABLE
from duly.model import (
    EPOCH,
    Attempt,
    Cause,
    Failure,
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

STATES = tuple(State)
NUMBERS = {state: number for number, state in enumerate(STATES)}
CAUSES = tuple(Cause)
WHENS = tuple(WhenFull)
OUTCOMES = tuple(OutcomeKind)
OUTCOME_NUMBERS = {kind: number for number, kind in enumerate(OUTCOMES, 1)}

GROUPED, DEDUPED, SCHEDULED, RANGED, ENDED, HELD, TIMED = 1, 2, 4, 8, 16, 32, 64
CANCELLING = 1

_CAUSE_NUMBERS = {cause: number for number, cause in enumerate(CAUSES)}
_WHEN_NUMBERS = {when: number for number, when in enumerate(WHENS)}
_PENDING, _QUEUED, _RUNNING = NUMBERS[State.PENDING], NUMBERS[State.QUEUED], NUMBERS[State.RUNNING]
_FIRST_FINAL = NUMBERS[State.COMPLETED]
_DEFAULT_POLICY = RunPolicy()
_LIFE = struct.Struct(">BBBBQBqBIBIBqBqBQ")
_START = struct.Struct(">q?")  # the last nine bytes of a body: until when it may start, and whether strictly
_NIL = b"\xc0"
_ARRAY = struct.Struct(">BI")

encode = msgspec.msgpack.Encoder().encode


class Rest(Struct, array_like=True, gc=False):
    """A body as the client sends it: from `traits` on."""

    traits: int
    handler: str
    job: str | None
    lane: str
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
    start: bytes | None


class Body(Struct, array_like=True, frozen=True, gc=False):
    """A run as it was put: when it was created, together with what, and as which of those; then as in `Rest`."""

    created: int
    place: int
    traits: int
    handler: str
    job: str | None
    lane: str
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
    start: bytes | None = None  # see `_START`; 0.1.0 wrote none, and runs that it must find have none


class Head(Struct, array_like=True, frozen=True, gc=False):
    """The parts of a body that scripts read."""

    created: int
    place: int
    traits: int
    handler: str
    job: str | None
    lane: str


class Life(Struct, array_like=True, frozen=True, gc=False):
    """What became of a run. Instants that are not are 0."""

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


_read_body = msgspec.msgpack.Decoder(Body).decode
_read_head = msgspec.msgpack.Decoder(Head).decode
_read_bodies = msgspec.msgpack.Decoder(list[Body]).decode
_read_life = msgspec.msgpack.Decoder(Life).decode
_read_attempts = msgspec.msgpack.Decoder(list[Attempt]).decode


def score_of(text: bytes | int) -> int:
    """A score as the server gives it: beyond 17 digits as a fraction with an exponent, as for the year 9999."""
    try:
        return int(text)
    except ValueError:
        return int(float(text))


def instant_of(score: bytes | int) -> datetime:
    """The instant of a score; one that rounding has carried beyond the calendar is its last."""
    try:
        return from_micros(score_of(score))
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def optional(micros: int) -> datetime | None:
    return from_micros(micros) if micros else None


def bodies_of(joined: bytes, number: int) -> list[Body]:
    """Bodies that a script has put together."""
    return _read_bodies(_ARRAY.pack(0xDD, number) + joined)


def body_of(text: bytes) -> Body:
    return _read_body(text)


def life_of(text: bytes) -> Life:
    return _read_life(text)


def bare_run(run_id: str, body: bytes | None, life: bytes | None, why: str) -> Run:
    """What can still be read of a run whose records cannot be read in full."""
    found = Run(id=run_id, job="", handler="", due=EPOCH, ready_at=EPOCH, damage=why)
    with suppress(*UNREADABLE):
        head = _read_head(body or b"")
        queue, placed, assignee = home_of(head.lane)
        found = msgspec.structs.replace(
            found,
            job=head.job or head.handler,
            handler=head.handler,
            queue=queue,
            priority=int(head.lane[0]),
            assignable=placed,
            assignee=assignee,
            created_at=from_micros(head.created),
        )
    with suppress(*UNREADABLE):
        numbers = _LIFE.unpack_from(life or b"")
        found = msgspec.structs.replace(
            found,
            state=STATES[numbers[1]],
            fence=numbers[4],
            failures=numbers[8],
            losses=numbers[10],
            started_at=optional(numbers[12]),
        )
    return found


def attempts_of(text: bytes) -> list[Attempt]:
    """The attempts of a run: their number in four bytes, then one after the other. None if they cannot be read."""
    try:
        return _read_attempts(b"\xdd" + text)
    except UNREADABLE:
        return []


# --- putting


def lane_of(run: Run) -> str:
    """The lane that a run waits in: its priority, one digit, and its queue; then `@` and a node, if it is placed."""
    return f"{run.priority}{run.queue}@{run.assignee or ''}" if run.assignable else f"{run.priority}{run.queue}"


def home_of(lane: str) -> tuple[str, bool, str | None]:
    """The queue of a lane, whether its runs are placed, and the node that has them."""
    queue, sign, node = lane[1:].partition("@")
    return queue, bool(sign), node or None


def rest_of(run: Run, index: int, due: int, ready: int, lane: str) -> bytes:
    """The part of a body that the client knows, without the array's own first byte or three."""
    traits = (
        (GROUPED if run.group is not None else 0)
        | (DEDUPED if run.dedupe_key is not None else 0)
        | (SCHEDULED if run.cause is Cause.SCHEDULE else 0)
        | (RANGED if run.until is not None else 0)
        | (ENDED if run.final else 0 if run.hold is None else HELD)
        | (TIMED if run.start_by is not None else 0)
    )
    # A run of a schedule that waits apart from the others has this, whether it must start by a certain time or not.
    start = None
    if run.start_by is not None or run.strict or (run.cause is Cause.SCHEDULE and not run.legacy):
        start = _START.pack(to_micros(run.start_by or EPOCH), run.strict)
    rest = Rest(
        traits,
        run.handler,
        None if run.job == run.handler else run.job,
        lane,
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
        start,
    )
    return encode(rest)[3:]


class Batch(Struct, frozen=True):
    """Runs as the arguments of a script: a flat list, their bodies; ends, holds, and how long keys are unique."""

    flat: list[str | int]
    bodies: bytes
    odd: dict[str, tuple[int, str | None, int | None]]


def batch_of(runs: Sequence[Run]) -> Batch:
    """Pack runs for `add_runs`."""
    flat: list[str | int] = []
    bodies: list[bytes] = []
    odd: dict[str, tuple[int, str | None, int | None]] = {}
    for index, run in enumerate(runs):
        due = to_micros(run.due)
        ready = due if run.ready_at is run.due else to_micros(run.ready_at)
        lane = lane_of(run)
        rest = rest_of(run, index, due, ready, lane)
        flat += (run.id, ready, lane, run.job, len(rest))
        bodies.append(rest)
        if run.final:
            odd[run.id] = (NUMBERS[run.state], run.reason, None)
        elif run.hold is not None or run.unique_for is not None:
            odd[run.id] = (_PENDING, run.hold, None if run.unique_for is None else round(run.unique_for * 1_000_000))
    return Batch(flat, b"".join(bodies), odd)


# --- reading


def start_of(body: Body) -> tuple[datetime | None, bool]:
    """Until when a run may start, and whether strictly.

    A script that excuses it leaves the time where it is and takes the trait away.
    """
    if body.start is None:
        return None, False
    start_by, strict = _START.unpack(body.start)
    return None if body.traits < TIMED else from_micros(start_by), strict


def lent_run(
    run_id: str,
    due: datetime,
    ready: datetime,
    body: Body,
    life: Life | None,
    fence: int,
    node: str,
    request: int,
    created: datetime,
    now: datetime,
    until: datetime,
) -> Run:
    """A run that was lent just now. `life` is what it had before, if it had one."""
    job, lane = body.job, body.lane
    queue, placed, assignee = home_of(lane) if "@" in lane else (lane[1:], False, None)
    return Run(
        run_id,
        body.handler if job is None else job,
        body.handler,
        due,
        ready,
        body.uid or "",
        body.revision,
        CAUSES[body.cause],
        queue,
        ord(lane[0]) - 48,
        body.payload,
        body.policy or _DEFAULT_POLICY,
        body.group,
        body.limit,
        WHENS[body.when_full],
        body.dedupe,
        body.headers,
        State.RUNNING,
        None if life is None else life.reason,
        None if body.until is None else from_micros(body.until),
        None,
        body.group is not None,
        0 if life is None else life.failures,
        0 if life is None else life.losses,
        fence,
        node,
        request,
        created,
        now,
        until,
        None,
        life is not None and life.flags % 2 == CANCELLING,
        None,
        None if life is None else life.result,
        None if life is None else life.failure,
        placed,
        assignee,
        None,
        None,
        *start_of(body),
    )


def run_of(run_id: str, body: Body, life: Life | None, member: bool, expires: int | None, now: int) -> Run:
    """A run as it stands: one that waits and is ready and not held is queued."""
    ready = (body.due if body.ready is None else body.ready) if life is None else life.ready
    state = _PENDING if life is None else life.state
    if state == _PENDING and ready <= now and (life is None or life.hold is None):
        state = _QUEUED
    queue, placed, assignee = home_of(body.lane)
    start_by, strict = start_of(body)
    run = Run(
        id=run_id,
        job=body.job or body.handler,
        handler=body.handler,
        due=from_micros(body.due),
        ready_at=from_micros(ready),
        uid=body.uid or "",
        revision=body.revision,
        cause=CAUSES[body.cause],
        queue=queue,
        priority=int(body.lane[0]),
        payload=body.payload,
        policy=body.policy or _DEFAULT_POLICY,
        group=body.group,
        limit=body.limit,
        when_full=WHENS[body.when_full],
        dedupe_key=body.dedupe,
        headers=body.headers,
        state=STATES[state],
        until=None if body.until is None else from_micros(body.until),
        member=member,
        created_at=from_micros(body.created),
        assignable=placed,
        assignee=assignee,
        start_by=start_by,
        strict=strict,
    )
    return run if life is None else _with_life(run, life, expires)


def _with_life(run: Run, life: Life, expires: int | None) -> Run:
    return msgspec.structs.replace(
        run,
        reason=life.reason,
        hold=life.hold,
        failures=life.failures,
        losses=life.losses,
        fence=life.fence,
        node=life.node,
        request=life.request,
        started_at=optional(life.started),
        expires_at=None if expires is None else from_micros(expires),
        finished_at=optional(life.finished),
        cancelling=life.flags % 2 == CANCELLING and not life.finished,
        progress=life.progress,
        result=life.result,
        failure=life.failure,
    )


# --- settling


def settled_life(settlement: Settlement, started: int, ended: int, ready: int, node: bytes) -> bytes:
    """The life of a run after this settlement, as far as the settlement knows it. `node` is its name, encoded."""
    state = NUMBERS[settlement.state]
    head = _LIFE.pack(
        0x9F,
        state,
        0,
        0xCF,
        settlement.fence,
        0xD3,
        ready,
        0xCE,
        settlement.failures,
        0xCE,
        settlement.losses,
        0xD3,
        started,
        0xD3,
        ended if state >= _FIRST_FINAL else 0,
        0xCF,
        0,
    )
    reason, result, failure = settlement.reason, settlement.result, settlement.failure
    return b"".join(
        (
            head,
            node,
            _NIL if settlement.hold is None else encode(settlement.hold),
            _NIL if reason is None else encode(reason),
            _NIL,
            _NIL if result is None else encode(result),
            _NIL if failure is None else encode(failure),
        )
    )
