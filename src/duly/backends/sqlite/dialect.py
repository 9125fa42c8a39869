"""What SQLite does its own way beyond the syntax of statements: adding, dedupe keys, searching by number, leases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from msgspec import Struct

from duly.backends.codec import MIDDLE, Record, duration, extra_of, line_of, micros, rank_of, stored_cause, urgency_of
from duly.backends.sql.moves import place_odd
from duly.backends.sql.notify import WORK
from duly.backends.sql.unit import Conditions, Row
from duly.backends.sqlite.claiming import earliest_later, survey
from duly.backends.sqlite.interning import SPAN
from duly.backends.sqlite.unit import SqliteUnit, as_list
from duly.model import WAITING, Put, Run, RunQuery, from_micros, to_micros
from duly.model.holds import UNPLACED
from duly.rules.placement import placing_order

_FEW_KINDS = 20
_KINDS = "SELECT number, handler, cause FROM {ns}.kinds"
_KINDS_OF_JOBS = "SELECT number, handler, cause FROM {ns}.kinds WHERE job IN (SELECT value FROM json_each(?))"

_SOONEST = "SELECT ready_at, id, seq FROM {ns}.waiting WHERE line = ? ORDER BY ready_at, id LIMIT ?"
_SOONEST_TO_ENTER = "SELECT ready_at, id, seq FROM {ns}.entrants WHERE line = ? ORDER BY ready_at, id LIMIT ?"
# Scan all waiting runs: an index by kind would slow down every claim for a rare question.
_SOONEST_OF_JOB = """
SELECT ready_at, id, seq FROM (
    SELECT ready_at, id, seq, kind FROM {ns}.waiting
    UNION ALL
    SELECT ready_at, id, seq, kind FROM {ns}.entrants
    UNION ALL
    SELECT ready_at, id, seq, kind FROM {ns}.held WHERE hold = ?3
)
WHERE kind IN (SELECT number FROM {ns}.kinds WHERE job = ?1)
ORDER BY ready_at, id
LIMIT ?2
"""

# What comes after a ready time and an id.
_WAITING_AFTER = """
SELECT ready_at, id, seq FROM {ns}.waiting WHERE line = ? AND (ready_at, id) > (?, ?) ORDER BY ready_at, id LIMIT ?
"""
_ENTRANTS_AFTER = _WAITING_AFTER.replace("waiting", "entrants")
_HELD_AFTER = "SELECT ready_at, id, seq FROM {ns}.held WHERE (ready_at, id) > (?, ?) ORDER BY ready_at, id LIMIT ?"

# The ranks among the runs under a hold, found by a loose index scan.
_RANKS = """
WITH RECURSIVE ranks (rank) AS (
    SELECT min(rank) FROM {ns}.held WHERE hold = ?1
    UNION ALL
    SELECT (SELECT min(rank) FROM {ns}.held WHERE hold = ?1 AND rank > ranks.rank)
    FROM ranks WHERE ranks.rank IS NOT NULL
)
SELECT rank FROM ranks WHERE rank IS NOT NULL
"""
_OF_RANK = "SELECT ready_at, id, seq FROM {ns}.held WHERE hold = ? AND rank = ? "
_FIRST_OF_RANK = _OF_RANK + "ORDER BY ready_at, id LIMIT ?"
_DUE_OF_RANK = _OF_RANK + "AND ready_at <= ? AND (ready_at, id) > (?, ?) ORDER BY ready_at, id LIMIT ?"
_LATER_OF_RANK = _OF_RANK + "AND ready_at > ? AND (ready_at, id) > (?, ?) ORDER BY ready_at, id LIMIT ?"

_LEASE = "SELECT holder, fence, expires_at FROM {ns}.leases WHERE name = ?"
_SET_LEASE = """
INSERT INTO {ns}.leases (name, holder, fence, expires_at) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (name) DO UPDATE SET holder = ?2, fence = ?3, expires_at = ?4
"""


class SqliteDialect:
    """One instance for all: it has no state."""

    async def add(self, unit: SqliteUnit, runs: Sequence[Run], now: int) -> list[Put]:
        return await add(unit, runs, now)

    async def take_keys(self, unit: SqliteUnit, runs: Sequence[tuple[int, Run]], now: int) -> set[int]:
        return take_keys(unit, runs, now)

    def reason(self, text: str | None) -> str | None:
        return text

    async def know_line(self, unit: SqliteUnit, line: str) -> None:
        unit.names.number_of(unit, line)

    # --- searching

    async def soonest(self, unit: SqliteUnit, limit: int, job: str | None, now: int) -> list[int]:
        rows = _soonest(unit, limit, now) if job is None else unit.select(_SOONEST_OF_JOB, job, limit, UNPLACED)
        return [seq for _, _, seq in sorted(rows)[:limit]]

    async def first_held(self, unit: SqliteUnit, key: str, limit: int, after: Run | None, now: int) -> list[int]:
        return [seq for _, seq in sorted(_held_in_order(unit, key, limit, after, now))[:limit]]

    async def matching(self, unit: SqliteUnit, query: RunQuery) -> Conditions:
        found: Conditions = []
        if query.queue is not None:
            found.append(("r.line / 1000 = ANY(?::int[])", (unit.names.queues_of(unit, query.queue),)))
        if (kinds := _kinds(unit, query)) is not None:
            found.append(("r.kind = ANY(?::int[])", (kinds,)))
        return found

    async def of_jobs(self, unit: SqliteUnit, query: RunQuery) -> list[Conditions] | None:
        """The newest of few kinds are found by the index of kinds, which knows their order; for many, among all."""
        kinds = _kinds(unit, query)
        if kinds is None or len(kinds) > _FEW_KINDS:
            return None
        return [[("r.kind = ?", (kind,))] for kind in kinds]

    async def by_ready_time(
        self, unit: SqliteUnit, queue: str | None, ready_at: int, run_id: str, limit: int
    ) -> list[Row]:
        numbers = None if queue is None else unit.names.queues_of(unit, queue)
        rows = list(unit.select(_HELD_AFTER, ready_at, run_id, limit))
        for place in survey(unit, 0):
            if numbers is None or place.number // SPAN in numbers:
                after = _ENTRANTS_AFTER if place.entering else _WAITING_AFTER
                rows += unit.select(after, place.number, ready_at, run_id, limit)
        return sorted(rows)[:limit]

    # --- leases

    async def acquire(self, unit: SqliteUnit, name: str, holder: str, ttl: int, now: datetime | None) -> Row | None:
        at = unit.micros(now)
        present = unit.select_one(_LEASE, name)
        held = present is not None and present[0] != "" and present[2] > at
        if present is not None and held and present[0] != holder:
            return None
        fence = present[1] if present is not None and held else unit.fences(1)
        unit.execute(_SET_LEASE, name, holder, fence, at + ttl)
        return fence, at + ttl


DIALECT = SqliteDialect()


def _kinds(unit: SqliteUnit, query: RunQuery) -> list[int] | None:
    """The kinds that match what a query says about jobs, handler and cause; None when it says nothing."""
    names = query.names
    if names is None and query.handler is None and query.cause is None:
        return None
    rows = unit.select(_KINDS) if names is None else unit.select(_KINDS_OF_JOBS, as_list(names))
    return [
        number
        for number, handler, cause in rows
        if (query.handler is None or handler == query.handler)
        and (query.cause is None or cause == stored_cause(query.cause))
    ]


def _soonest(unit: SqliteUnit, limit: int, now: int) -> Iterator[Row]:
    for place in survey(unit, now):
        yield from unit.select(_SOONEST_TO_ENTER if place.entering else _SOONEST, place.number, limit)
    for (rank,) in unit.select(_RANKS, UNPLACED):
        yield from unit.select(_FIRST_OF_RANK, UNPLACED, rank, limit)


def _held_in_order(
    unit: SqliteUnit, key: str, limit: int, after: Run | None, now: int
) -> Iterator[tuple[tuple[bool, int, int, str], int]]:
    """At least the first of those runs, with their sort keys."""
    start = (0, "") if after is None else (to_micros(after.ready_at), after.id)
    due = after is None or start[0] <= now
    for (rank,) in unit.select(_RANKS, key):
        priority = MIDDLE - urgency_of(rank)
        if due and (after is None or priority <= after.priority):
            first = start if after is not None and priority == after.priority else (0, "")
            for ready_at, run_id, seq in unit.select(_DUE_OF_RANK, key, rank, now, *first, limit):
                yield placing_order(ready_at, priority, run_id, now), seq
        later = (now, "") if due else start
        for ready_at, run_id, seq in unit.select(_LATER_OF_RANK, key, rank, now, *later, limit):
            yield placing_order(ready_at, priority, run_id, now), seq


_LAST = "SELECT coalesce(max(seq), 0) FROM {ns}.runs"

# Add plain runs whose id is new. ?1 is now.
_ADD_PLAIN = """
INSERT INTO {ns}.runs (seq, id, kind, line, due, ready_at, payload, created_at)
VALUES {rows:(?, ?, ?, ?, ?, ?, ?, ?1)}
ON CONFLICT (id) DO NOTHING
"""

# The same for runs with a group or extras. Neither is ever an empty text, so '' means none: NULL is slow to bind.
_ADD_RICH = """
INSERT INTO {ns}.runs (seq, id, kind, line, due, ready_at, payload, "group", extra, created_at)
VALUES {rows:(?, ?, ?, ?, ?, ?, ?, nullif(?, ''), nullif(?, ''), ?1)}
ON CONFLICT (id) DO NOTHING
"""

# The same for runs that do not wait at once, or stand for a range.
_ADD_ODD = """
INSERT INTO {ns}.runs (seq, id, kind, line, due, ready_at, payload, "group", extra, until, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO NOTHING
"""

_ADDED = "SELECT seq FROM {ns}.runs WHERE seq > ?"

# Let the runs just added wait: those without a group for their time, the others before their group.
_WAIT = 'INSERT INTO {into_line} FROM {ns}.runs WHERE seq > ? AND "group" IS NULL'
_WAIT_TO_ENTER = 'INSERT INTO {into_entrants} FROM {ns}.runs WHERE seq > ? AND "group" IS NOT NULL'

_WITH_IDS = "SELECT id, created_at FROM {ns}.runs WHERE id IN (SELECT value FROM json_each(?))"
_WITH_KEYS = """
SELECT k.handler, k.key, r.id, r.created_at
FROM json_each(?) AS wanted
CROSS JOIN {ns}.keys AS k
    ON k.handler = json_extract(wanted.value, '$[0]') AND k.key = json_extract(wanted.value, '$[1]')
CROSS JOIN {ns}.runs AS r ON r.seq = k.seq
"""
_WITH_UNIQUE_KEYS = """
SELECT u.handler, u.key, u.id, u.created_at
FROM json_each(?) AS wanted
CROSS JOIN {ns}.unique_keys AS u
    ON u.handler = json_extract(wanted.value, '$[0]') AND u.key = json_extract(wanted.value, '$[1]')
WHERE u.until > ?
"""
_KEEP_KEY = "INSERT INTO {ns}.keys (handler, key, seq) VALUES (?, ?, ?)"
_KEEP_UNIQUE = "INSERT OR REPLACE INTO {ns}.unique_keys (handler, key, id, created_at, until) VALUES (?, ?, ?, ?, ?)"


class _Batch(Struct):
    """Runs as rows, by the statement that adds them. `earliest` is the first ready time of those that will wait."""

    plain: list[Row] = []
    rich: list[Row] = []
    odd: list[tuple[int, Run, Row]] = []
    earliest: int | None = None


async def add(unit: SqliteUnit, runs: Sequence[Run], now: int) -> list[Put]:
    """Add runs that duplicate nothing, in order; returns all results. Wakes others if one is the next to start."""
    if any(run.dedupe_key is not None for run in runs):
        return await _add_keyed(unit, runs, now)
    created, at = (await _insert(unit, runs, now))[1], from_micros(now)
    if created is None:
        return [Put(run.id, True, at) for run in runs]
    known = {run_id: from_micros(at) for run_id, at in unit.select(_WITH_IDS, as_list(_ids(runs)))}
    return [Put(run.id, index in created, known[run.id]) for index, run in enumerate(runs)]


async def _add_keyed(unit: SqliteUnit, runs: Sequence[Run], now: int) -> list[Put]:
    """The same where keys must be looked up first."""
    ids = {run_id: Put(run_id, False, from_micros(at)) for run_id, at in unit.select(_WITH_IDS, as_list(_ids(runs)))}
    keys = _keys(unit, runs, now)
    answers: list[Put] = []
    accepted: list[Run] = []
    for run in runs:
        key = (run.handler, run.dedupe_key)
        existing = ids.get(run.id) or keys.get(key)
        answers.append(existing or Put(run.id, True, from_micros(now)))
        if existing is None:
            accepted.append(run)
            ids[run.id] = Put(run.id, False, from_micros(now))
            if run.dedupe_key is not None and not run.final:
                keys[key] = ids[run.id]
    first, _ = await _insert(unit, accepted, now)
    keyed = [(seq, run) for seq, run in enumerate(accepted, first) if run.dedupe_key and not run.final]
    unit.execute_many(_KEEP_KEY, [(run.handler, run.dedupe_key, seq) for seq, run in keyed])
    lasting = [(run, run.unique_for) for _, run in keyed if run.unique_for is not None]
    unit.execute_many(
        _KEEP_UNIQUE,
        [(run.handler, run.dedupe_key, run.id, now, now + duration(seconds)) for run, seconds in lasting],
    )
    return answers


def take_keys(unit: SqliteUnit, runs: Sequence[tuple[int, Run]], now: int) -> set[int]:
    """Take the dedupe keys of runs, all different; the numbers of those that have theirs now."""
    taken = _keys(unit, [run for _, run in runs], now)
    free = [(seq, run) for seq, run in runs if _is_free(taken.get((run.handler, run.dedupe_key)), run)]
    unit.execute_many(_KEEP_KEY, [(run.handler, run.dedupe_key, seq) for seq, run in free])
    return {seq for seq, _ in free}


def _is_free(owner: Put | None, run: Run) -> bool:
    return owner is None or owner.id == run.id  # which ended, and is unique under its own key


def _ids(runs: Sequence[Run]) -> list[str]:
    return [run.id for run in runs]


def _keys(unit: SqliteUnit, runs: Sequence[Run], now: int) -> dict[tuple[str, str | None], Put]:
    """Which runs have the keys of these: unfinished ones, else those that are still unique."""
    wanted = as_list((run.handler, run.dedupe_key) for run in runs if run.dedupe_key is not None)
    rows = [*unit.select(_WITH_UNIQUE_KEYS, wanted, now), *unit.select(_WITH_KEYS, wanted)]
    return {(handler, key): Put(run_id, False, from_micros(at)) for handler, key, run_id, at in rows}


async def _insert(unit: SqliteUnit, runs: Sequence[Run], now: int) -> tuple[int, set[int] | None]:
    """Insert runs whose id is new; the first number given, and which were inserted (None: all)."""
    [(last,)] = unit.select(_LAST)
    batch = _rows(unit, runs, last + 1)
    rings = _rings(unit, batch.earliest, now)
    inserted = unit.insert_many(_ADD_PLAIN, batch.plain, now) + unit.insert_many(_ADD_RICH, batch.rich, now)
    if inserted:
        unit.execute(_WAIT, last)
    if batch.rich:
        unit.execute(_WAIT_TO_ENTER, last)
    odd = [(seq, run) for seq, run, row in batch.odd if unit.execute(_ADD_ODD, *row, now)]
    if odd:
        await place_odd(unit, [Record(seq, line_of(run), rank_of(run), run) for seq, run in odd], now)
        inserted += len(odd)
    if inserted:
        unit.rings |= rings
    return last + 1, None if inserted == len(runs) else {seq - last - 1 for (seq,) in unit.select(_ADDED, last)}


def _rings(unit: SqliteUnit, earliest: int | None, now: int) -> int:
    """Whether to wake others: a run is ready, or is the next to be."""
    if earliest is None:
        return 0
    if earliest <= now:
        return WORK
    following = earliest_later(survey(unit, now))
    return WORK if following is None or earliest < following else 0


def _rows(unit: SqliteUnit, runs: Sequence[Run], first: int) -> _Batch:
    batch = _Batch()
    like = None
    kind = place = 0
    for seq, run in enumerate(runs, first):
        due = to_micros(run.due)
        ready_at = due if run.ready_at is run.due else to_micros(run.ready_at)
        if like is None or not _same_kind(run, like):
            like, kind, place = run, unit.names.kind_of(unit, run), unit.names.place_number(unit, run)
        row = (seq, run.id, kind, place, due, ready_at, bytearray(run.payload))
        if run.state not in WAITING or run.hold is not None or run.until is not None or run.member:
            batch.odd.append((seq, run, (*row, run.group, extra_of(run), micros(run.until))))
            if run.final or run.hold is not None:
                continue
        elif (
            run.group is None
            and not run.uid
            and run.headers is None
            and run.dedupe_key is None
            and not run.revision
            and not run.fence
            and not run.failures
            and not run.losses
            and run.reason is None
            and run.start_by is None
        ):
            batch.plain.append(row)
        else:
            batch.rich.append((*row, run.group or "", extra_of(run) or ""))
        if batch.earliest is None or ready_at < batch.earliest:
            batch.earliest = ready_at
    return batch


def _same_kind(run: Run, other: Run) -> bool:
    """Whether two runs share kind and place. Cheap, because many runs are put together."""
    return (
        run.job == other.job
        and run.policy is other.policy
        and run.queue == other.queue
        and run.priority == other.priority
        and run.handler == other.handler
        and run.cause is other.cause
        and run.limit == other.limit
        and run.when_full is other.when_full
        and run.assignable is other.assignable
        and run.legacy is other.legacy
    )
