"""Moves of single runs between the tables that say where they stand. The hot paths move many at once, elsewhere."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from duly.backends.rows import micros, optional_json
from duly.backends.sqlite.codec import Record, read_records
from duly.backends.sqlite.interning import SPAN, rank_of
from duly.backends.sqlite.unit_of_work import ENDED, WORK, Row, UnitOfWork, as_list
from duly.model import Run, State, to_micros
from duly.model.holds import UNPLACED, hold_for_group

_BY_IDS = "SELECT {run} FROM json_each(?) AS wanted CROSS JOIN {ns}_runs AS r ON r.id = wanted.value {standing}"
_BY_SEQS = "SELECT {run} FROM json_each(?) AS wanted CROSS JOIN {ns}_runs AS r ON r.seq = wanted.value {standing}"

_WAIT = 'INSERT INTO {ns}_waiting (line, ready_at, id, seq, kind, "group") VALUES (?, ?, ?, ?, ?, ?)'
_WAIT_TO_ENTER = 'INSERT INTO {ns}_entrants (line, ready_at, id, seq, kind, "group") VALUES (?, ?, ?, ?, ?, ?)'
_LEAVE = "DELETE FROM {ns}_waiting WHERE line = ? AND ready_at = ? AND id = ?"
_LEAVE_ENTRANTS = "DELETE FROM {ns}_entrants WHERE line = ? AND ready_at = ? AND id = ?"

_HOLD = """
INSERT INTO {ns}_held (hold, rank, ready_at, id, seq, line, kind, "group", member)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_LEAVE_HELD = "DELETE FROM {ns}_held WHERE seq = ?"

# Put the first runs under a hold back: members and those without a group in line, the others before their group.
_UNHOLD = """
INSERT INTO {ns}_waiting (line, ready_at, id, seq, kind, "group")
SELECT line, ready_at, id, seq, kind, "group"
FROM (SELECT * FROM {ns}_held WHERE hold = ? ORDER BY rank, ready_at, id LIMIT ?)
WHERE "group" IS NULL OR member = 1
"""
_UNHOLD_TO_ENTER = """
INSERT INTO {ns}_entrants (line, ready_at, id, seq, kind, "group")
SELECT line, ready_at, id, seq, kind, "group"
FROM (SELECT * FROM {ns}_held WHERE hold = ? ORDER BY rank, ready_at, id LIMIT ?)
WHERE "group" IS NOT NULL AND member = 0
"""
_LEAVE_HOLD = """
DELETE FROM {ns}_held
WHERE (hold, rank, ready_at, id) IN (
    SELECT hold, rank, ready_at, id FROM {ns}_held WHERE hold = ? ORDER BY rank, ready_at, id LIMIT ?
)
"""

_FIRST_LINES = "SELECT seq, line FROM {ns}_held WHERE hold = ? ORDER BY rank, ready_at, id LIMIT ?"
_RELOCATE = "UPDATE {ns}_runs SET line = ? WHERE seq = ?"
_RELOCATE_HELD = "UPDATE {ns}_held SET line = ? WHERE seq = ?"

_FIRST_HELD = "SELECT kind FROM {ns}_held WHERE hold = ? ORDER BY rank, ready_at, id LIMIT 1"

# How many members groups have: those that run, those that wait for a retry or to be claimed, and those that are held.
_MEMBERS = """
SELECT name, members FROM (
    SELECT
        value AS name,
        (SELECT count(*) FROM {ns}_claims WHERE "group" = value)
        + (SELECT count(*) FROM {ns}_waiting WHERE "group" = value)
        + (SELECT count(*) FROM {ns}_held WHERE "group" = value AND member = 1) AS members
    FROM json_each(?)
)
WHERE members > 0
"""

_END = """
INSERT INTO {ns}_ended (
    seq, state, finished_at, fence, node, request, started_at, failures, losses, cancelling, reason, progress, failure,
    result
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_COUNT = """
INSERT INTO {ns}_totals (state, ended, kept) VALUES (?1, ?2, ?3)
ON CONFLICT (state) DO UPDATE SET ended = ended + ?2, kept = kept + ?3
"""
_FREE_KEYS = "DELETE FROM {ns}_keys WHERE seq IN (SELECT value FROM json_each(?))"
_FORGET = "DELETE FROM {ns}_runs WHERE seq = ?"
_FORGET_ATTEMPTS = "DELETE FROM {ns}_attempts WHERE seq = ?"


# --- finding


def by_ids(unit: UnitOfWork, run_ids: Iterable[str]) -> dict[str, Record]:
    """The runs of these ids that exist, as they stand."""
    records = read_records(unit, unit.all(_BY_IDS, as_list(run_ids)))
    return {record.run.id: record for record in records}


def by_seqs(unit: UnitOfWork, seqs: Iterable[int]) -> list[Record]:
    """The runs of these numbers, in order."""
    return read_records(unit, unit.all(_BY_SEQS, as_list(seqs)))


# --- waiting


def wait(unit: UnitOfWork, record: Record) -> None:
    """Let a run that is nowhere wait: before its group, unless it is a member or has none."""
    sql = _WAIT_TO_ENTER if record.entrant else _WAIT
    ready_at = to_micros(record.run.ready_at)
    unit.run(sql, record.line, ready_at, record.run.id, record.seq, record.kind, record.run.group)


def wait_again(unit: UnitOfWork, record: Record, held: str | None = None) -> None:
    """Let a run that has been claimed or ended wait: under that hold, to be placed, or for its time."""
    if held is not None or record.run.assignable:
        hold(unit, record, held or UNPLACED, nobodys=True)
    else:
        wait(unit, record)


def leave(unit: UnitOfWork, record: Record) -> None:
    """Take a waiting run from where it waits."""
    if record.run.hold is not None:
        unit.run(_LEAVE_HELD, record.seq)
    else:
        sql = _LEAVE_ENTRANTS if record.entrant else _LEAVE
        unit.run(sql, record.line, to_micros(record.run.ready_at), record.run.id)


# --- holding


def hold(unit: UnitOfWork, record: Record, key: str, *, nobodys: bool = False) -> None:
    """Hold a run that is nowhere. One that is yet to be placed is nobody's."""
    line = record.line
    if (nobodys or key == UNPLACED) and record.run.assignee is not None:
        line = relocate(unit, record.seq, line, "")
    unit.run(
        _HOLD,
        key,
        rank_of(line),
        to_micros(record.run.ready_at),
        record.run.id,
        record.seq,
        line,
        record.kind,
        record.run.group,
        int(record.run.member),
    )


