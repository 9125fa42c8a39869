"""Moves of runs between the tables that represent their state. The hottest ones are in the dialects.

A run's record is written once, into `runs`. The one other table that it is in shows its state: it waits in
its line or to enter its group, is held, claimed, or has ended. A move deletes the row of one table and inserts that of
the other in one transaction: a caller that finds nothing to delete came second, and must read again. A change of the
members of a group happens under the lock of that group (`Locks.groups`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from duly.backends.codec import Record, bare, ending_of, micros, optional_json, read_entry, read_record
from duly.backends.sql.notify import ENDED, WORK
from duly.backends.sql.unit import Column, Insert, Row, Unit, Update, columns
from duly.backends.tolerance import tolerantly
from duly.model import Run, State
from duly.model.holds import UNPLACED, hold_for_group
from duly.rules.admission import Held, Leaver, moved_up

K = TypeVar("K")

_BY_IDS = "SELECT {run} FROM {ns}.runs AS r {standing} WHERE r.id = ANY($1::text[])"
_BY_SEQS = "SELECT {run} FROM {ns}.runs AS r {standing} WHERE r.seq = ANY($1::bigint[])"

# A run waits, or is held, as its record says.
_WAIT = "INSERT INTO {into_line} FROM {ns}.runs WHERE seq = ANY($1::bigint[])"
_WAIT_TO_ENTER = "INSERT INTO {into_entrants} FROM {ns}.runs WHERE seq = ANY($1::bigint[])"
_HOLD = "INSERT INTO {into_held} FROM {ns}.runs WHERE seq = ANY($1::bigint[])"
_LEAVE = "{leave_line}"
_LEAVE_ENTRANTS = "{leave_entrants}"
_LEAVE_HELD = "DELETE FROM {ns}.held WHERE seq = ANY($1::bigint[]) AND hold = $2 RETURNING seq"

_FIRST_HELD = """
WITH first AS MATERIALIZED (
    SELECT seq FROM {ns}.held WHERE hold = $1 ORDER BY rank, ready_at, id LIMIT $2 FOR UPDATE SKIP LOCKED
)
DELETE FROM {ns}.held WHERE seq = ANY(ARRAY(SELECT seq FROM first))
RETURNING seq, "group", member
"""
_RELOCATE = "UPDATE {ns}.runs SET line = {line_named} WHERE seq = ANY($1::bigint[])"
_WITH_RUNS = "SELECT DISTINCT hold FROM {ns}.held WHERE hold = ANY($1::text[])"
_FIRST_IN_LINE = """
SELECT h.seq, {entry} FROM (
    SELECT seq FROM {ns}.held WHERE hold = $1 ORDER BY rank, ready_at, id LIMIT $2
) AS h
INNER JOIN {ns}.runs AS r ON r.seq = h.seq
INNER JOIN {ns}.held AS at ON at.seq = h.seq
ORDER BY at.rank, at.ready_at, at.id
"""

# How many members groups have: those that run, those that wait for a retry or to be claimed, and those that are held.
_MEMBERS = """
SELECT
    name,
    (SELECT count(*) FROM {ns}.claims WHERE "group" = name)
    + (SELECT count(*) FROM {entered} AS w WHERE w."group" = name)
    + (SELECT count(*) FROM {ns}.held WHERE "group" = name AND {member}) AS members
