"""Moves of runs between the tables that say where they stand. The hottest ones are in `lending` and `settling`.

A move begins by deleting the row where the run stands; who finds nothing to delete was not the first, and has to look
again. What changes the members of a group happens under the lock of that group (`Unit.lock_groups`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from duly.backends.postgres.codec import Record, read_entry, read_records, story_of, urgency_of
from duly.backends.postgres.notify import ENDED, WORK
from duly.backends.postgres.unit_of_work import UnitOfWork
from duly.backends.rows import micros
from duly.model import Run, State, to_micros
from duly.model.holds import UNPLACED, hold_for_group
from duly.rules.admission import Held, Leaver, moved_up

_BY_IDS = "SELECT {run} FROM {ns}.runs AS r {standing} WHERE r.id = ANY($1::text[])"
_BY_SEQS = "SELECT {run} FROM {ns}.runs AS r {standing} WHERE r.seq = ANY($1::bigint[])"
_GROUPS_OF = 'SELECT DISTINCT "group" FROM {ns}.runs WHERE id = ANY($1::text[]) AND "group" IS NOT NULL'

_WAIT = """
INSERT INTO {ns}.waiting (seq, line, rank, ready_at, id, "group", entering)
SELECT * FROM unnest($1::bigint[], $2::text[], $3::int[], $4::bigint[], $5::text[], $6::text[], $7::bool[])
"""
_LEAVE = """
DELETE FROM {ns}.waiting AS w
USING unnest($1::text[], $2::int[], $3::bigint[], $4::text[], $5::bool[]) AS i (line, rank, ready_at, id, entering)
WHERE w.line = i.line AND w.rank = i.rank AND w.ready_at = i.ready_at AND w.id = i.id AND w.entering = i.entering
RETURNING w.seq
"""

_HOLD = """
INSERT INTO {ns}.held (seq, line, rank, ready_at, id, "group", member, hold)
SELECT * FROM unnest(
    $1::bigint[], $2::text[], $3::int[], $4::bigint[], $5::text[], $6::text[], $7::bool[], $8::text[]
)
"""
_LEAVE_HELD = """
DELETE FROM {ns}.held AS h USING unnest($1::bigint[], $2::text[]) AS i (seq, hold)
WHERE h.seq = i.seq AND h.hold = i.hold
RETURNING h.seq
"""

# Put the first runs under a hold back.
_UNHOLD = "SELECT {ns}.unhold($1, $2)"
# The same for runs that are yet to be placed: they are for anybody from then on.
_UNHOLD_UNPLACED = """
WITH first AS MATERIALIZED (
    SELECT seq FROM {ns}.held WHERE hold = $1 ORDER BY rank, ready_at, id LIMIT $2 FOR UPDATE SKIP LOCKED
),
back AS (
    DELETE FROM {ns}.held WHERE seq = ANY(ARRAY(SELECT seq FROM first))
    RETURNING seq, split_part(line, '@', 1) AS line, ready_at, id, "group", member
),
placed AS (
    INSERT INTO {ns}.waiting (seq, line, rank, ready_at, id, "group", entering)
    SELECT
        seq, line, (SELECT r.rank FROM {ns}.runs AS r WHERE r.seq = back.seq), ready_at, id, "group",
        "group" IS NOT NULL AND NOT member
    FROM back
),
moved AS (
    UPDATE {ns}.runs SET line = split_part(line, '@', 1) WHERE seq = ANY(ARRAY(SELECT seq FROM first))
)
SELECT count(*) FROM back
"""
_RELOCATE = """
UPDATE {ns}.runs AS r SET line = i.line FROM unnest($1::bigint[], $2::text[]) AS i (seq, line)
WHERE r.seq = ANY($1::bigint[]) AND r.seq = i.seq
"""
_RELEASE = "SELECT {ns}.release($1::text[])"
# The first $2 runs of the lines before these groups.
_LINES = """
SELECT g.name, h.seq, (SELECT r.extra FROM {ns}.runs AS r WHERE r.seq = h.seq)
FROM unnest($1::text[], $2::bigint[]) AS g (name, most) CROSS JOIN LATERAL (
    SELECT seq, rank, ready_at, id FROM {ns}.held
    WHERE hold = $3 || g.name ORDER BY rank, ready_at, id LIMIT g.most
) AS h
ORDER BY g.name, h.rank, h.ready_at, h.id
"""
# Let these runs, which are held for their groups, wait before them again.
_MOVE_UP = """
WITH back AS (
    DELETE FROM {ns}.held WHERE seq = ANY($1::bigint[]) RETURNING seq, line, ready_at, id, "group"
)
INSERT INTO {ns}.waiting (seq, line, rank, ready_at, id, "group", entering)
SELECT seq, line, (SELECT r.rank FROM {ns}.runs AS r WHERE r.seq = back.seq), ready_at, id, "group", true FROM back
"""

# How many members groups have: those that run, those that wait for a retry or to be claimed, and those that are held.
_MEMBERS = """
SELECT
    name,
    (SELECT count(*) FROM {ns}.claims WHERE "group" = name)
    + (SELECT count(*) FROM {ns}.waiting WHERE "group" = name AND NOT entering)
    + (SELECT count(*) FROM {ns}.held WHERE "group" = name AND member) AS members
