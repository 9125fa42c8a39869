"""Adding runs: the record, and its place among those that wait.

Most runs are plain: one statement inserts the records of a whole batch, lets them wait, and rings. What many runs of
one job have in common is sent once. Dedupe keys are taken first, in an order that all share, so that two batches cannot
wait for each other in a circle.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any

from duly.backends.postgres.bell import WORK
from duly.backends.postgres.codec import MIDDLE, Record, extra_of, line_of, policy_of
from duly.backends.postgres.moves import place_odd
from duly.backends.postgres.unit import Unit
from duly.backends.rows import micros
from duly.errors import BackendError
from duly.model import WAITING, Put, Run, RunPolicy, to_micros

_MOST_PRIORITY = 499

# The earliest ready time after now in any line; lines are found by leaping from one to the next.
_FOLLOWING = """
WITH RECURSIVE lines AS (
    (SELECT line, rank FROM {ns}.waiting ORDER BY line, rank LIMIT 1)
    UNION ALL
    SELECT n.line, n.rank FROM lines AS l CROSS JOIN LATERAL (
        SELECT line, rank FROM {ns}.waiting WHERE (line, rank) > (l.line, l.rank) ORDER BY line, rank LIMIT 1
    ) AS n
)
SELECT min(n.ready_at) FROM lines AS l CROSS JOIN LATERAL (
    SELECT ready_at FROM {ns}.waiting AS w
    WHERE w.line = l.line AND w.rank = l.rank AND w.ready_at > (SELECT now FROM clock) ORDER BY w.ready_at LIMIT 1
) AS n
"""

# Add runs whose id is new and let them wait: those without a group in line, the others before their group. Rings if one
# is ready, or is the next to be. Answers how many were added, and which, unless it was all of them. $2 are the ids and
# $13 the payloads; between them is what else there is to know of a run, in the order of its columns.
_ADD = """
WITH {clock},
added AS (
    INSERT INTO {ns}.runs (
        id, job, handler, line, rank, cause, policy, due, ready_at, "group", extra, payload, created_at
    )
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
    CASE
        WHEN count(*) = 0 THEN NULL
        WHEN min(ready_at) <= (SELECT now FROM clock) THEN pg_notify({bell}, $14)
        WHEN min(ready_at) < coalesce(({following}), min(ready_at) + 1) THEN pg_notify({bell}, $14)
    END
FROM added
""".replace("{following}", _FOLLOWING)

_ADD_EACH = _ADD.replace(
    "{rows}",
    """
    SELECT i.*, clock.now
    FROM clock, unnest(
        $2::text[], $3::text[], $4::text[], $5::text[], $6::int[], $7::text[], $8::text[], $9::bigint[],
        $10::bigint[], $11::text[], $12::text[], $13::bytea[]
    ) AS i
    """,
)
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
_ADD_ODD = """
INSERT INTO {ns}.runs (
    id, job, handler, line, rank, cause, policy, due, ready_at, "group", extra, payload, until, created_at
)
SELECT i.*, $14::bigint
FROM unnest(
    $1::text[], $2::text[], $3::text[], $4::text[], $5::int[], $6::text[], $7::text[], $8::bigint[], $9::bigint[],
    $10::text[], $11::text[], $12::bytea[], $13::bigint[]
) AS i
ON CONFLICT (id) DO NOTHING
RETURNING seq, id
"""

_WITH_IDS = "SELECT id FROM {ns}.runs WHERE id = ANY($1::text[])"
_TAKE_KEYS = """
INSERT INTO {ns}.keys (handler, key, id) SELECT * FROM unnest($1::text[], $2::bytea[], $3::text[])
ON CONFLICT (handler, key) DO NOTHING
RETURNING id
"""
_WITH_KEYS = """
SELECT k.handler, k.key, k.id
FROM unnest($1::text[], $2::bytea[]) AS wanted (handler, key)
INNER JOIN {ns}.keys AS k ON k.handler = wanted.handler AND k.key = wanted.key
"""
_GIVE_BACK = """
DELETE FROM {ns}.keys
WHERE id = ANY($1::text[]) AND (handler, key) IN (SELECT * FROM unnest($2::text[], $3::bytea[]))
"""

_Key = tuple[str, bytes]
_common = attrgetter(*[field for field in Run.__struct_fields__ if field not in {"id", "payload"}])


def is_plain(runs: Sequence[Run]) -> bool:
    """Whether adding these is one statement, so that it needs no transaction around it."""
    plain = not any(run.dedupe_key is not None or _is_odd(run) for run in runs)
    return plain and len({run.id for run in runs}) == len(runs)


async def add_plain(unit: Unit, runs: Sequence[Run], now: datetime | None) -> list[Put]:
    """Add such runs; what became of each."""
    created = await _insert_plain(unit, runs, now)
    return [Put(run.id, created=created is None or run.id in created) for run in runs]


async def add(unit: Unit, runs: Sequence[Run], now: datetime | None) -> list[Put]:
    """Add runs that duplicate nothing, in order; what became of each."""
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
    """Answer for a run that duplicates one before it, if that one's answer tells; else it has to be tried itself."""
    answer = answers[before]
    told = answer.created or (runs[index].id == runs[before].id) == (answer.id == runs[before].id)
    if told:
        answers[index] = Put(answer.id, created=False)
    return told


def _key(run: Run) -> _Key:
    assert run.dedupe_key is not None
    return run.handler, run.dedupe_key.encode()


# --- keys


async def _add_distinct(unit: Unit, runs: Sequence[Run], now: datetime | None) -> list[Put]:
    """The same for runs that share no id and no key."""
    keyed = [run for run in runs if run.dedupe_key is not None and not run.final]
    known = await _known(unit, keyed) if keyed else {}
    accepted = [run for run in runs if run.id not in known]
    created = await _insert(unit, accepted, now)
    unused = [run for run in keyed if run.id not in known and created is not None and run.id not in created]
    if unused:  # somebody has added the same id meanwhile
        keys = [_key(run) for run in unused]
        await unit.run(_GIVE_BACK, [run.id for run in unused], [key[0] for key in keys], [key[1] for key in keys])
    return [
        Put(known[run.id], created=False)
        if run.id in known
        else Put(run.id, created=created is None or run.id in created)
        for run in runs
    ]


async def _known(unit: Unit, keyed: Sequence[Run]) -> dict[str, str]:
    """Take the keys of these runs; those that exist or whose key another one has, with the id of that one."""
    known = {row[0]: row[0] for row in await unit.all(_WITH_IDS, [run.id for run in keyed])}
    left = sorted((run for run in keyed if run.id not in known), key=_key)
    while left:
        keys = [_key(run) for run in left]
        handlers, texts = [key[0] for key in keys], [key[1] for key in keys]
        taken = {row[0] for row in await unit.all(_TAKE_KEYS, handlers, texts, [run.id for run in left])}
        missed = [run for run in left if run.id not in taken]
        if not missed:
            break
        owners = {(row[0], row[1]): row[2] for row in await unit.all(_WITH_KEYS, handlers, texts)}
        known |= {run.id: owners[_key(run)] for run in missed if _key(run) in owners}
        left = [run for run in missed if _key(run) not in owners]  # given back meanwhile
    return known


# --- inserting


async def _insert(unit: Unit, runs: Sequence[Run], now: datetime | None) -> set[str] | None:
    """Insert runs whose id is new; which, None for all of them."""
    odd = [run for run in runs if _is_odd(run)]
    plain = [run for run in runs if not _is_odd(run)] if odd else runs
    created = await _insert_plain(unit, plain, now) if plain else None
    if not odd:
        return created
    placed = await _insert_odd(unit, odd, now)
    return placed | ({run.id for run in plain} if created is None else created)


def _is_odd(run: Run) -> bool:
    return run.state not in WAITING or run.hold is not None or run.until is not None or run.member


async def _insert_plain(unit: Unit, runs: Sequence[Run], now: datetime | None) -> set[str] | None:
    common = _common(runs[0])
    if all(_common(run) == common for run in runs):
        ids, payloads = [run.id for run in runs], [run.payload for run in runs]
        shared = [column[0] for column in _columns(runs[:1])[1:-1]]
        row = await unit.one(_ADD_ALIKE, unit.moment(now), ids, *shared, payloads, str(WORK))
    else:
        row = await unit.one(_ADD_EACH, unit.moment(now), *_columns(runs), str(WORK))
    assert row is not None
    return None if row[0] == len(runs) else set(row[1] or ())


async def _insert_odd(unit: Unit, runs: Sequence[Run], now: datetime | None) -> set[str]:
    at = await unit.at(now)
    rows = await unit.all(_ADD_ODD, *_columns(runs), [micros(run.until) for run in runs], at)
    seqs = {row[1]: row[0] for row in rows}
    placed = [Record(seqs[run.id], line_of(run), run) for run in runs if run.id in seqs]
    await place_odd(unit, placed, at)
    unit.rings |= WORK if any(not record.run.final for record in placed) else 0  # a hold may be somebody's to end
    return set(seqs)


def _columns(runs: Sequence[Run]) -> tuple[list[Any], ...]:
    policies = _Policies()
    return (
        [run.id for run in runs],
        [run.job for run in runs],
        [run.handler for run in runs],
        [line_of(run) for run in runs],
        [_rank(run) for run in runs],
        [run.cause.value for run in runs],
        [policies.text(run.policy) for run in runs],
        [to_micros(run.due) for run in runs],
        [to_micros(run.ready_at) for run in runs],
        [run.group for run in runs],
        [extra_of(run) for run in runs],
        [run.payload for run in runs],
    )


def _rank(run: Run) -> int:
    if not 0 <= run.priority <= _MOST_PRIORITY:
        raise BackendError(f"run {run.id} has priority {run.priority}: from 0 to 9")
    return MIDDLE - run.priority


class _Policies:
    """The texts of a batch's policies: mostly one object for all."""

    def __init__(self) -> None:
        self._texts: dict[int, str | None] = {}

    def text(self, policy: RunPolicy) -> str | None:
        key = id(policy)
        if key not in self._texts:
            self._texts[key] = policy_of(policy)
        return self._texts[key]
