"""Adding runs: the record, and its place among those that wait.

Most runs are plain: one statement inserts the records of a whole batch, lets them wait, and notifies. What many runs of
one job have in common is sent once. Dedupe keys are taken first, in the same order everywhere, so that two batches
cannot deadlock.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any

from msgspec import Struct

from duly.backends.codec import NEW_RUN, Record, duration, line_of, micros, rank_of
from duly.backends.postgres.unit import PostgresUnit
from duly.backends.sql.moves import place_odd
from duly.backends.sql.notify import WORK
from duly.backends.sql.unit import Row
from duly.model import WAITING, Put, Run, from_micros

_NAMES = ", ".join(f'"{name}"' for name, _, _ in NEW_RUN)


def _arrays(first: int) -> str:
    """The fields of new runs as parameters, each an array, from this number on."""
    return ", ".join(f"${number}::{kind}[]" for number, (_, kind, _) in enumerate(NEW_RUN, first))


# The earliest ready time after now in any line.
_FOLLOWING = """
WITH RECURSIVE {lines}
SELECT min(n.ready_at) FROM lines AS l CROSS JOIN LATERAL (
    SELECT ready_at FROM {ns}.waiting AS w
    WHERE w.line = l.line AND w.rank = l.rank AND w.ready_at > (SELECT now FROM clock) ORDER BY w.ready_at LIMIT 1
) AS n
"""

# Add runs whose id is new and let them wait: those without a group in line, the others before their group. Notifies if
# one is ready, or is the next to be. Returns how many were added, which ones (unless all were), and when. $2 are the
# ids and $13 the payloads; between them are the other fields of a run, in the order of its columns.
_ADD = """
WITH {clock},
added AS (
    INSERT INTO {ns}.runs ({columns}, created_at)
    {rows}
    ON CONFLICT (id) DO NOTHING
    RETURNING seq, id, line, rank, ready_at, "group"
),
placed AS (
    INSERT INTO {ns}.waiting (seq, line, rank, ready_at, id, "group", entering)
    SELECT seq, line, rank, ready_at, id, "group", "group" IS NOT NULL FROM added
)
SELECT
    count(*),
    CASE WHEN count(*) < cardinality($2) THEN array_agg(id) END,
    (SELECT now FROM clock),
    CASE
        WHEN count(*) = 0 THEN NULL
        WHEN min(ready_at) <= (SELECT now FROM clock) THEN pg_notify({channel}, $14)
        WHEN min(ready_at) < coalesce(({following}), min(ready_at) + 1) THEN pg_notify({channel}, $14)
    END
