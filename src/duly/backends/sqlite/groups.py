"""Groups: what becomes of due runs that belong to one, as `rules.admission` says.

Whether a run may enter depends on its own group only. So it is enough to decide about all due entrants of the groups
at hand, each group's in the order of their ready times; the outcome is the same as if every due run of the store had
been decided about first. That is why a claim can lend the first hundred of a burst without looking at the rest: it
decides about the groups of what it lends and at most a slice besides, and `promote` does the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from itertools import chain

from msgspec import Struct

from duly.backends.sqlite.codec import read_start_by
from duly.backends.sqlite.interning import Kind, rank_of
from duly.backends.sqlite.transitions import by_seqs, end_within, members
from duly.backends.sqlite.unit_of_work import WORK, Row, UnitOfWork, as_list
from duly.backends.sqlite.waiting_index import ENTERING, GROUP, READY_AT, SEQ, WaitingLine, due_entrants
from duly.model import State, WhenFull
from duly.model.holds import hold_for_group
from duly.rules.admission import OVERLAP, REPLACED, Admission, admit
from duly.rules.misfires import LATE, MISFIRE, is_missed_entrant

# Whether one of these groups has a member, or more than one run before it that is due at ?2.
_ANY_CROWD = """
SELECT 1 FROM json_each(?1)
WHERE EXISTS (SELECT 1 FROM {ns}_claims WHERE "group" = value)
    OR EXISTS (SELECT 1 FROM {ns}_waiting WHERE "group" = value)
    OR EXISTS (SELECT 1 FROM {ns}_held WHERE "group" = value AND member = 1)
    OR (SELECT count(*) FROM {ns}_entrants WHERE "group" = value AND ready_at <= ?2) > 1
