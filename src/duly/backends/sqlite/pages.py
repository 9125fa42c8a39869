"""Pages of runs, newest created first. Runs are numbered as they are created, so a page goes on below the last one.

Where few runs can match, by their kind or by their state, only those are looked at; otherwise the table is walked from
its newest run back until the page is full.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from duly.backends.cursors import numbers_in
from duly.backends.sqlite.codec import read_records
from duly.backends.sqlite.unit_of_work import Row, UnitOfWork, as_list
from duly.model import FINAL, WAITING, Page, RunQuery, State, to_micros

_FEW = 50_000
_FEW_KINDS = 20

_RUNS = "SELECT {run} FROM {ns}_runs AS r {standing} WHERE "
_NEWEST = " ORDER BY r.seq DESC LIMIT ?"

_KINDS = "SELECT number, handler, cause FROM {ns}_kinds"
_KINDS_OF_JOB = "SELECT number, handler, cause FROM {ns}_kinds WHERE job = ?"

# How many runs may be in a state: exactly up to a bound.
_SOME_WAITING = """
SELECT count(*) FROM (
    SELECT 1 FROM {ns}_waiting UNION ALL SELECT 1 FROM {ns}_entrants UNION ALL SELECT 1 FROM {ns}_held LIMIT ?
)
"""
_SOME_RUNNING = "SELECT count(*) FROM (SELECT 1 FROM {ns}_claims LIMIT ?)"
_SOME_ENDED = "SELECT coalesce(sum(kept), 0) FROM {ns}_totals WHERE state IN (SELECT value FROM json_each(?))"

# Which runs those are.
_OF_WAITING = """r.seq IN (
    SELECT seq FROM {ns}_waiting UNION ALL SELECT seq FROM {ns}_entrants UNION ALL SELECT seq FROM {ns}_held
)"""
_OF_RUNNING = "r.seq IN (SELECT seq FROM {ns}_claims)"
_OF_ENDED = "r.seq IN (SELECT seq FROM {ns}_ended WHERE state IN (SELECT value FROM json_each(?)))"

_IS_ENDED = "e.state IN (SELECT value FROM json_each(?))"
_IS_RUNNING = "c.seq IS NOT NULL"
_IS_QUEUED = "(e.seq IS NULL AND c.seq IS NULL AND h.seq IS NULL AND r.ready_at <= ?)"
_IS_PENDING = "(e.seq IS NULL AND c.seq IS NULL AND (h.seq IS NOT NULL OR r.ready_at > ?))"


class _Conditions:
    """Conditions with their parameters."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self.parameters: list[Any] = []

    def add(self, text: str, *parameters: Any) -> None:
        self._texts.append(text)
        self.parameters += parameters

    def all(self) -> str:
        return " AND ".join(self._texts) or "true"

    def any(self) -> str:
        return "(" + " OR ".join(self._texts) + ")"


def page(unit: UnitOfWork, query: RunQuery, limit: int, cursor: str | None, now: int) -> Page:
    """Runs that match; `cursor` is the number of the last run of the page before."""
    conditions = _conditions(unit, query, cursor, now)
    kinds = _kinds(unit, query)
    if kinds is not None and len(kinds) <= _FEW_KINDS:
        rows = _of_kinds(unit, kinds, conditions, limit + 1)
    else:
        if kinds is not None:
            conditions.add("r.kind IN (SELECT value FROM json_each(?))", as_list(kinds))
        rows = _newest(unit, conditions, limit + 1)
    records = read_records(unit, rows[:limit], now)
    more = len(rows) > limit and bool(records)
    return Page([record.run for record in records], str(records[-1].seq) if more else None)


def _newest(unit: UnitOfWork, conditions: _Conditions, limit: int) -> list[Row]:
    return unit.all(_RUNS + conditions.all() + _NEWEST, *conditions.parameters, limit)


def _of_kinds(unit: UnitOfWork, kinds: Sequence[int], conditions: _Conditions, limit: int) -> list[Row]:
    """The newest of each kind, put together: a kind's own index knows their order."""
    sql = _RUNS + "r.kind = ? AND " + conditions.all() + _NEWEST
    found = chain.from_iterable(unit.all(sql, kind, *conditions.parameters, limit) for kind in kinds)
    return sorted(found, key=lambda row: int(row[0]), reverse=True)[:limit]


def _kinds(unit: UnitOfWork, query: RunQuery) -> list[int] | None:
    """The kinds that match what a query says about job, handler and cause; None when it says nothing."""
    if query.job is not None:
        rows = unit.all(_KINDS_OF_JOB, query.job)
    elif query.handler is not None or query.cause is not None:
        rows = unit.all(_KINDS)
    else:
        return None
    return [
        number
        for number, handler, cause in rows
        if (query.handler is None or handler == query.handler) and (query.cause is None or cause == query.cause)
    ]


def _conditions(unit: UnitOfWork, query: RunQuery, cursor: str | None, now: int) -> _Conditions:
    conditions = _Conditions()
    if cursor is not None:
        conditions.add("r.seq < ?", *numbers_in(cursor, 1))
    if query.queue is not None:
        numbers = as_list(unit.names.queues_of(unit, query.queue))
        conditions.add("r.line / 1000 IN (SELECT value FROM json_each(?))", numbers)
    if query.due_from is not None:
        conditions.add("r.due >= ?", to_micros(query.due_from))
    if query.due_until is not None:
        conditions.add("r.due <= ?", to_micros(query.due_until))
    if query.states:
        _of_states(unit, frozenset(query.states), conditions, now)
    return conditions


def _of_states(unit: UnitOfWork, states: frozenset[State], conditions: _Conditions, now: int) -> None:
    ended = as_list(state.value for state in states & FINAL)
    one_of = _Conditions()
    if states & FINAL:
        one_of.add(_IS_ENDED, ended)
    if State.RUNNING in states:
        one_of.add(_IS_RUNNING)
    if State.QUEUED in states:
        one_of.add(_IS_QUEUED, now)
    if State.PENDING in states:
        one_of.add(_IS_PENDING, now)
    conditions.add(one_of.any(), *one_of.parameters)
    if _number(unit, states, ended) <= _FEW:
        narrow = _Conditions()
        if states & FINAL:
            narrow.add(_OF_ENDED, ended)
        if State.RUNNING in states:
            narrow.add(_OF_RUNNING)
        if states & WAITING:
            narrow.add(_OF_WAITING)
        conditions.add(narrow.any(), *narrow.parameters)


def _number(unit: UnitOfWork, states: frozenset[State], ended: str) -> int:
    """How many runs may be in one of these states; more than few need not be exact."""
    counts = [unit.one(_SOME_ENDED, ended) if states & FINAL else None]
    counts.append(unit.one(_SOME_RUNNING, _FEW + 1) if State.RUNNING in states else None)
    counts.append(unit.one(_SOME_WAITING, _FEW + 1) if states & WAITING else None)
    return sum(row[0] for row in counts if row is not None)