FROM added
""".replace("{following}", _FOLLOWING).replace("{columns}", _NAMES)

_ADD_EACH = _ADD.replace("{rows}", f"SELECT i.*, clock.now FROM clock, unnest({_arrays(2)}) AS i")
_ADD_ALIKE = _ADD.replace(
    "{rows}",
    """
    SELECT
        i.id, $3::text, $4::text, $5::text, $6::int, $7::text, $8::text, $9::bigint, $10::bigint, $11::text, $12::text,
        i.payload, clock.now
    FROM clock, unnest($2::text[], $13::bytea[]) AS i (id, payload)
    """,
)

# The same for runs that do not wait in line at once, or stand for a range: the record alone.
_ADD_ODD = f"""
INSERT INTO {{ns}}.runs ({_NAMES}, until, created_at)
SELECT i.*, $14::bigint FROM unnest({_arrays(1)}, $13::bigint[]) AS i
ON CONFLICT (id) DO NOTHING
RETURNING seq, id
"""

# The same for runs of another store, each with its own time of creation.
_ADD_RECORDS = f"""
INSERT INTO {{ns}}.runs ({_NAMES}, until, created_at)
SELECT i.* FROM unnest({_arrays(1)}, $13::bigint[], $14::bigint[]) AS i
RETURNING seq, id
"""

_CREATED = "SELECT id, created_at FROM {ns}.runs WHERE id = ANY($1::text[])"
# Take the keys of runs whose id is new. Returns which were taken.
_TAKE_KEYS = """
INSERT INTO {ns}.keys (handler, key, id)
SELECT i.* FROM unnest($1::text[], $2::bytea[], $3::text[]) AS i (handler, key, id)
WHERE NOT EXISTS (SELECT FROM {ns}.runs AS r WHERE r.id = i.id)
ON CONFLICT (handler, key) DO NOTHING
RETURNING id
"""
# What conflicts with runs ($2 handlers, $3 keys, $4 ids), each with its time of creation: a run of that id, one that
# has the key, one that is still unique under it. Where no run is unique and the key was taken ($6) to be so for a
# time ($5), that is written down. Only the session that has taken a key writes here, so what this statement sees holds.
_RESERVE = """
WITH {clock},
wanted AS MATERIALIZED (
    SELECT * FROM unnest($2::text[], $3::bytea[], $4::text[], $5::bigint[], $6::bool[])
        AS i (handler, key, id, span, taken)
),
reserved AS (
    INSERT INTO {ns}.unique_keys AS u (handler, key, id, created_at, until)
    SELECT handler, key, id, now, now + span FROM wanted, clock WHERE taken AND span IS NOT NULL
    ON CONFLICT (handler, key) DO UPDATE
    SET id = excluded.id, created_at = excluded.created_at, until = excluded.until
    WHERE u.until <= excluded.created_at
)
SELECT w.id, clock.now, r.created_at, k.id, o.created_at, u.id, u.created_at
FROM wanted AS w CROSS JOIN clock
LEFT JOIN {ns}.runs AS r ON r.id = w.id
LEFT JOIN {ns}.keys AS k ON k.handler = w.handler AND k.key = w.key AND k.id <> w.id
LEFT JOIN {ns}.runs AS o ON o.id = k.id
LEFT JOIN {ns}.unique_keys AS u ON u.handler = w.handler AND u.key = w.key AND u.id <> w.id AND u.until > clock.now
"""
_GIVE_BACK = """
WITH freed AS (
    DELETE FROM {ns}.keys
    WHERE id = ANY($1::text[]) AND (handler, key) IN (SELECT * FROM unnest($2::text[], $3::bytea[]))
)
DELETE FROM {ns}.unique_keys
WHERE id = ANY($1::text[]) AND (handler, key) IN (SELECT * FROM unnest($2::text[], $3::bytea[]))
"""

# Take the keys of runs that exist. Returns which were taken.
_TAKE_KEYS_AGAIN = """
INSERT INTO {ns}.keys (handler, key, id)
SELECT * FROM unnest($1::text[], $2::bytea[], $3::text[]) AS i (handler, key, id) ORDER BY handler, key
ON CONFLICT (handler, key) DO NOTHING
RETURNING id
"""
# Those of these runs whose keys, which they have taken, are unique to others at $4.
_UNIQUE_TO_OTHERS = """
SELECT i.id FROM unnest($1::text[], $2::bytea[], $3::text[]) AS i (handler, key, id)
INNER JOIN {ns}.unique_keys AS u ON u.handler = i.handler AND u.key = i.key AND u.id <> i.id AND u.until > $4::bigint
"""
_FREE_KEYS = "DELETE FROM {ns}.keys WHERE id = ANY($1::text[])"

_Key = tuple[str, bytes]
_common = attrgetter(*[field for field in Run.__struct_fields__ if field not in {"id", "payload"}])


def is_plain(runs: Sequence[Run]) -> bool:
    """Whether adding these is one statement, so that it needs no transaction around it."""
    plain = not any(run.dedupe_key is not None or _is_odd(run) for run in runs)
    return plain and len({run.id for run in runs}) == len(runs)


async def add_plain(unit: PostgresUnit, runs: Sequence[Run], now: datetime | None) -> list[Put]:
    """Add such runs; returns the result for each."""
    return await _answers(unit, runs, await _insert_plain(unit, runs, now))


class _Added(Struct, frozen=True):
    """Which runs were inserted (None: all that were to be), and when."""

    ids: set[str] | None
    at: datetime

    def has(self, run: Run) -> bool:
        return self.ids is None or run.id in self.ids


async def _answers(unit: PostgresUnit, runs: Sequence[Run], added: _Added) -> list[Put]:
    """The results for runs to be inserted: those that were not inserted existed before."""
    if added.ids is None:
        return [Put(run.id, True, added.at) for run in runs]
    before = [run.id for run in runs if run.id not in added.ids]
    known = {row[0]: from_micros(row[1]) for row in await unit.all(_CREATED, before)}
    return [Put(run.id, added.has(run), known.get(run.id, added.at)) for run in runs]


async def add(unit: PostgresUnit, runs: Sequence[Run], now: datetime | None) -> list[Put]:
    """Add runs that duplicate nothing, in order; returns the result for each."""
    answers: dict[int, Put] = {}
    left: Sequence[int] = range(len(runs))
    while left:
        first, later = _distinct(runs, left)
        puts = await _add_distinct(unit, [runs[index] for index in first], now)
        answers.update(zip(first, puts, strict=True))
        left = [index for index in later if not _same_as_before(runs, answers, index, later[index])]
    return [answers[index] for index in range(len(runs))]


def _distinct(runs: Sequence[Run], indexes: Sequence[int]) -> tuple[list[int], dict[int, int]]:
    """The runs that share neither id nor key with one before; and for each of the others, that one."""
    ids: dict[str, int] = {}
    keys: dict[_Key, int] = {}
    first: list[int] = []
    later: dict[int, int] = {}
    for index in indexes:
        run = runs[index]
        before = ids.get(run.id)
        if before is None and run.dedupe_key is not None:
            before = keys.get(_key(run))
        if before is not None:
            later[index] = before
            continue
        first.append(index)
        ids[run.id] = index
        if run.dedupe_key is not None and not run.final:
            keys[_key(run)] = index
    return first, later


def _same_as_before(runs: Sequence[Run], answers: dict[int, Put], index: int, before: int) -> bool:
    """The result for a run that duplicates an earlier one, if it follows from that one's; else it must be tried."""
    answer = answers[before]
    answered = answer.created or (runs[index].id == runs[before].id) == (answer.id == runs[before].id)
    if answered:
        answers[index] = Put(answer.id, False, answer.created_at)
    return answered