LIMIT 1
"""
_DUE = """
SELECT ready_at, id, line, seq, kind, "group", (SELECT extra FROM {ns}_runs AS r WHERE r.seq = e.seq)
FROM {ns}_entrants AS e
WHERE "group" IN (SELECT value FROM json_each(?)) AND ready_at <= ?
ORDER BY ready_at, id
"""

_EXTRAS = "SELECT seq, extra FROM {ns}_runs WHERE seq IN (SELECT value FROM json_each(?))"

_MEMBERS_THAT_WAIT = """
SELECT seq FROM {ns}_waiting WHERE "group" = ?1
UNION ALL
SELECT seq FROM {ns}_held WHERE "group" = ?1 AND member = 1
"""
_HELD_FOR = "SELECT seq FROM {ns}_held WHERE hold = ?"
_ASK_TO_CANCEL = 'UPDATE {ns}_claims SET cancelling = 1, reason = ? WHERE "group" = ?'

_ENTER = """
INSERT INTO {ns}_waiting (line, ready_at, id, seq, kind, "group") VALUES {rows:(?, ?, ?, ?, ?, ?)}
"""
_HOLD = """
INSERT INTO {ns}_held (hold, rank, ready_at, id, seq, line, kind, "group", member) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0)
"""
# Who waits for others of its group does not start late for any other reason.
_EXCUSE = "UPDATE {ns}_runs SET extra = json_remove(extra, '$.start_by') WHERE seq = ?"
_LEAVE = "DELETE FROM {ns}_entrants WHERE line = ? AND ready_at = ? AND id = ?"
_LEAVE_UP_TO = "DELETE FROM {ns}_entrants WHERE line = ? AND (ready_at, id) <= (?, ?)"


class Entrant(Struct, frozen=True):
    """A due run before its group."""

    ready_at: int
    id: str
    line: int
    seq: int
    kind: int
    group: str
    start_by: int | None


def _entrant(ready_at: int, run_id: str, line: int, seq: int, kind: int, group: str, extra: str | None) -> Entrant:
    return Entrant(ready_at, run_id, line, seq, kind, group, read_start_by(extra))


def promote(unit: UnitOfWork, lines: Iterable[WaitingLine], limit: int, now: int) -> int:
    """Decide about the entrants of these lines that have been due for the longest time; how many it were."""
    entrants = [_entrant(*row) for row in due_entrants(unit, lines, limit, now)]
    if entrants:
        _Door(unit, entrants, now, members(unit, {entrant.group for entrant in entrants})).decide()
        for head in {entrant.line: entrant for entrant in entrants}.values():
            unit.run(_LEAVE_UP_TO, head.line, head.ready_at, head.id)
    return len(entrants)


def decide_about(unit: UnitOfWork, rows: Collection[Row], now: int) -> set[int]:
    """Decide about the groups of runs that are about to be lent; which of these may not.

    Those of `rows` that enter are left to the caller, who lends or holds them; all others are moved here.
    """
    groups = {row[GROUP] for row in rows if row[GROUP] is not None}
    wanted = as_list(groups)
    chosen = {row[SEQ] for row in rows if row[ENTERING]}
    late = {row[SEQ]: row[READY_AT] for row in rows if row[ENTERING] and row[READY_AT] + LATE < now}
    missed = late and any(
        is_missed_entrant(read_start_by(extra), late[seq], now) for seq, extra in unit.all(_EXTRAS, as_list(late))
    )
    if not missed and len(chosen) == len(groups) and unit.one(_ANY_CROWD, wanted, now) is None:
        return set()  # each is alone before an empty group, which lets it in whatever the rule
    entrants = [_entrant(*row) for row in unit.all(_DUE, wanted, now)]
    if not entrants:
        return set()
    out = _Door(unit, entrants, now, members(unit, groups), chosen).decide()
    unit.many(_LEAVE, [(each.line, each.ready_at, each.id) for each in entrants if each.seq not in chosen])
    return out


class _Door:
    """Lets due entrants into their groups, in the order of their ready times, or does what their group says.

    That they are no longer before their group afterwards is the caller's to write.
    """

    def __init__(
        self,
        unit: UnitOfWork,
        entrants: Sequence[Entrant],
        now: int,
        present: defaultdict[str, int],
        chosen: Collection[int] = (),
    ) -> None:
        self._unit = unit
        self._entrants = entrants
        self._chosen = chosen
        self._now = now
        self._members = present
        self._entered: defaultdict[str, list[Entrant]] = defaultdict(list)
        self._out: set[int] = set()
        self._kinds = unit.names.kinds(unit, {entrant.kind for entrant in entrants})
        self._answers: dict[tuple[int, WhenFull, int], Admission] = {}

    def decide(self) -> set[int]:
        """Decide about all of them; those that are not to be lent now."""
        for entrant in self._entrants:
            if is_missed_entrant(entrant.start_by, entrant.ready_at, self._now):
                self._end([entrant.seq], State.SKIPPED, MISFIRE)
                continue
            match self._admit(self._kinds[entrant.kind], self._members[entrant.group]):
                case Admission.ENTER:
                    self._enter(entrant)
                case Admission.SKIP:
                    self._end([entrant.seq], State.SKIPPED, OVERLAP)
                case Admission.HOLD:
                    self._hold(entrant)
                case Admission.REPLACE:
                    self._replace(entrant)
        entered = chain.from_iterable(self._entered.values())
        waiting = [each for each in entered if each.seq not in self._chosen]
        rows = [(each.line, each.ready_at, each.id, each.seq, each.kind, each.group) for each in waiting]
        self._unit.insert(_ENTER, rows)
        return self._out

    def _admit(self, kind: Kind, members: int) -> Admission:
        """What the rule says; it looks at nothing else of a run, so it is asked once for many alike."""
        key = (kind.limit, kind.when_full, members)
        answer = self._answers.get(key)
        if answer is None:
            answer = self._answers[key] = admit(kind.sample(), members)
        return answer

    def _enter(self, entrant: Entrant) -> None:
        self._members[entrant.group] += 1
        self._entered[entrant.group].append(entrant)

    def _hold(self, entrant: Entrant) -> None:
        key, rank = hold_for_group(entrant.group), rank_of(entrant.line)
        self._unit.run(
            _HOLD, key, rank, entrant.ready_at, entrant.id, entrant.seq, entrant.line, entrant.kind, entrant.group
        )
        if entrant.start_by is not None:
            self._unit.run(_EXCUSE, entrant.seq)
        self._out.add(entrant.seq)

    def _replace(self, entrant: Entrant) -> None:
        group = entrant.group
        self._end([seq for (seq,) in self._unit.all(_HELD_FOR, hold_for_group(group))], State.SKIPPED, REPLACED)
        waiting = [seq for (seq,) in self._unit.all(_MEMBERS_THAT_WAIT, group)]
        waiting += [entered.seq for entered in self._entered.pop(group, ())]
        self._end(waiting, State.CANCELLED, REPLACED)
        self._members[group] -= len(waiting)
        if self._members[group]:
            self._unit.run(_ASK_TO_CANCEL, REPLACED, group)
            self._unit.rings |= WORK
        if self._members[group] < self._kinds[entrant.kind].limit:
            self._enter(entrant)
        else:
            self._hold(entrant)

    def _end(self, seqs: Sequence[int], state: State, reason: str) -> None:
        for record in by_seqs(self._unit, seqs) if seqs else ():
            end_within(self._unit, record, state, reason, self._now)
            self._out.add(record.seq)
