"""Which runs to list, in which order, and the page that a store returns.

`RunQuery.matches` decides whether a run belongs to a listing. A store may use an index to look at fewer runs, but never
to decide differently.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any, Self

import msgspec
from msgspec import Struct

from duly.model.identity import shortens
from duly.model.run import FINAL, WAITING, Cause, Run, State

SCAN = 20_000  # how many runs a listing looks at by default before it returns what it has found
COUNTED = 25_000  # how many waiting runs are counted by default where they have to be counted one by one

_UNREADABLE = object()  # equal to nothing that a query can name


class RunOrder(StrEnum):
    """The order of a listing, and which runs it can contain."""

    CREATED = "created"  # all runs, newest created first
    ENDED = "ended"  # ended runs, latest ended first
    READY = "ready"  # waiting runs, held ones included, earliest ready time first


_LISTED = {RunOrder.CREATED: frozenset(State), RunOrder.ENDED: FINAL, RunOrder.READY: WAITING}


class PathEquals(Struct, frozen=True):
    """A condition on a value inside the payload or the result: `path` begins with "payload" or "result"."""

    path: tuple[str, ...]
    value: str | int | float | bool | None

    @classmethod
    def of(cls, path: str, value: str) -> Self:
        """The condition that a path with dots and a text describe.

        A text that is not a JSON number, truth value, null or string means itself.
        """
        try:
            found = msgspec.json.decode(value, type=str | int | float | bool | None)
        except (msgspec.DecodeError, UnicodeDecodeError):
            found = value
        return cls(tuple(path.split(".")), found)

    def matches(self, run: Run) -> bool:
        """Whether the value at the path is the requested one. A number never equals a string or a boolean."""
        kind, *names = self.path
        found = _decoded(run.payload if kind == "payload" else run.result)
        for name in names:
            found = _inside(found, name)
        return _is_number(found) == _is_number(self.value) and type(found) in _SCALARS and found == self.value


_SCALARS = (str, int, float, bool, type(None))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _decoded(text: bytes | None) -> Any:
    try:
        return _UNREADABLE if text is None else msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _UNREADABLE


def _inside(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return value.get(name, _UNREADABLE)
    if isinstance(value, list) and name.isdecimal() and int(name) < len(value):
        return value[int(name)]
    return _UNREADABLE


class RunQuery(Struct, frozen=True):
    """Which runs to list. Everything given must match, and none of the queries in `none_of`.

    `due_from` and `due_until` compare with the due instant, `ended_from` and `ended_until` with the end of the run.
    `jobs` are names, one of which must match. `error` is part of the type or message of the failure, or of the reason;
    `text` is part of the id, a name, the dedupe key, the error, the payload or the result; both ignore case.
    `min_seconds` is how long the latest attempt took, or has taken so far; `min_late` how long after its ready time the
    run was started, or has been waiting since. `id` is the beginning of an id, `short` a shortened one (`shortens`).
    """

    job: str | None = None
    handler: str | None = None
    queue: str | None = None
    states: tuple[State, ...] = ()
    cause: Cause | None = None
    due_from: datetime | None = None
    due_until: datetime | None = None
    order: RunOrder = RunOrder.CREATED
    jobs: tuple[str, ...] | None = None
    ended_from: datetime | None = None
    ended_until: datetime | None = None
    node: str | None = None
    error: str | None = None
    where: tuple[PathEquals, ...] = ()
    text: str | None = None
    key: str | None = None
    min_seconds: float | None = None
    min_late: float | None = None
    min_attempt: int | None = None
    id: str | None = None
    short: str | None = None
    none_of: tuple[RunQuery, ...] = ()

    @property
    def listed(self) -> frozenset[State]:
        """The states of the runs that this order can list."""
        return _LISTED[self.order]

    @property
    def possible(self) -> frozenset[State]:
        """The states that a run of this listing can have."""
        wanted = frozenset(self.states or State) & _LISTED[self.order]
        return wanted & FINAL if self.ended_from or self.ended_until else wanted

    @property
    def names(self) -> frozenset[str] | None:
        """The jobs whose runs can match; None for all."""
        if self.jobs is None:
            return None if self.job is None else frozenset({self.job})
        return frozenset(self.jobs) if self.job is None else frozenset(self.jobs) & {self.job}

    @property
    def plain(self) -> bool:
        """Whether it asks only for job, handler, queue, states, cause and due time."""
        return not (
            self.ended_from
            or self.ended_until
            or self.node is not None
            or self.error is not None
            or self.where
            or self.text is not None
            or self.key is not None
            or self.min_seconds is not None
            or self.min_late is not None
            or self.min_attempt is not None
            or self.id is not None
            or self.short is not None
            or self.none_of
        )

    def matches(self, run: Run, now: datetime) -> bool:
        """Whether a run matches the query."""
        return (
            (self.job is None or run.job == self.job)
            and (self.jobs is None or run.job in self.jobs)
            and (self.handler is None or run.handler == self.handler)
            and (self.queue is None or run.queue == self.queue)
            and (not self.states or run.state in self.states)
            and (self.order is RunOrder.CREATED or run.state in _LISTED[self.order])
            and (self.cause is None or run.cause is self.cause)
            and (self.due_from is None or run.due >= self.due_from)
            and (self.due_until is None or run.due <= self.due_until)
            and self._matches_details(run, now)
        )

    def _matches_details(self, run: Run, now: datetime) -> bool:
        return (
            (self.ended_from is None or (run.finished_at is not None and run.finished_at >= self.ended_from))
            and (self.ended_until is None or (run.finished_at is not None and run.finished_at <= self.ended_until))
            and (self.node is None or run.node == self.node)
            and (self.key is None or run.dedupe_key == self.key)
            and (self.id is None or run.id.startswith(self.id))
            and (self.short is None or shortens(self.short, run.id))
            and (self.min_attempt is None or run.attempt >= self.min_attempt)
            and (self.min_seconds is None or _at_least(_seconds(run, now), self.min_seconds))
            and (self.min_late is None or _at_least(_lateness(run, now), self.min_late))
            and (self.error is None or _contains(self.error, _error_texts(run)))
            and (self.text is None or _contains(self.text, _all_texts(run)))
            and all(condition.matches(run) for condition in self.where)
            and not any(query.matches(run, now) for query in self.none_of)
        )


class RunFilter(Struct, frozen=True):
    """Which runs: a query, and a tag that the run's job must have. Stores know nothing of tags."""

    query: RunQuery
    tag: str | None = None


