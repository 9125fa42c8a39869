"""Groups: what becomes of due runs that belong to one, as `rules.admission` says.

Whether a run may enter depends on its own group only. So it is enough to decide about all due entrants of the groups
at hand, each group's in the order of their ready times; the outcome is the same as if every due run of the store had
been decided about first. Everything here happens in a transaction that has locked the groups.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from itertools import chain

from msgspec import Struct

from duly.backends.postgres.codec import read_entry
from duly.backends.postgres.notify import WORK
from duly.backends.postgres.transitions import by_seqs, end_within, members
from duly.backends.postgres.unit_of_work import UnitOfWork
from duly.backends.rows import to_json
from duly.model import EPOCH, Run, State, WhenFull
from duly.model.holds import hold_for_group
from duly.rules.admission import OVERLAP, REPLACED, Admission, admit
from duly.rules.misfires import MISFIRE, is_missed_entrant

# By their groups, not by their times: others may be due before.
_DUE = """
WITH due AS MATERIALIZED (
    SELECT ready_at, id, seq, "group" FROM {ns}.waiting
    WHERE "group" = ANY($1::text[]) AND entering AND ready_at <= $2
)
SELECT due.*, (SELECT r.extra FROM {ns}.runs AS r WHERE r.seq = due.seq) FROM due
ORDER BY ready_at, id
LIMIT $3
"""
# The groups of the $2 entrants that have been due for the longest time.
_DUE_GROUPS = """
WITH {clock}
SELECT "group", now FROM clock LEFT JOIN LATERAL (
    SELECT "group" FROM {ns}.waiting WHERE entering AND ready_at <= clock.now ORDER BY ready_at, id LIMIT $2
) AS w ON true
"""
# The earliest ready time among runs that are pending: not ready at $1, or not decided about by their group yet.
_NEXT_DUE = """
WITH RECURSIVE lines AS (
    (SELECT line, rank FROM {ns}.waiting ORDER BY line, rank LIMIT 1)
    UNION ALL
    SELECT n.line, n.rank FROM lines AS l CROSS JOIN LATERAL (
        SELECT line, rank FROM {ns}.waiting WHERE (line, rank) > (l.line, l.rank) ORDER BY line, rank LIMIT 1
    ) AS n
)
SELECT least(
    (SELECT min(ready_at) FROM {ns}.waiting WHERE entering),
    (
        SELECT min(n.ready_at) FROM lines AS l CROSS JOIN LATERAL (
            SELECT ready_at FROM {ns}.waiting AS w
            WHERE w.line = l.line AND w.rank = l.rank AND w.ready_at > $1 ORDER BY w.ready_at LIMIT 1
        ) AS n
    )
)
"""

_MEMBERS_THAT_WAIT = """
SELECT seq FROM {ns}.waiting WHERE "group" = $1 AND NOT entering
UNION ALL
SELECT seq FROM {ns}.held WHERE "group" = $1 AND member
"""
_HELD_FOR = "SELECT seq FROM {ns}.held WHERE hold = $1"
_ASK_TO_CANCEL = 'UPDATE {ns}.claims SET cancelling = true, reason = $1 WHERE "group" = $2'

_ENTER = """
UPDATE {ns}.waiting SET entering = false WHERE "group" = ANY($1::text[]) AND entering AND seq = ANY($2::bigint[])
"""
_HOLD = """
WITH gone AS (
    DELETE FROM {ns}.waiting WHERE "group" = ANY($1::text[]) AND entering AND seq = ANY($2::bigint[])
    RETURNING seq, line, rank, ready_at, id, "group"
)
INSERT INTO {ns}.held (seq, line, rank, ready_at, id, "group", member, hold)
SELECT seq, line, {urgency}, ready_at, id, "group", false, $3 || "group" FROM gone
"""
# Who waits for others of its group does not start late for any other reason.
_EXCUSE = """
UPDATE {ns}.runs SET extra = (extra::jsonb - 'start_by')::text
WHERE seq = ANY($1::bigint[])
"""


class Entrant(Struct, frozen=True):
    """A due run before its group."""

    ready_at: int
    seq: int
    group: str
    limit: int
    when_full: WhenFull
    start_by: int | None


async def due_groups(unit: UnitOfWork, limit: int, now: int | None) -> tuple[list[str], int]:
    """The groups of the `limit` entrants that have been due for the longest time; and what time it is."""
    rows = await unit.all(_DUE_GROUPS, now, limit)
    return sorted({row[0] for row in rows if row[0] is not None}), rows[0][1]


async def next_due(unit: UnitOfWork, now: int) -> int | None:
    """The earliest ready time among runs that are pending."""
    row = await unit.one(_NEXT_DUE, now)
    return None if row is None else row[0]


async def decide_about(unit: UnitOfWork, groups: Collection[str], now: int, limit: int | None = None) -> int:
    """Decide about the due entrants of these groups, all or the first ones; how many it were."""
    rows = await unit.all(_DUE, list(groups), now, limit)
    entrants = [_entrant(*row) for row in rows]
    if entrants:
        await _Door(unit, entrants, now, await members(unit, {entrant.group for entrant in entrants})).decide()
    return len(entrants)


def _entrant(ready_at: int, _: str, seq: int, group: str, extra_text: str | None) -> Entrant:
    return Entrant(ready_at, seq, group, *read_entry(extra_text))


class _Door:
    """Lets due entrants into their groups, in the order of their ready times, or does what their group says."""

    def __init__(self, unit: UnitOfWork, entrants: Sequence[Entrant], now: int, present: dict[str, int]) -> None:
        self._unit = unit
        self._entrants = entrants
        self._now = now
        self._members = present
        self._entered: defaultdict[str, list[int]] = defaultdict(list)
        self._held: defaultdict[str, list[int]] = defaultdict(list)
        self._answers: dict[tuple[int, WhenFull, int], Admission] = {}

    async def decide(self) -> None:
        """Decide about all of them. Who enters and who is held is written at the end, for all at once."""
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
                    self._held[entrant.group].append(entrant.seq)
                case Admission.REPLACE:
                    await self._replace(entrant)
        await self._end(skipped, State.SKIPPED, OVERLAP)
        await self._end(missed, State.SKIPPED, MISFIRE)
        await self._write()

    async def _write(self) -> None:
        entered = list(chain.from_iterable(self._entered.values()))
        if entered:
            await self._unit.run(_ENTER, list(self._entered), entered)
        held = list(chain.from_iterable(self._held.values()))
        if held:
            await self._unit.run(_HOLD, list(self._held), held, hold_for_group(""))
            timed = {entrant.seq for entrant in self._entrants if entrant.start_by is not None}
            await self._excuse([seq for seq in held if seq in timed])

    async def _excuse(self, seqs: Sequence[int]) -> None:
        if seqs:
            await self._unit.run(_EXCUSE, seqs)

    def _admit(self, entrant: Entrant) -> Admission:
        """What the rule says; it looks at nothing else of a run, so it is asked once for many alike."""
        key = (entrant.limit, entrant.when_full, self._members[entrant.group])
        answer = self._answers.get(key)
        if answer is None:
            answer = self._answers[key] = admit(_sample(entrant), key[2])
        return answer

    def _enter(self, entrant: Entrant) -> None:
        self._members[entrant.group] += 1
        self._entered[entrant.group].append(entrant.seq)

    async def _replace(self, entrant: Entrant) -> None:
        group = entrant.group
        held = [row[0] for row in await self._unit.all(_HELD_FOR, hold_for_group(group))]
        await self._end([*held, *self._held.pop(group, ())], State.SKIPPED, REPLACED)
        waiting = [row[0] for row in await self._unit.all(_MEMBERS_THAT_WAIT, group)]
        gone = await self._end([*waiting, *self._entered.pop(group, ())], State.CANCELLED, REPLACED)
        self._members[group] -= gone
        if self._members[group]:
            await self._unit.run(_ASK_TO_CANCEL, to_json(REPLACED), group)
            self._unit.rings |= WORK
            self._unit.stirs = True
        if self._members[group] < entrant.limit:
            self._enter(entrant)
        else:
            self._held[group].append(entrant.seq)

    async def _end(self, seqs: Sequence[int], state: State, reason: str) -> int:
        """End runs that wait; how many did. One that a claim has just taken is not among them."""
        records = await by_seqs(self._unit, seqs) if seqs else []
        waiting = [record for record in records if record.run.state is State.PENDING]
        return len(await end_within(self._unit, waiting, state, reason, self._now)) if waiting else 0


def _sample(entrant: Entrant) -> Run:
    """A run as far as the rule looks at it."""
    return Run("", "", "", EPOCH, EPOCH, group=entrant.group, limit=entrant.limit, when_full=entrant.when_full)