FROM unnest($1::text[]) AS name
"""

_END = """
INSERT INTO {ns}.ended (seq, state, finished_at, fence, node, request, started_at, story, result)
SELECT * FROM unnest(
    $1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::bigint[], $7::bigint[], $8::text[],
    $9::bytea[]
)
"""
# Count runs that ended, $2 of them; $3 are kept more than before.
_COUNT = """
INSERT INTO {ns}.totals AS t (state, node, ended, kept) VALUES ($1, $4, $2, $3)
ON CONFLICT (state, node) DO UPDATE SET ended = t.ended + excluded.ended, kept = t.kept + excluded.kept
"""
_FREE_KEYS = "DELETE FROM {ns}.keys WHERE id = ANY($1::text[])"
_FORGET = "DELETE FROM {ns}.runs WHERE seq = ANY($1::bigint[])"
_FORGET_ATTEMPTS = "DELETE FROM {ns}.attempts WHERE seq = ANY($1::bigint[])"


# --- finding


async def by_ids(unit: UnitOfWork, run_ids: Iterable[str]) -> dict[str, Record]:
    """The runs of these ids that exist, as they stand."""
    records = read_records(await unit.all(_BY_IDS, list(run_ids)))
    return {record.run.id: record for record in records}


async def by_seqs(unit: UnitOfWork, seqs: Sequence[int]) -> list[Record]:
    """The runs of these numbers that exist, in order."""
    records = {record.seq: record for record in read_records(await unit.all(_BY_SEQS, list(seqs)))}
    return [records[seq] for seq in seqs if seq in records]


async def lock_groups_of(unit: UnitOfWork, run_ids: Iterable[str]) -> None:
    """Lock the groups that these runs belong to; that never changes."""
    await unit.lock_groups([row[0] for row in await unit.all(_GROUPS_OF, list(run_ids))])


# --- waiting


async def wait(unit: UnitOfWork, records: Sequence[Record]) -> None:
    """Let runs that are nowhere wait: before their group, unless they are members or have none."""
    if records:
        await unit.run(
            _WAIT,
            [record.seq for record in records],
            [record.line for record in records],
            [record.rank for record in records],
            [to_micros(record.run.ready_at) for record in records],
            [record.run.id for record in records],
            [record.run.group for record in records],
            [record.entrant for record in records],
        )


async def wait_again(unit: UnitOfWork, records: Sequence[Record], holds: Sequence[str | None] = ()) -> None:
    """Let runs that have been claimed or ended wait: under their holds, to be placed, or for their time."""
    wanted = holds or [None] * len(records)
    keys = [key or (UNPLACED if each.run.assignable else None) for each, key in zip(records, wanted, strict=True)]
    await wait(unit, [record for record, key in zip(records, keys, strict=True) if key is None])
    held = [(record, key) for record, key in zip(records, keys, strict=True) if key is not None]
    await hold(unit, [record for record, _ in held], [key for _, key in held], nobodys=True)


async def leave(unit: UnitOfWork, records: Sequence[Record]) -> set[int]:
    """Take waiting runs from where they wait; the numbers of those that were still there."""
    held = [record for record in records if record.run.hold is not None]
    in_line = [record for record in records if record.run.hold is None]
    left: set[int] = set()
    if held:
        keys = [record.run.hold for record in held]
        left |= {row[0] for row in await unit.all(_LEAVE_HELD, [record.seq for record in held], keys)}
    if in_line:
        rows = await unit.all(
            _LEAVE,
            [record.line for record in in_line],
            [record.rank for record in in_line],
            [to_micros(record.run.ready_at) for record in in_line],
            [record.run.id for record in in_line],
            [record.entrant for record in in_line],
        )
        left |= {row[0] for row in rows}
    return left


# --- holding


async def hold(unit: UnitOfWork, records: Sequence[Record], keys: Sequence[str], *, nobodys: bool = False) -> None:
    """Hold runs that are nowhere. One that is yet to be placed is nobody's."""
    records = [
        replace(record, line=f"{record.run.queue}@")
        if (nobodys or key == UNPLACED) and record.run.assignee is not None
        else record
        for record, key in zip(records, keys, strict=True)
    ]
    moved = [record for record in records if record.run.assignee is not None and record.line.endswith("@")]
    if moved:
        await unit.run(_RELOCATE, [record.seq for record in moved], [record.line for record in moved])
    if records:
        await unit.run(
            _HOLD,
            [record.seq for record in records],
            [record.line for record in records],
            [urgency_of(record.rank) for record in records],
            [to_micros(record.run.ready_at) for record in records],
            [record.run.id for record in records],
            [record.run.group for record in records],
            [record.run.member for record in records],
            list(keys),
        )