def _key(run: Run) -> _Key:
    assert run.dedupe_key is not None
    return run.handler, run.dedupe_key.encode()


# --- keys


async def _add_distinct(unit: PostgresUnit, runs: Sequence[Run], now: datetime | None) -> list[Put]:
    """The same for runs that share no id and no key."""
    keyed = [run for run in runs if run.dedupe_key is not None and not run.final]
    known: dict[str, Put] = {}
    if keyed:
        known, now = await _known(unit, keyed, now)
    accepted = [run for run in runs if run.id not in known]
    if accepted:
        added = await _insert(unit, accepted, now)
        await _give_back(unit, [run for run in keyed if run.id not in known and not added.has(run)])  # added meanwhile
        known |= {run.id: put for run, put in zip(accepted, await _answers(unit, accepted, added), strict=True)}
    return [known[run.id] for run in runs]


async def _known(unit: PostgresUnit, keyed: Sequence[Run], now: datetime | None) -> tuple[dict[str, Put], datetime]:
    """Take the keys of these runs; returns those that exist or whose key another run has, with that run; and now.

    Runs that are added now are created at that time, and a key that stays unique for a time stores it too.
    """
    known: dict[str, Put] = {}
    left, at = sorted(keyed, key=_key), now
    while left or at is None:
        keys = [_key(run) for run in left]
        handlers, texts, ids = [key[0] for key in keys], [key[1] for key in keys], [run.id for run in left]
        taken = {row[0] for row in await unit.all(_TAKE_KEYS, handlers, texts, ids)}
        spans = [None if run.unique_for is None else duration(run.unique_for) for run in left]
        rows = await unit.all(
            _RESERVE, unit.moment(at), handlers, texts, ids, spans, [run_id in taken for run_id in ids]
        )
        found = {row[0]: twin for row in rows if (twin := _twin(row, row[0] in taken)) is not None}
        at = from_micros(rows[0][1])
        known |= found
        await _give_back(unit, [run for run in left if run.id in taken and run.id in found])
        left = [run for run in left if run.id not in taken and run.id not in found]  # the key was given back meanwhile
    return known, at


