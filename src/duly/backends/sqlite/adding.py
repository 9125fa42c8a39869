"""Adding runs: the record, and its place among those that wait.

Most runs are plain (no group, key, headers or history): they are inserted many at a time, and SQLite says by the count
whether all were new. Only if not is it asked which.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from duly.backends.codec import Record, duration, extra_of, line_of, micros, rank_of
from duly.backends.sql.moves import place_odd
from duly.backends.sql.notify import WORK
from duly.backends.sql.unit import Row
from duly.backends.sqlite.claiming import earliest_later, survey
from duly.backends.sqlite.unit import SqliteUnit, as_list
from duly.model import WAITING, Put, Run, from_micros, to_micros

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
    """Add runs that duplicate nothing, in order; what became of each. Wakes others if one is the next to start."""
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
    """Which runs have the keys of these: unfinished ones, else such as are still unique."""
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
    """Whether others should look: something is ready, or is the next to be."""
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
    """Whether two runs share kind and place. Cheap, for the many that are put together."""
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