async def unhold(unit: UnitOfWork, key: str, limit: int) -> int:
    """Put the first runs under a hold back; how many."""
    row = await unit.one(_UNHOLD_UNPLACED if key == UNPLACED else _UNHOLD, key, limit)
    back = 0 if row is None else int(row[0])
    unit.rings |= WORK if back else 0
    return back


async def release(unit: UnitOfWork, groups: Sequence[str]) -> None:
    """Members have left these groups, one for each name: as many of the runs held for them wait again."""
    if groups:
        row = await unit.one(_RELEASE, [hold_for_group(group) for group in groups])
        moved = row is not None and bool(row[0])
        unit.rings |= WORK if moved else 0
        unit.stirs |= moved


async def members(unit: UnitOfWork, groups: Iterable[str]) -> dict[str, int]:
    """How many members these groups have."""
    return {row[0]: row[1] for row in await unit.all(_MEMBERS, list(groups))}


# --- moving up


class Line(Struct):
    """A group before runs leave it: how many members it has, and who is held for it, the most urgent first."""

    members: int
    held: list[Held]


async def lines_of(unit: UnitOfWork, records: Iterable[Record]) -> dict[str, Line]:
    """The groups of these runs, as far as they matter when these runs leave. Their locks must be ours."""
    leaving = Counter(record.run.group for record in records if record.run.group is not None)
    if not leaving:
        return {}
    lines = {group: Line(number, []) for group, number in (await members(unit, leaving)).items()}
    most = [2 * number for number in leaving.values()]
    for group, seq, extra in await unit.all(_LINES, list(leaving), most, hold_for_group("")):
        lines[group].held.append(Held(seq, read_entry(extra)[0]))
    return lines


