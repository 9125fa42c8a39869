"""Groups: what happens to due runs that belong to one, as `rules.admission` defines.

Whether a run may enter depends on its own group only. So it is enough to decide about all due entrants of the groups
at hand, each group's in the order of their ready times; the outcome is the same as if every due run of the store had
been decided about first. That is why a claim can lend the first hundred of a burst without looking at the rest: it
decides about the groups of what it lends and a few more, and `promote` does the others. All this happens in a
transaction that has locked the groups.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from itertools import chain

from msgspec import Struct

from duly.backends.codec import read_entry
from duly.backends.sql.moves import by_seqs, end_within, enter, hold_entrants, members
from duly.backends.sql.notify import WORK
from duly.backends.sql.unit import EVERYTHING, Row, Unit
from duly.model import EPOCH, Run, State, WhenFull
from duly.model.holds import hold_for_group
from duly.rules.admission import OVERLAP, REPLACED, Admission, admit
from duly.rules.misfires import MISFIRE, is_missed_entrant

# Selected by their groups, not by their times: other runs may be due earlier.
_DUE = """
WITH due AS MATERIALIZED (
    SELECT e.ready_at, e.id, e.seq, e."group" FROM {entrants} AS e
    WHERE e."group" = ANY($1::text[]) AND e.ready_at <= $2
    ORDER BY e.ready_at, e.id
    LIMIT $3
)
SELECT due.ready_at, due.seq, due."group", {entry} FROM due INNER JOIN {ns}.runs AS r ON r.seq = due.seq
ORDER BY due.ready_at, due.id
"""

_MEMBERS_THAT_WAIT = """
SELECT w.seq FROM {entered} AS w WHERE w."group" = $1
UNION ALL
SELECT seq FROM {ns}.held WHERE "group" = $1 AND {member}
"""
_HELD_FOR = "SELECT seq FROM {ns}.held WHERE hold = $1"
_ASK_TO_CANCEL = 'UPDATE {ns}.claims SET cancelling = {true}, reason = $1 WHERE "group" = $2'
# A run that waits for its group starts late for that reason alone.
_EXCUSE = "UPDATE {ns}.runs SET extra = {without_start_by} WHERE seq = ANY($1::bigint[])"


class _Entrant(Struct, frozen=True):
    """A due run before its group."""

    ready_at: int
    seq: int
    group: str
    limit: int
    when_full: WhenFull
    start_by: int | None


async def decide_about(
    unit: Unit, groups: Iterable[str], now: int, limit: int = EVERYTHING, chosen: Collection[int] = ()
) -> int:
    """Decide about the due entrants of these groups, all or the first ones; how many there were."""
    return len(await decided(unit, groups, now, limit, chosen))


async def decided(
    unit: Unit, groups: Iterable[str], now: int, limit: int = EVERYTHING, chosen: Collection[int] = ()
) -> dict[int, bool]:
    """The same; by the number of each entrant, whether it entered. One that is `chosen` and enters is left where it is.

    The caller takes those that are chosen from where they wait.
    """
    rows = await unit.all(_DUE, list(groups), now, limit)
    entrants = [_entrant(row) for row in rows]
    if not entrants:
        return {}
    present = await members(unit, {entrant.group for entrant in entrants})
    return await _Admitting(unit, entrants, now, present, chosen).decide()


def _entrant(row: Row) -> _Entrant:
    ready_at, seq, group, *entry = row
    return _Entrant(ready_at, seq, group, *read_entry(entry))


class _Admitting:
    """Lets due entrants into their groups, in the order of their ready times, or does what their group says."""

    def __init__(
        self,
        unit: Unit,
        entrants: Sequence[_Entrant],
        now: int,
        present: dict[str, int],
        chosen: Collection[int],
    ) -> None:
        self._unit = unit
        self._entrants = entrants
        self._now = now
        self._members = present
        self._chosen = chosen
        self._entered: defaultdict[str, list[int]] = defaultdict(list)
        self._held: defaultdict[str, list[int]] = defaultdict(list)
        self._excused: list[int] = []  # those that were held, also if another one replaced them since
        self._answers: dict[tuple[int, WhenFull, int], Admission] = {}

    async def decide(self) -> dict[int, bool]:
        """Decide about all of them. Which runs enter and which are held is written at the end, for all at once."""
        skipped: list[int] = []
        missed: list[int] = []
        for entrant in self._entrants:
            if is_missed_entrant(entrant.start_by, entrant.ready_at, self._now):
                missed.append(entrant.seq)
                continue
            match self._admit(entrant):
                case Admission.ENTER:
                    self._enter(entrant)
                case Admission.SKIP:
                    skipped.append(entrant.seq)
                case Admission.HOLD:
                    self._hold(entrant)
                case Admission.REPLACE:
                    await self._replace(entrant)
        await self._end(skipped, State.SKIPPED, OVERLAP)
        await self._end(missed, State.SKIPPED, MISFIRE)
        return await self._write()

    async def _write(self) -> dict[int, bool]:
        entered = set(chain.from_iterable(self._entered.values()))
        if waiting := [seq for seq in entered if seq not in self._chosen]:
            await enter(self._unit, waiting)
        for group, seqs in self._held.items():
            await hold_entrants(self._unit, group, seqs)
        if self._excused:
            await self._unit.run(_EXCUSE, self._excused)
        return {entrant.seq: entrant.seq in entered for entrant in self._entrants}

    def _admit(self, entrant: _Entrant) -> Admission:
        """The decision of the rule, which depends on nothing else of a run: it is computed once for equal runs."""
        key = (entrant.limit, entrant.when_full, self._members[entrant.group])
        answer = self._answers.get(key)
        if answer is None:
            answer = self._answers[key] = admit(_sample(entrant), key[2])
        return answer

    def _enter(self, entrant: _Entrant) -> None:
        self._members[entrant.group] += 1
        self._entered[entrant.group].append(entrant.seq)

    async def _replace(self, entrant: _Entrant) -> None:
        group = entrant.group
        held = [row[0] for row in await self._unit.all(_HELD_FOR, hold_for_group(group))]
        await self._end([*held, *self._held.pop(group, ())], State.SKIPPED, REPLACED)
        waiting = [row[0] for row in await self._unit.all(_MEMBERS_THAT_WAIT, group)]
        gone = await self._end([*waiting, *self._entered.pop(group, ())], State.CANCELLED, REPLACED)
        self._members[group] -= gone
        if self._members[group]:
            await self._unit.run(_ASK_TO_CANCEL, self._unit.dialect.reason(REPLACED), group)
            self._unit.rings |= WORK
            self._unit.affects_others = True
        if self._members[group] < entrant.limit:
            self._enter(entrant)
        else:
            self._hold(entrant)

    def _hold(self, entrant: _Entrant) -> None:
        self._held[entrant.group].append(entrant.seq)
        if entrant.start_by is not None:
            self._excused.append(entrant.seq)

    async def _end(self, seqs: Sequence[int], state: State, reason: str) -> int:
        """End runs that wait; how many did. One that a claim has just taken is not among them."""
        records = await by_seqs(self._unit, seqs)
        waiting = [record for record in records if record.run.state is State.PENDING]
        return len(await end_within(self._unit, waiting, state, reason, self._now)) if waiting else 0


def _sample(entrant: _Entrant) -> Run:
    """The fields of a run that the rule uses."""
    return Run("", "", "", EPOCH, EPOCH, group=entrant.group, limit=entrant.limit, when_full=entrant.when_full)