def relocate(unit: UnitOfWork, seq: int, line: int, node: str | None) -> int:
    """Make a run that is nowhere one for this node, "" for one yet to be placed, None for anybody; its line then."""
    queue, _ = unit.names.home(unit, line)
    moved = unit.names.line_for(unit, (queue, node)) + line % SPAN
    unit.run(_RELOCATE, moved, seq)
    return moved


def unhold(unit: UnitOfWork, key: str, limit: int) -> int:
    """Put the first runs under a hold back; how many."""
    if key == UNPLACED:
        for seq, line in unit.all(_FIRST_LINES, key, limit):
            unit.run(_RELOCATE_HELD, relocate(unit, seq, line, None), seq)
    back = unit.run(_UNHOLD, key, limit) + unit.run(_UNHOLD_TO_ENTER, key, limit)
    if back:
        unit.run(_LEAVE_HOLD, key, limit)
        unit.rings |= WORK
    return back


def release(unit: UnitOfWork, freed: Mapping[str, int]) -> None:
    """Members have left their groups: as many of the runs held for each wait again, the first ones first."""
    for group, places in freed.items():
        unhold(unit, hold_for_group(group), places)


def pass_on(unit: UnitOfWork, group: str) -> None:
    """A run that was no member leaves: a place that it may have been offered goes to the next in line.

    That one would otherwise wait for ever, since no member is left to end.
    """
    key = hold_for_group(group)
    first = unit.one(_FIRST_HELD, key)
    if first is not None and members(unit, [group])[group] < unit.names.kind(unit, first[0]).limit:
        unhold(unit, key, 1)


def members(unit: UnitOfWork, groups: Iterable[str]) -> defaultdict[str, int]:
    """How many members these groups have."""
    return defaultdict(int, unit.all(_MEMBERS, as_list(groups)))


def _out_of_group(unit: UnitOfWork, run: Run) -> None:
    if run.group is not None and run.member:
        release(unit, {run.group: 1})
    elif run.group is not None:
        pass_on(unit, run.group)


# --- ending


def end(unit: UnitOfWork, record: Record, state: State, reason: str | None, now: int) -> None:
    """Give a waiting run its final state; its place in the group goes to the next in line."""
    end_within(unit, record, state, reason, now)
    _out_of_group(unit, record.run)


def end_within(unit: UnitOfWork, record: Record, state: State, reason: str | None, now: int) -> None:
    """The same while its group is being decided about: nobody moves up."""
    leave(unit, record)
    insert_ended(unit, record.seq, record.run, state, reason, now)
    if record.run.dedupe_key is not None:
        free_keys(unit, [record.seq])
    count_ended(unit, {state: 1})


def insert_ended(unit: UnitOfWork, seq: int, run: Run, state: State, reason: str | None, now: int) -> None:
    """Write down how a run ended, with what it brought along."""
    unit.run(
        _END,
        seq,
        state.value,
        now,
        run.fence,
        run.node,
        run.request,
        micros(run.started_at),
        run.failures,
        run.losses,
        int(run.cancelling),
        reason,
        optional_json(run.progress),
        optional_json(run.failure),
        run.result,
    )


def count_ended(unit: UnitOfWork, ended: Mapping[State, int], *, kept_only: bool = False) -> None:
    """Count runs that ended; or, negative and kept only, such as are no longer kept as ended."""
    for state, number in ended.items():
        unit.run(_COUNT, state.value, 0 if kept_only else number, number)
        unit.rings |= 0 if kept_only else ENDED


def free_keys(unit: UnitOfWork, seqs: Iterable[int]) -> None:
    """Give the dedupe keys of these runs back."""
    unit.run(_FREE_KEYS, as_list(seqs))


# --- the odd ones


def place_odd(unit: UnitOfWork, seq: int, run: Run, row: Row, now: int) -> None:
    """Put a run that was just added where it belongs: held, ended, or waiting though it stands for a range."""
    record = Record(seq, row[3], row[2], run)
    if run.final:
        insert_ended(unit, seq, run, run.state, run.reason, now)
        count_ended(unit, {run.state: 1})
    elif run.hold is not None:
        hold(unit, record, run.hold)
        unit.rings |= WORK  # somebody may wait for it, to put it back
    else:
        wait(unit, record)


def forget(unit: UnitOfWork, record: Record) -> None:
    """Delete a waiting run as if it had never been."""
    leave(unit, record)
    unit.run(_FORGET, record.seq)
    unit.run(_FORGET_ATTEMPTS, record.seq)
    if record.run.dedupe_key is not None:
        free_keys(unit, [record.seq])
    _out_of_group(unit, record.run)