FROM unnest($1::text[]) AS name
"""

_END = Insert(
    "ended",
    columns(
        seq="bigint",
        state="text",
        finished_at="bigint",
        fence="bigint",
        node="text",
        request="bigint",
        started_at="bigint",
        failures="int",
        losses="int",
        cancelling="bool",
        reason="text",
        progress="text",
        failure="text",
        story="text",
        result="bytea",
    ),
)
_COUNT = Insert(
    "totals",
    columns(state="text", node="text", ended="bigint", kept="bigint"),
    "ON CONFLICT ({totals_key}) DO UPDATE SET ended = t.ended + excluded.ended, kept = t.kept + excluded.kept",
)
AGAIN = Update("runs", (Column("seq"),), columns(ready_at="bigint", extra="text"), answers=False)
_FORGET = "DELETE FROM {ns}.runs WHERE seq = ANY($1::bigint[])"
_FORGET_ATTEMPTS = "DELETE FROM {ns}.attempts WHERE seq = ANY($1::bigint[])"
_FORGET_LINES = "DELETE FROM {ns}.run_lines WHERE seq = ANY($1::bigint[])"


# --- finding


def read_records(rows: Sequence[Row], now: int | None = None) -> list[Record]:
    """Runs from rows of `{run}`; one that cannot be read in full is marked as damaged, without affecting others."""
    return tolerantly(
        lambda some: [read_record(row, now) for row in some], rows, lambda row, why: _damaged(row, now, why)
    )


def _damaged(row: Row, now: int | None, why: str) -> Record:
    record = read_record(bare(row), now)
    return replace(record, run=replace(record.run, damage=why))


async def by_ids(unit: Unit, run_ids: Iterable[str], now: int | None = None) -> dict[str, Record]:
    """The runs of these ids that exist, as they stand."""
    records = read_records(await unit.all(_BY_IDS, list(run_ids)), now)
    return {record.run.id: record for record in records}


async def by_seqs(unit: Unit, seqs: Sequence[int], now: int | None = None) -> list[Record]:
    """The runs of these numbers that exist, in order."""
    if not seqs:
        return []
    records = {record.seq: record for record in read_records(await unit.all(_BY_SEQS, list(seqs)), now)}
    return [records[seq] for seq in seqs if seq in records]


def _by(key: Callable[[Record], K], records: Iterable[Record]) -> dict[K, list[Record]]:
    found: defaultdict[K, list[Record]] = defaultdict(list)
    for record in records:
        found[key(record)].append(record)
    return found


def _seqs(records: Iterable[Record]) -> list[int]:
    return [record.seq for record in records]


# --- waiting


async def wait(unit: Unit, records: Iterable[Record]) -> None:
    """Let runs that are in no table wait: before their group, unless they are members or have none."""
    for entrants, some in _by(lambda record: record.entrant, records).items():
        await unit.run(_WAIT_TO_ENTER if entrants else _WAIT, _seqs(some))


async def enter(unit: Unit, seqs: Sequence[int]) -> None:
    """Let runs wait in line that waited before their groups."""
    left = await unit.all(_LEAVE_ENTRANTS, list(seqs))
    await unit.run(_WAIT, [row[0] for row in left])


async def wait_again(unit: Unit, records: Sequence[Record], holds: Sequence[str | None] = ()) -> None:
    """Let runs that have been claimed or ended wait: under their holds, to be placed, or for their time."""
    wanted = holds or [None] * len(records)
    keys = [key or (UNPLACED if each.run.assignable else None) for each, key in zip(records, wanted, strict=True)]
    await wait(unit, [record for record, key in zip(records, keys, strict=True) if key is None])
    held = [(record, key) for record, key in zip(records, keys, strict=True) if key is not None]
    await _relocate(unit, "", [record for record, _ in held if record.run.assignee is not None])
    await _hold(unit, held)


async def leave(unit: Unit, records: Iterable[Record]) -> set[int]:
    """Take waiting runs from where they wait; the numbers of those that were still there."""
    left: list[Row] = []
    for (key, entrants), some in _by(lambda record: (record.run.hold, record.entrant), records).items():
        if key is not None:
            left += await unit.all(_LEAVE_HELD, _seqs(some), key)
        else:
            left += await unit.all(_LEAVE_ENTRANTS if entrants else _LEAVE, _seqs(some))
    return {row[0] for row in left}


# --- holding


async def hold(unit: Unit, records: Sequence[Record], key: str) -> None:
    """Hold runs that are in no table. One that is not placed yet is assigned to no node."""
    if key == UNPLACED:
        await _relocate(unit, "", [record for record in records if record.run.assignee is not None])
    await _hold(unit, [(record, key) for record in records])


async def _hold(unit: Unit, held: Iterable[tuple[Record, str]]) -> None:
    parts: defaultdict[tuple[str, bool], list[int]] = defaultdict(list)
    for record, key in held:
        parts[key, record.run.member].append(record.seq)
    for (key, member), seqs in parts.items():
        await unit.run(_HOLD, seqs, key, member)


async def hold_entrants(unit: Unit, group: str, seqs: Sequence[int]) -> None:
    """Hold runs that waited to enter their group."""
    left = await unit.all(_LEAVE_ENTRANTS, list(seqs))
    await unit.run(_HOLD, [row[0] for row in left], hold_for_group(group), False)


async def _relocate(unit: Unit, node: str | None, records: Iterable[Record]) -> None:
    """Make runs that are in no table wait for this node; "": for none yet; None: for any."""
    for queue, some in _by(lambda record: record.run.queue, records).items():
        await relocate(unit, _seqs(some), queue if node is None else f"{queue}@{node}")


async def relocate(unit: Unit, seqs: Sequence[int], line: str) -> None:
    """Give runs that are in no table another line."""
    await unit.dialect.know_line(unit, line)
    await unit.run(_RELOCATE, list(seqs), line)


async def unhold(unit: Unit, key: str, limit: int) -> int:
    """Let the first runs under a hold wait again; how many."""
    back = await unit.all(_FIRST_HELD, key, limit)
    if not back:
        return 0
    if key == UNPLACED:
        await _relocate(unit, None, await by_seqs(unit, [row[0] for row in back]))
    for sql, entrants in ((_WAIT, False), (_WAIT_TO_ENTER, True)):
        if seqs := [seq for seq, group, member in back if (group is not None and not member) is entrants]:
            await unit.run(sql, seqs)
    unit.rings |= WORK
    return len(back)


async def release(unit: Unit, groups: Iterable[str]) -> None:
    """Members have left these groups, one for each name: as many of the runs held for them wait again."""
    freed = Counter(hold_for_group(group) for group in groups)
    if freed:
        for (key,) in await unit.all(_WITH_RUNS, sorted(freed)):
            unit.affects_others |= await unhold(unit, key, freed[key]) > 0


async def members(unit: Unit, groups: Iterable[str]) -> dict[str, int]:
    """How many members these groups have."""
    return {row[0]: row[1] for row in await unit.all(_MEMBERS, list(groups))}


# --- moving up


class _Line(Struct):
    """A group before runs leave it: how many members it has, and which runs are held for it, the most urgent first."""

    members: int
    held: list[Held]


class Leaving:
    """Gives the places of runs that leave their groups to runs that are held for them.

    Made before they leave, with the locks of their groups.
    """

    def __init__(self, unit: Unit, lines: Mapping[str, _Line]) -> None:
        self._unit = unit
        self._lines = lines

    @classmethod
    async def of(cls, unit: Unit, records: Iterable[Record]) -> Leaving:
        """Look at the groups of these runs, as far as they matter when these runs leave."""
        leaving = Counter(record.run.group for record in records if record.run.group is not None)
        keys = {hold_for_group(group): group for group in leaving}
        awaited = [row[0] for row in await unit.all(_WITH_RUNS, sorted(keys))] if keys else []
        present = await members(unit, [keys[key] for key in awaited]) if awaited else {}
        lines: dict[str, _Line] = {}
        for key in awaited:
            group = keys[key]
            rows = await unit.all(_FIRST_IN_LINE, key, 2 * leaving[group])
            lines[group] = _Line(present[group], [Held(row[0], read_entry(row[1:])[0]) for row in rows])
        return cls(unit, lines)

    async def move_up(self, gone: Iterable[Record]) -> None:
        """These runs have left, in this order."""
        leavers: defaultdict[str, list[Leaver]] = defaultdict(list)
        for record in gone:
            if record.run.group in self._lines:
                leavers[record.run.group or ""].append(Leaver(record.seq, record.run.member))
        for group, left in leavers.items():
            moved = moved_up(left, self._lines[group].held, self._lines[group].members)
            if moved:
                back = await self._unit.all(_LEAVE_HELD, moved, hold_for_group(group))
                await self._unit.run(_WAIT_TO_ENTER, [row[0] for row in back])
                self._unit.rings |= WORK
                self._unit.affects_others = True


# --- ending


class End(Struct, frozen=True):
    """How one run ended."""

    seq: int
    run: Run
    state: State
    reason: str | None
    at: int


async def end(unit: Unit, records: Sequence[Record], state: State, reason: str | None, now: int) -> set[int]:
    """Give waiting runs their final state, in order, and their places to the next in line; which still waited."""
    leaving = await Leaving.of(unit, records)
    ended = await end_within(unit, records, state, reason, now)
    await leaving.move_up(record for record in records if record.seq in ended)
    return ended


async def end_within(unit: Unit, records: Sequence[Record], state: State, reason: str | None, now: int) -> set[int]:
    """The same while their group is being decided: no held run moves up."""
    left = await leave(unit, records)
    ended = [record for record in records if record.seq in left]
    await insert_ended(unit, [End(record.seq, record.run, state, reason, now) for record in ended])
    await free_keys(unit, ended)
    await count_ended(unit, {state: len(ended)})
    return left


async def insert_ended(unit: Unit, ends: Sequence[End]) -> None:
    """Store how runs ended, with their results and failures."""
    await unit.insert(_END, [_ended_row(each) for each in ends])


def _ended_row(end: End) -> Row:
    run = end.run
    return (
        end.seq,
        end.state.value,
        end.at,
        run.fence,
        run.node,
        run.request,
        micros(run.started_at),
        run.failures,
        run.losses,
        run.cancelling,
        end.reason,
        optional_json(run.progress),
        optional_json(run.failure),
        ending_of(run, end.reason),
        run.result,
    )


async def count_ended(unit: Unit, ended: Mapping[State, int], node: str = "", *, kept_only: bool = False) -> None:
    """Count ended runs; with `kept_only` and negative numbers, subtract runs that are no longer stored."""
    counted = {state: number for state, number in ended.items() if number}
    rows = [(state.value, node, 0 if kept_only else counted[state], counted[state]) for state in sorted(counted)]
    await unit.insert(_COUNT, rows)
    unit.rings |= ENDED if counted and not kept_only else 0


async def free_keys(unit: Unit, records: Iterable[Record]) -> None:
    """Give the dedupe keys of these runs back."""
    if keyed := [record.seq for record in records if record.run.dedupe_key is not None]:
        await unit.run("{free_keys}", keyed)


# --- special cases


async def place_odd(unit: Unit, records: Sequence[Record], now: int) -> None:
    """Move runs that were just added to their tables: held, ended, or waiting although they stand for a range."""
    final = [record for record in records if record.run.final]
    await insert_ended(unit, [End(each.seq, each.run, each.run.state, each.run.reason, now) for each in final])
    await count_ended(unit, Counter(record.run.state for record in final))
    unfinished = [record for record in records if not record.run.final]
    await place_waiting(unit, unfinished)
    unit.rings |= WORK if unfinished else 0  # a service may wait for held runs, to release them


async def place_waiting(unit: Unit, records: Sequence[Record]) -> None:
    """Let runs that are in no table wait where they say: under their hold, in line, or before their group."""
    await _hold(unit, [(record, record.run.hold) for record in records if record.run.hold is not None])
    await wait(unit, [record for record in records if record.run.hold is None])


async def forget(unit: Unit, records: Sequence[Record]) -> list[Record]:
    """Delete waiting runs as if they had never been added, in order; returns those that still waited."""
    leaving = await Leaving.of(unit, records)
    left = await leave(unit, records)
    gone = [record for record in records if record.seq in left]
    if gone:
        await free_keys(unit, gone)
        for sql in (_FORGET, _FORGET_ATTEMPTS, _FORGET_LINES):
            await unit.run(sql, list(left))
        await leaving.move_up(gone)
    return gone
