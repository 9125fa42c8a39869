"""Between rows and structs. The order of columns is that of the statements, and of `{run}` in texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from duly.backends.rows import instant, micros, optional_json, to_json
from duly.backends.sqlite.interning import priority_of
from duly.backends.sqlite.unit_of_work import Row, UnitOfWork
from duly.backends.tolerance import UNREADABLE, tolerantly
from duly.model import (
    Attempt,
    Failure,
    Progress,
    Run,
    State,
    from_micros,
    to_micros,
)

_JSON = frozenset({8, 21, 32, 33})  # extra, progress of a claim, progress and failure of what has ended
_failure = msgspec.json.Decoder(Failure)
_progress = msgspec.json.Decoder(Progress)


class Extra(Struct, omit_defaults=True):
    """What few runs have: identity, headers and key, and what earlier attempts left behind."""

    uid: str = ""
    revision: int = 0
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
    if run.fence == 0 and run.node is None and run.reason is None and run.failures == 0 and run.losses == 0:
        early = Extra(run.uid, run.revision, run.dedupe_key, run.headers)
        early.start_by, early.strict = micros(run.start_by), run.strict
        text = to_json(early)
    else:
        text = _whole_extra(run)
    return None if text == "{}" else text


def _whole_extra(run: Run) -> str:
    return to_json(
        Extra(
            uid=run.uid,
            revision=run.revision,
            dedupe_key=run.dedupe_key,
            headers=run.headers,
            failures=run.failures,
            losses=run.losses,
            fence=run.fence,
            node=run.node,
            request=run.request,
            started_at=micros(run.started_at),
            reason=run.reason,
            cancelling=run.cancelling,
            progress=run.progress,
            result=run.result,
            failure=run.failure,
            start_by=micros(run.start_by),
            strict=run.strict,
        )
    )


def read_extra(text: str | None) -> Extra:
    return NOTHING if text is None else _extra.decode(text)


def read_start_by(text: str | None) -> int | None:
    """Until when a run may start, in microseconds; None where that cannot be read."""
    try:
        return read_extra(text).start_by
    except UNREADABLE:
        return None


# --- whole runs


class Record(Struct, frozen=True):
    """A run as it stands, with the numbers by which the tables know it."""

    seq: int
    line: int
    kind: int
    run: Run

    @property
    def entrant(self) -> bool:
        """Whether it waits to enter its group, or would if it were not held."""
        return self.run.group is not None and not self.run.member


def read_records(unit: UnitOfWork, rows: Sequence[Row], now: int | None = None) -> list[Record]:
    """Runs from rows of `{run}` (see texts). With `now` a waiting run that is ready and not held is queued."""
    return tolerantly(
        lambda some: [_read_record(unit, row, now) for row in some],
        rows,
        lambda row, why: _bare_record(unit, row, now, why),
    )


def _bare_record(unit: UnitOfWork, row: Row, now: int | None, why: str) -> Record:
    """A row without the columns that hold JSON."""
    bare = tuple(None if place in _JSON else value for place, value in enumerate(row))
    record = _read_record(unit, bare, now)
    return msgspec.structs.replace(record, run=msgspec.structs.replace(record.run, damage=why))


def _read_record(unit: UnitOfWork, row: Row, now: int | None = None) -> Record:
    seq, run_id, number, line, due, ready_at, created_at, group, extra_text, until, payload = row[:11]
    hold, held_member, entrant = row[11:14]
    claim, ended = row[14:22], row[22:]
    extra = read_extra(extra_text)
    kind = unit.names.kind(unit, number)
    queue, node = unit.names.home(unit, line)
    run = Run(
        id=run_id,
        job=kind.job,
        handler=kind.handler,
        due=from_micros(due),
        ready_at=from_micros(ready_at),
        uid=extra.uid,
        revision=extra.revision,
        cause=kind.cause,
        queue=queue,
        priority=priority_of(line),
        payload=payload,
        policy=kind.policy,
        group=group,
        limit=kind.limit,
        when_full=kind.when_full,
        dedupe_key=extra.dedupe_key,
        headers=extra.headers,
        until=instant(until),
        created_at=from_micros(created_at),
        assignable=node is not None,
        assignee=node or None,
        damage=kind.damage,
        start_by=instant(extra.start_by),
        strict=extra.strict,
        **_standing(claim, ended, extra),
    )
    if run.state is State.PENDING:
        ready = now is not None and hold is None and ready_at <= now
        member = bool(held_member) if hold is not None else group is not None and entrant is None
        state = State.QUEUED if ready else State.PENDING
        run = msgspec.structs.replace(run, state=state, hold=hold, member=member)
    elif run.state is State.RUNNING:
        run = msgspec.structs.replace(run, member=group is not None)
    return Record(seq, line, number, run)


def _standing(claim: Row, ended: Row, extra: Extra) -> dict[str, Any]:
    """The fields that change during a run's life."""
    if ended[0] is not None:
        state, finished_at, fence, node, request, started_at, failures, losses, _ = ended[:9]
        reason, progress, failure, result = ended[9:]
        return {
            "state": State(state),
            "finished_at": from_micros(finished_at),
            "fence": fence,
            "node": node,
            "request": request,
            "started_at": instant(started_at),
            "failures": failures,
            "losses": losses,
            "reason": reason,
            "progress": None if progress is None else _progress.decode(progress),
            "failure": None if failure is None else _failure.decode(failure),
            "result": result,
        }
    past = {
        "failures": extra.failures,
        "losses": extra.losses,
        "failure": extra.failure,
        "result": extra.result,
        "reason": extra.reason,
    }
    if claim[0] is not None:
        fence, node, request, started_at, expires_at, cancelling, reason, progress = claim
        return past | {
            "state": State.RUNNING,
            "fence": fence,
            "node": node,
            "request": request,
            "started_at": from_micros(started_at),
            "expires_at": from_micros(expires_at),
            "cancelling": bool(cancelling),
            "reason": reason if cancelling else extra.reason,
            "progress": None if progress is None else _progress.decode(progress),
        }
    return past | {
        "state": State.PENDING,
        "fence": extra.fence,
        "node": extra.node,
        "request": extra.request,
        "started_at": instant(extra.started_at),
        "cancelling": extra.cancelling,
        "progress": extra.progress,
    }


# --- attempts


def attempt_row(seq: int, attempt: Attempt) -> Row:
    return (
        seq,
        attempt.number,
        attempt.fence,
        attempt.node,
        to_micros(attempt.started_at),
        to_micros(attempt.ended_at),
        str(attempt.outcome),
        optional_json(attempt.failure),
    )
