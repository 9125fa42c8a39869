"""Pages of a listing: which index leads to the candidates, and which of them match.

Keys of candidates come from one index in the order of the listing; their records are read in slices, narrowed by what a
statement can decide; `RunQuery.matches` has the last word (`backends.search`). In the order of creation the index is
that of the job, else of the states if few runs have one of them, else the number of each run. In the order of their
ends it is the index of ended runs, in the order of ready times that of waiting ones; a job that has few runs is read
and sorted instead.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any

from duly.backends.cursors import cursor_of, numbers_in, place_in
from duly.backends.search import Keys, Streams, Wanted, search
from duly.backends.sql.moves import read_records
from duly.backends.sql.unit import EVERYTHING, Conditions, Unit
from duly.model import FINAL, WAITING, Page, Run, RunOrder, RunQuery, State, from_micros, to_micros

_FEW = 2_000  # sorted as a whole
_SOME = 5_000  # numbers, sorted as a whole
_LAST = "\U0010ffff"  # sorts after all that an id can have

_READ = "SELECT {run} FROM {ns}.runs AS r {standing} WHERE r.seq = ANY($1::bigint[])"
_CREATED_AT = "SELECT created_at FROM {ns}.runs WHERE seq = $1"
_NEWEST = "SELECT r.seq FROM {ns}.runs AS r WHERE r.seq < $1::bigint"
# By number: `|| ''` keeps the planner from using the index of states, whose rows would have to be sorted.
_NEWEST_ENDED = """
SELECT seq FROM {ns}.ended WHERE seq < $1::bigint AND state || '' = ANY($2::text[]) ORDER BY seq DESC LIMIT $3
"""
_ENDED = """
SELECT finished_at, seq FROM {ns}.ended
WHERE state = $1 AND (finished_at < $2::bigint OR (finished_at = $2::bigint AND seq < $3::bigint))
    AND finished_at <= $2::bigint AND finished_at >= $5::bigint
ORDER BY finished_at DESC, seq DESC LIMIT $4
"""
# How many runs may be in a state: exactly up to a bound.
_NUMBER = """
SELECT
    CASE WHEN $1 THEN (SELECT count(*) FROM (SELECT 1 FROM {all_waiting} LIMIT $4) AS few) ELSE 0 END
    + CASE WHEN $2 THEN (SELECT count(*) FROM (SELECT 1 FROM {ns}.claims LIMIT $4) AS few) ELSE 0 END
    + (SELECT coalesce(sum(kept), 0)::bigint FROM {ns}.totals WHERE state = ANY($3::text[]))