class Page(Struct, frozen=True):
    """One page of a listing; `next` continues it, None ends it.

    `reached` is set if the search stopped before the page was full because it had looked at enough runs: how far it
    came, as a time of creation, end or readiness by the order of the query; `searched` is how many it looked at.
    """

    runs: list[Run]
    next: str | None = None
    reached: datetime | None = None
    searched: int = 0


def _at_least(seconds: float | None, least: float) -> bool:
    return seconds is not None and seconds >= least


def _seconds(run: Run, now: datetime) -> float | None:
    if run.started_at is None:
        return None
    end = now if run.state is State.RUNNING else run.finished_at
    return None if end is None else (end - run.started_at).total_seconds()


def _lateness(run: Run, now: datetime) -> float | None:
    if run.state in WAITING:
        return (now - run.ready_at).total_seconds()
    if run.started_at is None or run.state is State.SKIPPED:
        return None
    return (run.started_at - run.ready_at).total_seconds()


def _error_texts(run: Run) -> list[str]:
    failure = [] if run.failure is None else [run.failure.type, run.failure.message]
    return failure if run.reason is None else [*failure, run.reason]


def _all_texts(run: Run) -> list[str]:
    names = [run.id, run.job, run.handler, run.dedupe_key or "", *_error_texts(run)]
    return [*names, *(text.decode(errors="replace") for text in (run.payload, run.result) if text is not None)]


def _contains(part: str, texts: list[str]) -> bool:
    wanted = part.casefold()
    return any(wanted in text.casefold() for text in texts)
