"""Groups: what becomes of due runs that belong to one, as `rules.admission` says.

Whether a run may enter depends on its own group only. So it is enough to decide about all due entrants of the groups
at hand, each group's in the order of their ready times; the outcome is the same as if every due run of the store had
been decided about first. That is why a claim can lend the first hundred of a burst without looking at the rest: it
decides about the groups of what it lends and a bounded slice besides, and `promote` does the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable

from msgspec import Struct

from duly.backends.sqlite.line import ENTERING, GROUP, ID, KIND, LINE, READY_AT, SEQ, Line, due_entrants
from duly.backends.sqlite.moves import by_seqs, end_within, members
from duly.backends.sqlite.names import SPAN
from duly.backends.sqlite.unit import WORK, Row, Unit, as_list
from duly.model import State
from duly.rules.admission import OVERLAP, REPLACED, Admission, admit, hold_for_group

_COUNT_DUE = """
SELECT count(*) FROM {ns}_entrants WHERE "group" IN (SELECT value FROM json_each(?)) AND ready_at <= ?
"""
_DUE = """
SELECT ready_at, id, line, seq, kind, "group" FROM {ns}_entrants
WHERE "group" IN (SELECT value FROM json_each(?)) AND ready_at <= ?
ORDER BY "group", ready_at, id
"""

_MEMBERS_THAT_WAIT = """
SELECT seq FROM {ns}_waiting WHERE "group" = ?1
UNION ALL
SELECT seq FROM {ns}_held WHERE "group" = ?1 AND member = 1
"""
_HELD_FOR = "SELECT seq FROM {ns}_held WHERE hold = ?"
_ASK_TO_CANCEL = 'UPDATE {ns}_claims SET cancelling = 1, reason = ? WHERE "group" = ?'

_ENTER = 'INSERT INTO {ns}_waiting (line, ready_at, id, seq, kind, "group") VALUES (?, ?, ?, ?, ?, ?)'
_HOLD = """
INSERT INTO {ns}_held (hold, rank, ready_at, id, seq, line, kind, "group", member) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0)
"""
_LEAVE = "DELETE FROM {ns}_entrants WHERE line = ? AND ready_at = ? AND id = ?"


class Entrant(Struct, frozen=True):
    """A due run before its group."""

    ready_at: int
    id: str
    line: int
    seq: int
    kind: int
    group: str


class Decided(Struct):
    """Which runs have become members, which are out of their line, and how many were decided about."""

    entered: set[int] = set()
    gone: set[int] = set()
    looked_at: int = 0


def promote(unit: Unit, lines: Iterable[Line], limit: int, now: int) -> int:
    """Decide about the entrants of these lines that have been due for the longest time; how many it were."""
    entrants = [Entrant(*row) for row in due_entrants(unit, lines, limit, now)]
    if not entrants:
        return 0
    return _Door(unit, {entrant.group for entrant in entrants}, (), now).decide(entrants).looked_at


def decide_about(unit: Unit, rows: Collection[Row], now: int) -> Decided:
    """Decide about the groups of runs that are about to be lent.

    Those of `rows` that enter are left to the caller, who lends or holds them; all others are moved here.
    """
    groups = {row[GROUP] for row in rows if row[GROUP] is not None}
    wanted = as_list(groups)
    chosen = {row[SEQ]: row for row in rows if row[ENTERING]}
    due = unit.one(_COUNT_DUE, wanted, now)
    if due == (len(chosen),):  # nobody else is before these groups: no need to read again
        entrants = [
            Entrant(row[READY_AT], row[ID], row[LINE], row[SEQ], row[KIND], row[GROUP]) for row in chosen.values()
        ]
        entrants.sort(key=lambda entrant: (entrant.ready_at, entrant.id))
    else:
        entrants = [Entrant(*row) for row in unit.all(_DUE, wanted, now)]
    return _Door(unit, groups, chosen, now).decide(entrants)


class _Door:
    """Lets entrants of some groups in, one after the other, or does with them what their group says."""

    def __init__(self, unit: Unit, groups: Iterable[str], chosen: Collection[int], now: int) -> None:
        self._unit = unit
        self._chosen = chosen
        self._now = now
        self._decided = Decided()
        self._entered: defaultdict[str, list[int]] = defaultdict(list)
        self._members = members(unit, groups)

    def decide(self, entrants: Iterable[Entrant]) -> Decided:
        for entrant in entrants:
            self._decided.looked_at += 1
            match admit(self._unit.names.kind(self._unit, entrant.kind).entrant, self._members[entrant.group]):
                case Admission.ENTER:
                    self._enter(entrant)
                case Admission.SKIP:
                    self._end([entrant.seq], State.SKIPPED, OVERLAP)
                case Admission.HOLD:
                    self._hold(entrant)
                case Admission.REPLACE:
                    self._replace(entrant)
        return self._decided

    def _enter(self, entrant: Entrant) -> None:
        self._members[entrant.group] += 1
        self._decided.entered.add(entrant.seq)
        if entrant.seq in self._chosen:
            self._entered[entrant.group].append(entrant.seq)
            return
        place = (entrant.line, entrant.ready_at, entrant.id)
        self._unit.run(_LEAVE, *place)
        self._unit.run(_ENTER, *place, entrant.seq, entrant.kind, entrant.group)

    def _hold(self, entrant: Entrant) -> None:
        key, rank = hold_for_group(entrant.group), entrant.line % SPAN
        self._unit.run(_LEAVE, entrant.line, entrant.ready_at, entrant.id)
        self._unit.run(
            _HOLD, key, rank, entrant.ready_at, entrant.id, entrant.seq, entrant.line, entrant.kind, entrant.group
        )
        self._decided.gone.add(entrant.seq)

    def _replace(self, entrant: Entrant) -> None:
        group = entrant.group
        self._end([seq for (seq,) in self._unit.all(_HELD_FOR, hold_for_group(group))], State.SKIPPED, REPLACED)
        waiting = [seq for (seq,) in self._unit.all(_MEMBERS_THAT_WAIT, group)] + self._entered.pop(group, [])
        self._end(waiting, State.CANCELLED, REPLACED)
        self._decided.entered.difference_update(waiting)
        self._members[group] -= len(waiting)
        if self._members[group]:
            self._unit.run(_ASK_TO_CANCEL, REPLACED, group)
            self._unit.rings |= WORK
        if self._members[group] < self._unit.names.kind(self._unit, entrant.kind).limit:
            self._enter(entrant)
        else:
            self._hold(entrant)

    def _end(self, seqs: list[int], state: State, reason: str) -> None:
        for record in by_seqs(self._unit, seqs) if seqs else ():
            end_within(self._unit, record, state, reason, self._now)
            self._decided.gone.add(record.seq)
