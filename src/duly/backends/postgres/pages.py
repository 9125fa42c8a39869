"""Pages of runs, newest created first. Runs are numbered as they are created, so a page goes on below the last one.

Where few runs can match by their state only those are looked at, and a job's own index knows its runs in order;
otherwise the table is walked from its newest run back until the page is full.
"""

from __future__ import annotations

from typing import Any

from duly.backends.cursors import numbers_in
from duly.backends.postgres.codec import read_records
from duly.backends.postgres.unit_of_work import UnitOfWork
from duly.model import FINAL, WAITING, Page, RunQuery, State, to_micros

_FEW = 50_000

_RUNS = "SELECT {run} FROM {ns}.runs AS r {standing} WHERE "
_NEWEST = " ORDER BY r.seq DESC LIMIT "

# How many runs may be in a state: exactly up to a bound.
_NUMBER = """
SELECT
    CASE WHEN $1 THEN (
        SELECT count(*) FROM (
            (SELECT 1 FROM {ns}.waiting LIMIT $4) UNION ALL (SELECT 1 FROM {ns}.held LIMIT $4)
        ) AS few
    ) ELSE 0 END
    + CASE WHEN $2 THEN (SELECT count(*) FROM (SELECT 1 FROM {ns}.claims LIMIT $4) AS few) ELSE 0 END
    + (SELECT coalesce(sum(kept), 0)::bigint FROM {ns}.totals WHERE state = ANY($3::text[]))
"""

# Which runs those are.
_OF_WAITING = "SELECT seq FROM {ns}.waiting UNION ALL SELECT seq FROM {ns}.held"
_OF_RUNNING = "SELECT seq FROM {ns}.claims"
_OF_ENDED = "SELECT seq FROM {ns}.ended WHERE state = ANY(?::text[])"

_IS_ENDED = "e.state = ANY(?::text[])"
_IS_RUNNING = "c.seq IS NOT NULL"
_IS_QUEUED = "(e.seq IS NULL AND c.seq IS NULL AND h.seq IS NULL AND r.ready_at <= ?::bigint)"
_IS_PENDING = "(e.seq IS NULL AND c.seq IS NULL AND (h.seq IS NOT NULL OR r.ready_at > ?::bigint))"


class _Conditions:
    """Conditions with their parameters; `?` in a text becomes the parameter's number."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.parameters: list[Any] = []

    def numbered(self, text: str, *parameters: Any) -> str:
        for parameter in parameters:
            self.parameters.append(parameter)
            text = text.replace("?", f"${len(self.parameters)}", 1)
        return text

    def add(self, text: str, *parameters: Any) -> None:
        self.texts.append(self.numbered(text, *parameters))


async def page(unit: UnitOfWork, query: RunQuery, limit: int, cursor: str | None, now: int) -> Page:
    """Runs that match; `cursor` is the number of the last run of the page before."""
    conditions = await _conditions(unit, query, cursor, now)
    most = conditions.numbered("?::bigint", limit + 1)
    sql = _RUNS + (" AND ".join(conditions.texts) or "true") + _NEWEST + most
    rows = await unit.all(sql, *conditions.parameters)
    records = read_records(rows[:limit], now)
    more = len(rows) > limit and bool(records)
    return Page([record.run for record in records], str(records[-1].seq) if more else None)


async def _conditions(unit: UnitOfWork, query: RunQuery, cursor: str | None, now: int) -> _Conditions:
    conditions = _Conditions()
    if cursor is not None:
        conditions.add("r.seq < ?::bigint", *numbers_in(cursor, 1))
    if query.job is not None:
        conditions.add("r.job = ?::text", query.job)
    if query.handler is not None:
        conditions.add("r.handler = ?::text", query.handler)
    if query.cause is not None:
        conditions.add("r.cause = ?::text", query.cause.value)
    if query.queue is not None:
        conditions.add("split_part(r.line, '@', 1) = ?::text", query.queue)
    if query.due_from is not None:
        conditions.add("r.due >= ?::bigint", to_micros(query.due_from))
    if query.due_until is not None:
        conditions.add("r.due <= ?::bigint", to_micros(query.due_until))
    if query.states:
        await _of_states(unit, frozenset(query.states), conditions, now)
    return conditions


async def _of_states(unit: UnitOfWork, states: frozenset[State], conditions: _Conditions, now: int) -> None:
    ended = sorted(state.value for state in states & FINAL)
    one_of: list[str] = []
    if ended:
        one_of.append(conditions.numbered(_IS_ENDED, ended))
    if State.RUNNING in states:
        one_of.append(_IS_RUNNING)
    if State.QUEUED in states:
        one_of.append(conditions.numbered(_IS_QUEUED, now))
    if State.PENDING in states:
        one_of.append(conditions.numbered(_IS_PENDING, now))
    conditions.texts.append("(" + " OR ".join(one_of) + ")")
    row = await unit.one(_NUMBER, bool(states & WAITING), State.RUNNING in states, ended, _FEW + 1)
    if row is not None and row[0] <= _FEW:
        narrow: list[str] = []
        if ended:
            narrow.append(conditions.numbered(_OF_ENDED, ended))
        if State.RUNNING in states:
            narrow.append(_OF_RUNNING)
        if states & WAITING:
            narrow.append(_OF_WAITING)
        conditions.texts.append("r.seq IN (" + " UNION ALL ".join(narrow) + ")")