def _twin(row: Row, taken: bool) -> Put | None:
    """The run that conflicts with another, by a row of `_RESERVE`: of its id, with its key, or unique under it."""
    run_id, _, created, owner, owner_created, unique, unique_created = row
    if created is not None:
        return Put(run_id, False, from_micros(created))
    if not taken and owner is not None:
        return Put(owner, False, from_micros(owner_created))
    return None if unique is None else Put(unique, False, from_micros(unique_created))


async def _give_back(unit: PostgresUnit, runs: Sequence[Run]) -> None:
    """Free the keys that were taken for runs that are not added after all."""
    if runs:
        keys = [_key(run) for run in runs]
        await unit.run(_GIVE_BACK, [run.id for run in runs], [key[0] for key in keys], [key[1] for key in keys])


async def take_keys(unit: PostgresUnit, runs: Sequence[tuple[int, Run]], now: int) -> set[int]:
    """Take the dedupe keys of runs that exist, all different; the numbers of those that have theirs now."""
    ids = [run.id for _, run in runs]
    keys = [_key(run) for _, run in runs]
    named = [key[0] for key in keys], [key[1] for key in keys], ids
    taken = {row[0] for row in await unit.all(_TAKE_KEYS_AGAIN, *named)}
    others = {row[0] for row in await unit.all(_UNIQUE_TO_OTHERS, *named, now)}
    if taken & others:
        await unit.run(_FREE_KEYS, sorted(taken & others))
    return {seq for seq, run in runs if run.id in taken - others}


# --- inserting


async def _insert(unit: PostgresUnit, runs: Sequence[Run], now: datetime | None) -> _Added:
    """Insert runs whose id is new."""
    odd = [run for run in runs if _is_odd(run)]
    plain = [run for run in runs if not _is_odd(run)] if odd else runs
    added = await _insert_plain(unit, plain, now) if plain else None
    if not odd:
        assert added is not None
        return added
    placed = await _insert_odd(unit, odd, now if added is None else added.at)
    ids = {run.id for run in plain if added is not None and added.has(run)}
    return _Added((placed.ids or set()) | ids, placed.at)


def _is_odd(run: Run) -> bool:
    return run.state not in WAITING or run.hold is not None or run.until is not None or run.member


async def _insert_plain(unit: PostgresUnit, runs: Sequence[Run], now: datetime | None) -> _Added:
    common = _common(runs[0])
    if all(_common(run) == common for run in runs):
        ids, payloads = [run.id for run in runs], [run.payload for run in runs]
        shared = [column[0] for column in _columns(runs[:1])[1:-1]]
        row = await unit.one(_ADD_ALIKE, unit.moment(now), ids, *shared, payloads, str(WORK))
    else:
        row = await unit.one(_ADD_EACH, unit.moment(now), *_columns(runs), str(WORK))
    assert row is not None
    return _Added(None if row[0] == len(runs) else set(row[1] or ()), from_micros(row[2]))


async def _insert_odd(unit: PostgresUnit, runs: Sequence[Run], now: datetime | None) -> _Added:
    at = await unit.at(now)
    rows = await unit.all(_ADD_ODD, *_columns(runs), [micros(run.until) for run in runs], at)
    seqs = {row[1]: row[0] for row in rows}
    placed = [Record(seqs[run.id], line_of(run), rank_of(run), run) for run in runs if run.id in seqs]
    await place_odd(unit, placed, at)
    return _Added(set(seqs), from_micros(at))


async def add_records(unit: PostgresUnit, runs: Sequence[Run]) -> dict[str, int]:
    """Insert the records of runs of another store, in order; their numbers by id."""
    times = [[micros(run.until) for run in runs], [micros(run.created_at) or 0 for run in runs]]
    return {row[1]: row[0] for row in await unit.all(_ADD_RECORDS, *_columns(runs), *times)}


def _columns(runs: Sequence[Run]) -> list[list[Any]]:
    return [[of(run) for run in runs] for _, _, of in NEW_RUN]
