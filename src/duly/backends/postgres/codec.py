"""Between rows and structs. The order of columns is that of `{run}` in texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from duly.backends.postgres.unit_of_work import Row
from duly.backends.rows import instant, micros, to_json
from duly.backends.tolerance import UNREADABLE, tolerantly
from duly.model import (
    Cause,
    Failure,
    Progress,
    Run,
    RunPolicy,
    State,
    WhenFull,
    from_micros,
)

MIDDLE = 500  # urgency = MIDDLE - priority: the smaller, the more urgent
SCHEDULED = 400  # the ranks of runs of schedules are less by this: such runs wait in lines of their own
_JSON = frozenset({11, 12, 24, 25, 32})  # policy, extra, reason and progress of a claim, story

_MOST_POLICIES = 10_000
_CAUSES = {cause.value: cause for cause in Cause}
_DEFAULT_POLICY = RunPolicy()

_failure = msgspec.json.Decoder(Failure)
_policy = msgspec.json.Decoder(RunPolicy)
_text = msgspec.json.Decoder(str)
_progress = msgspec.json.Decoder(Progress)


class Extra(Struct, omit_defaults=True):
    """What few runs have: identity, headers and key, and what earlier attempts left behind."""

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


class Story(Struct, omit_defaults=True):
    """What a success at the first try has not."""

    failures: int = 0
    losses: int = 0
    reason: str | None = None
    progress: Progress | None = None
    failure: Failure | None = None


NOTHING = Extra()
_NO_STORY = Story()
_extra = msgspec.json.Decoder(Extra)
_story = msgspec.json.Decoder(Story)
_policies: dict[str, RunPolicy] = {}


# --- parts


def extra_of(run: Run) -> str | None:
    """A run's extras as text; None when it has none."""
    early = Extra(run.uid, run.revision, run.limit, run.when_full, run.dedupe_key, run.headers)
    early.start_by, early.strict = micros(run.start_by), run.strict
    if run.fence or run.node is not None or run.reason is not None or run.failures or run.losses:
        early.failures = run.failures
        early.losses = run.losses
        early.fence = run.fence
        early.node = run.node
        early.request = run.request
        early.started_at = micros(run.started_at)
        early.reason = run.reason
        early.cancelling = run.cancelling
        early.progress = run.progress
        early.result = run.result
        early.failure = run.failure
    text = to_json(early)
    return None if text == "{}" else text


def read_extra(text: str | None) -> Extra:
    return NOTHING if text is None else _extra.decode(text)


def read_entry(text: str | None) -> tuple[int, WhenFull, int | None]:
    """How many of its group may run at a time, what happens otherwise, and until when it may start.

    The defaults where that cannot be read.
    """
    try:
        extra = read_extra(text)
    except UNREADABLE:
        extra = NOTHING
    return extra.limit, extra.when_full, extra.start_by


def story_of(run: Run, reason: str | None) -> str | None:
    """How a run ended, as far as it was no success at the first try; None when it was."""
    text = to_json(Story(run.failures, run.losses, reason, run.progress, run.failure))
    return None if text == "{}" else text


def policy_of(policy: RunPolicy) -> str | None:
    """A policy as text; None for the default."""
    return None if policy == _DEFAULT_POLICY else to_json(policy)


def read_policy(text: str | None) -> RunPolicy:
    """A policy from its text: one and the same object for equal texts."""
    if text is None:
        return _DEFAULT_POLICY
    policy = _policies.get(text)
    if policy is None:
        if len(_policies) >= _MOST_POLICIES:
            _policies.clear()
        policy = _policies[text] = _policy.decode(text)
    return policy


# --- lines: "queue" is for anybody, "queue@node" for that node, "queue@" for one that is yet to be told


def queue_of(line: str) -> str:
    """The queue that a line belongs to."""
    return line.partition("@")[0]


def line_of(run: Run) -> str:
    """The line of a run."""
    return f"{run.queue}@{run.assignee or ''}" if run.assignable else run.queue


# --- ranks: the urgency, in a line of its own for runs of schedules, so that both kinds can have their share of a claim


def rank_of(run: Run) -> int:
    """The rank of a new run."""
    return MIDDLE - run.priority - (SCHEDULED if run.cause is Cause.SCHEDULE else 0)