"""
# Which runs those are, and those whose ids begin alike.
_OF_WAITING = "SELECT seq FROM {all_waiting}"
_OF_RUNNING = "SELECT seq FROM {ns}.claims"
_OF_ENDED = "SELECT seq FROM {ns}.ended WHERE state = ANY($1::text[])"
_OF_PREFIX = "SELECT seq FROM {ns}.runs WHERE id >= $1 AND id < $2 LIMIT $3"

_IS_ENDED = "e.state = ANY(?::text[])"
_IS_RUNNING = "c.seq IS NOT NULL"
_IS_QUEUED = "(e.seq IS NULL AND c.seq IS NULL AND h.seq IS NULL AND r.ready_at <= ?::bigint)"
_IS_PENDING = "(e.seq IS NULL AND c.seq IS NULL AND (h.seq IS NOT NULL OR r.ready_at > ?::bigint))"

_Created = tuple[int]  # the number, negative: the newest first
_Ended = tuple[int, int]  # end and number, negative
_Ready = tuple[int, str, int]  # ready time, id, number


async def page(unit: Unit, query: RunQuery, limit: int, cursor: str | None, scan: int, now: int) -> Page:
    """Runs that match; `cursor` is the place of the last run of the page before."""
    wanted = Wanted(query, limit, scan, now)
    match query.order:
        case RunOrder.ENDED:
            return await _ended_page(unit, wanted, cursor)
        case RunOrder.READY:
            return await _ready_page(unit, wanted, cursor)
        case _:
            return await _created_page(unit, wanted, cursor)


# --- in the order of creation


async def _created_page(unit: Unit, wanted: Wanted, cursor: str | None) -> Page:
    after = None if cursor is None else (-numbers_in(cursor, 1)[0],)
    read = await _reader(unit, wanted)

    async def found(keys: list[_Created]) -> dict[_Created, Run]:
        return {(-seq,): run for seq, run in (await read([-key[0] for key in keys])).items()}

    async def reached(key: _Created) -> datetime | None:
        row = await unit.one(_CREATED_AT, -key[0])
        return None if row is None else from_micros(row[0])

    streams = Streams(await _created_streams(unit, wanted), after)
    return await search(streams, found, wanted, lambda key: cursor_of(-key[0]), reached)


async def _created_streams(unit: Unit, wanted: Wanted) -> list[Keys[_Created]]:
    query = wanted.query
    listed = await _of_prefix(unit, query)
    if listed is None:
        number = await _number(unit, query)
        of_jobs = await unit.dialect.of_jobs(unit, query)
        if number <= _FEW or (of_jobs is None and number <= _SOME):
            listed = await _of_states(unit, query)
        elif of_jobs is not None:
            return [_by_number(unit, conditions) for conditions in of_jobs]
        elif query.possible <= FINAL:
            return [_by_ended_number(unit, _values(query.possible))]
    return [_by_number(unit, []) if listed is None else _from_list(sorted((-seq,) for seq in listed))]


def _by_number(unit: Unit, conditions: Conditions) -> Keys[_Created]:
    sql, parameters = _numbered(_NEWEST, conditions, 1)
    sql += f" ORDER BY r.seq DESC LIMIT ${len(parameters) + 2}"

    async def keys(after: _Created | None, limit: int) -> list[_Created]:
        below = EVERYTHING if after is None else -after[0]
        return [(-row[0],) for row in await unit.all(sql, below, *parameters, limit)]

    return keys


def _by_ended_number(unit: Unit, states: list[str]) -> Keys[_Created]:
    """Ended runs in the order of their creation: passes over what waits."""

    async def keys(after: _Created | None, limit: int) -> list[_Created]:
        below = EVERYTHING if after is None else -after[0]
        return [(-row[0],) for row in await unit.all(_NEWEST_ENDED, below, states, limit)]

    return keys


def _from_list(listed: Sequence[Any]) -> Keys[Any]:
    async def keys(after: Any, limit: int) -> Sequence[Any]:
        left = listed if after is None else [key for key in listed if key > after]
        return left[:limit]

    return keys


async def _of_prefix(unit: Unit, query: RunQuery) -> list[int] | None:
    """The numbers of the runs whose ids begin as asked for; None if nothing is asked for, or they are many."""
    if query.id is None:
        return None
    rows = await unit.all(_OF_PREFIX, query.id, query.id + _LAST, _FEW + 1)
    return [row[0] for row in rows] if len(rows) <= _FEW else None


async def _number(unit: Unit, query: RunQuery) -> int:
    """How many runs may be in one of the possible states."""
    states = query.possible
    if states == frozenset(State):
        return EVERYTHING
    row = await unit.one(_NUMBER, bool(states & WAITING), State.RUNNING in states, _values(states & FINAL), _SOME + 1)
    assert row is not None
    return int(row[0])


async def _of_states(unit: Unit, query: RunQuery) -> list[int]:
    states, rows = query.possible, []
    if states & FINAL:
        rows += await unit.all(_OF_ENDED, _values(states & FINAL))
    if State.RUNNING in states:
        rows += await unit.all(_OF_RUNNING)
    if states & WAITING:
        rows += await unit.all(_OF_WAITING)
    return [row[0] for row in rows]


def _values(states: frozenset[State]) -> list[str]:
    return sorted(state.value for state in states)


# --- in the order of their ends


async def _ended_page(unit: Unit, wanted: Wanted, cursor: str | None) -> Page:
    after: _Ended | None = None
    if cursor is not None:
        end, number = numbers_in(cursor, 2)
        after = (-end, -number)
    query, read = wanted.query, await _reader(unit, wanted)

    async def found(keys: list[_Ended]) -> dict[_Ended, Run]:
        runs = await read([-key[1] for key in keys])
        return {key: run for key in keys if (run := runs.get(-key[1])) is not None and _ended(run) == -key[0]}

    async def reached(key: _Ended) -> datetime | None:
        return from_micros(-key[0])

    few = await _few_of_jobs(unit, wanted, read, lambda seq, run: (-(_ended(run) or 0), -seq))
    streams = [_by_end(unit, state, query) for state in _values(query.possible)] if few is None else [_from_list(few)]
    return await search(Streams(streams, after), found, wanted, lambda key: cursor_of(-key[0], -key[1]), reached)


def _ended(run: Run) -> int | None:
    return None if run.finished_at is None else to_micros(run.finished_at)


def _by_end(unit: Unit, state: str, query: RunQuery) -> Keys[_Ended]:
    latest = EVERYTHING if query.ended_until is None else to_micros(query.ended_until)
    earliest = -EVERYTHING if query.ended_from is None else to_micros(query.ended_from)

    async def keys(after: _Ended | None, limit: int) -> list[_Ended]:
        end, number = (latest, EVERYTHING) if after is None or -after[0] > latest else (-after[0], -after[1])
        return [(-row[0], -row[1]) for row in await unit.all(_ENDED, state, end, number, limit, earliest)]

    return keys


# --- in the order of ready times


async def _ready_page(unit: Unit, wanted: Wanted, cursor: str | None) -> Page:
    after: _Ready | None = None if cursor is None else (*place_in(cursor), EVERYTHING)
    read = await _reader(unit, wanted)

    async def found(keys: list[_Ready]) -> dict[_Ready, Run]:
        runs = await read([key[2] for key in keys])
        return {key: run for key in keys if (run := runs.get(key[2])) is not None and to_micros(run.ready_at) == key[0]}

    async def reached(key: _Ready) -> datetime | None:
        return from_micros(key[0])

    async def keys(last: _Ready | None, limit: int) -> list[_Ready]:
        ready_at, run_id, _ = last or (-EVERYTHING, "", 0)
        return [(*row,) for row in await unit.dialect.by_ready_time(unit, wanted.query.queue, ready_at, run_id, limit)]

    few = await _few_of_jobs(unit, wanted, read, lambda seq, run: (to_micros(run.ready_at), run.id, seq))
    streams = Streams([keys if few is None else _from_list(few)], after)
    return await search(streams, found, wanted, lambda key: cursor_of(key[0], key[1]), reached)


# --- reading


_Read = Callable[[list[int]], Awaitable[dict[int, Run]]]


async def _few_of_jobs(
    unit: Unit, wanted: Wanted, read: _Read, key: Callable[[int, Run], Any]
) -> list[tuple[Any, ...]] | None:
    """The keys of all runs of the jobs asked for that may match, in order; None if there are many, or of all jobs."""
    of_jobs = await unit.dialect.of_jobs(unit, wanted.query)
    if of_jobs is None:
        return None
    seqs: list[int] = []
    for conditions in of_jobs:
        seqs += [-each[0] for each in await _by_number(unit, conditions)(None, _FEW + 1 - len(seqs))]
        if len(seqs) > _FEW:
            return None
    return sorted(key(seq, run) for seq, run in (await read(seqs)).items())


async def _reader(unit: Unit, wanted: Wanted) -> _Read:
    """Reads runs by number, except for those that a statement can exclude."""
    sql, parameters = _numbered(_READ, [*await unit.dialect.matching(unit, wanted.query), *_conditions(wanted)], 1)

    async def read(seqs: list[int]) -> dict[int, Run]:
        rows = await unit.all(sql, seqs, *parameters)
        return {record.seq: record.run for record in read_records(rows, wanted.now)}

    return read


def _conditions(wanted: Wanted) -> Conditions:
    query, found = wanted.query, Conditions()
    if query.due_from is not None:
        found.append(("r.due >= ?::bigint", (to_micros(query.due_from),)))
    if query.due_until is not None:
        found.append(("r.due <= ?::bigint", (to_micros(query.due_until),)))
    if query.node is not None:
        found.append(("coalesce(c.node, e.node, ?::text) = ?::text", (query.node, query.node)))
    if query.possible != frozenset(State):
        found.append(_states(query.possible, wanted.now))
    return found


def _states(states: frozenset[State], now: int) -> tuple[str, tuple[Any, ...]]:
    """A condition for the runs in these states."""
    one_of: Conditions = [
        *([(_IS_ENDED, (_values(states & FINAL),))] if states & FINAL else []),
        *([(_IS_RUNNING, ())] if State.RUNNING in states else []),
        *([(_IS_QUEUED, (now,))] if State.QUEUED in states else []),
        *([(_IS_PENDING, (now,))] if State.PENDING in states else []),
    ]
    texts = " OR ".join(text for text, _ in one_of) or "1 = 0"
    return f"({texts})", tuple(parameter for _, parameters in one_of for parameter in parameters)


def _numbered(sql: str, conditions: Conditions, before: int) -> tuple[str, list[Any]]:
    """The statement with these conditions, and their parameters; each `?` becomes the number of its parameter."""
    given: list[Any] = []
    for text, parameters in conditions:
        sql += f" AND {text}"
        for parameter in parameters:
            given.append(parameter)
            sql = sql.replace("?", f"${before + len(given)}", 1)
    return sql, given