async def move_up(unit: UnitOfWork, gone: Iterable[Record], lines: Mapping[str, Line]) -> None:
    """These runs have left their groups, in this order: their places go to those who are held for them."""
    leavers: defaultdict[str, list[Leaver]] = defaultdict(list)
    for record in gone:
        if record.run.group is not None:
            leavers[record.run.group].append(Leaver(record.seq, record.run.member))
    moved: list[int] = []
    for group, left in leavers.items():
        moved += moved_up(left, lines[group].held, lines[group].members)
    if moved:
        await unit.run(_MOVE_UP, moved)
        unit.rings |= WORK
        unit.stirs = True


# --- ending


class End(Struct, frozen=True):
    """How one run ended."""

    seq: int
    run: Run
    state: State
    reason: str | None
    at: int


async def end(unit: UnitOfWork, records: Sequence[Record], state: State, reason: str | None, now: int) -> set[int]:
    """Give waiting runs their final state, in order, their places to the next in line; which of them still waited."""
    lines = await lines_of(unit, records)
    ended = await end_within(unit, records, state, reason, now)
    await move_up(unit, [record for record in records if record.seq in ended], lines)
    return ended


async def end_within(
    unit: UnitOfWork, records: Sequence[Record], state: State, reason: str | None, now: int
) -> set[int]:
    """The same while their group is being decided about: nobody moves up."""
    left = await leave(unit, records)
    ended = [record for record in records if record.seq in left]
    await insert_ended(unit, [End(record.seq, record.run, state, reason, now) for record in ended])
    await free_keys(unit, [record.run.id for record in ended if record.run.dedupe_key is not None])
    if ended:
        await count_ended(unit, {state: len(ended)})
    return left


async def insert_ended(unit: UnitOfWork, ends: Sequence[End]) -> None:
    """Write down how runs ended, with what they brought along."""
    if ends:
        await unit.run(
            _END,
            [end.seq for end in ends],
            [end.state.value for end in ends],
            [end.at for end in ends],
            [end.run.fence for end in ends],
            [end.run.node for end in ends],
            [end.run.request for end in ends],
            [micros(end.run.started_at) for end in ends],
            [story_of(end.run, end.reason) for end in ends],
            [end.run.result for end in ends],
        )


async def count_ended(unit: UnitOfWork, ended: Mapping[State, int], node: str = "", *, kept_only: bool = False) -> None:
    """Count runs that ended; or, negative and kept only, such as are no longer kept as ended."""
    for state in sorted(ended):
        number = ended[state]
        await unit.run(_COUNT, state.value, 0 if kept_only else number, number, node)
        unit.rings |= 0 if kept_only else ENDED


async def free_keys(unit: UnitOfWork, run_ids: Sequence[str]) -> None:
    """Give the dedupe keys of these runs back."""
    if run_ids:
        await unit.run(_FREE_KEYS, list(run_ids))


# --- the odd ones


async def place_odd(unit: UnitOfWork, records: Sequence[Record], now: int) -> None:
    """Put runs that were just added where they belong: held, ended, or waiting though they stand for a range."""
    final = [record for record in records if record.run.final]
    await insert_ended(unit, [End(each.seq, each.run, each.run.state, each.run.reason, now) for each in final])
    states = {record.run.state for record in final}
    await count_ended(unit, {state: sum(each.run.state is state for each in final) for state in states})
    held = [record for record in records if not record.run.final and record.run.hold is not None]
    await hold(unit, held, [record.run.hold or "" for record in held])
    await wait(unit, [record for record in records if not record.run.final and record.run.hold is None])


async def forget(unit: UnitOfWork, records: Sequence[Record]) -> list[Record]:
    """Delete waiting runs as if they had never been, in order; those that still waited."""
    lines = await lines_of(unit, records)
    left = await leave(unit, records)
    gone = [record for record in records if record.seq in left]
    if gone:
        await unit.run(_FORGET, list(left))
        await unit.run(_FORGET_ATTEMPTS, list(left))
        await free_keys(unit, [record.run.id for record in gone if record.run.dedupe_key is not None])
        await move_up(unit, gone, lines)
    return gone