def urgency_of(rank: int) -> int:
    """How urgent runs of a rank are: the smaller, the more."""
    return rank + SCHEDULED if rank < SCHEDULED else rank


# --- whole runs


class Record(Struct, frozen=True):
    """A run as it stands, with what the tables know it by."""

    seq: int
    line: str
    rank: int
    run: Run

    @property
    def entrant(self) -> bool:
        """Whether it waits to enter its group, or would if it were not held."""
        return self.run.group is not None and not self.run.member


def read_records(rows: Sequence[Row], now: int | None = None) -> list[Record]:
    """Runs from rows of `{run}`. With `now` a waiting run that is ready and not held is queued."""
    return tolerantly(
        lambda some: [_read_record(row, now) for row in some], rows, lambda row, why: _bare_record(row, now, why)
    )


def _bare_record(row: Row, now: int | None, why: str) -> Record:
    """A row without the columns that hold JSON."""
    bare = tuple(None if place in _JSON else value for place, value in enumerate(row))
    record = _read_record(bare, now)
    return replace(record, run=replace(record.run, damage=why))


def _read_record(row: Row, now: int | None = None) -> Record:
    extra = read_extra(row[12])
    seq, line, ready_at, group, entering, hold = row[0], row[4], row[8], row[10], row[15], row[16]
    standing = _standing(row, extra)
    state = standing["state"]
    if state is State.PENDING:
        standing["hold"] = hold
        standing["member"] = group is not None and (not entering if hold is None else row[17])
        if now is not None and hold is None and ready_at <= now:
            standing["state"] = State.QUEUED
    elif state is State.RUNNING:
        standing["member"] = group is not None
    return Record(seq, line, row[5], _run(row, extra, standing))


def _run(row: Row, extra: Extra, standing: dict[str, Any]) -> Run:
    return Run(
        id=row[1],
        job=row[2],
        handler=row[3],
        due=from_micros(row[7]),
        ready_at=from_micros(row[8]),
        uid=extra.uid,
        revision=extra.revision,
        cause=_CAUSES[row[6]],
        queue=queue_of(row[4]),
        priority=MIDDLE - urgency_of(row[5]),
        payload=row[13],
        policy=read_policy(row[11]),
        group=row[10],
        limit=extra.limit,
        when_full=extra.when_full,
        dedupe_key=extra.dedupe_key,
        headers=extra.headers,
        until=instant(row[14]),
        created_at=from_micros(row[9]),
        assignable="@" in row[4],
        assignee=row[4].partition("@")[2] or None,
        start_by=instant(extra.start_by),
        strict=extra.strict,
        **standing,
    )


def _standing(row: Row, extra: Extra) -> dict[str, Any]:
    """The fields that change during a run's life."""
    if row[26] is not None:
        return _ended(row)
    past: dict[str, Any] = {
        "failures": extra.failures,
        "losses": extra.losses,
        "failure": extra.failure,
        "result": extra.result,
        "reason": extra.reason,
    }
    if row[18] is not None:
        return past | _claimed(row, extra)
    return past | {
        "state": State.PENDING,
        "fence": extra.fence,
        "node": extra.node,
        "request": extra.request,
        "started_at": instant(extra.started_at),
        "cancelling": extra.cancelling,
        "progress": extra.progress,
    }


def _claimed(row: Row, extra: Extra) -> dict[str, Any]:
    fence, node, request, started_at, expires_at, cancelling, reason, progress = row[18:26]
    return {
        "state": State.RUNNING,
        "fence": fence,
        "node": node,
        "request": request,
        "started_at": from_micros(started_at),
        "expires_at": from_micros(expires_at),
        "cancelling": cancelling,
        "reason": (None if reason is None else _text.decode(reason)) if cancelling else extra.reason,
        "progress": None if progress is None else _progress.decode(progress),
    }


def _ended(row: Row) -> dict[str, Any]:
    state, finished_at, fence, node, request, started_at, text, result = row[26:34]
    story = _NO_STORY if text is None else _story.decode(text)
    return {
        "state": State(state),
        "finished_at": from_micros(finished_at),
        "fence": fence,
        "node": node,
        "request": request,
        "started_at": instant(started_at),
        "failures": story.failures,
        "losses": story.losses,
        "reason": story.reason,
        "progress": story.progress,
        "failure": story.failure,
        "result": result,
    }
