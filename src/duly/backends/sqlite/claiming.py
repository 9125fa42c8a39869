"""Claims: which runs wait, in which order they are due, and lending them.

A place is all waiting runs of one queue, node, priority and kind (scheduled or not), by ready time, then id. There are
few places, so the distinct ones are found by a loose index scan instead of a scan of their runs.

A claim looks at the first runs of the places it may take from, the most urgent rank first, and moves them into the
claims, or into their hold; both leave the place, so that no later claim reads them again. Entrants among them are
decided about by their groups first (`sql.groups`). One claim examines a bounded number of runs: if more remain,
`next_due` lies in the past.

PostgreSQL has its own implementation, since it can do all this in one statement and one round trip. SQLite has no
statement that changes several tables, and no round trips to save.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from heapq import merge
from itertools import chain, groupby

from msgspec import Struct
from msgspec.structs import replace

from duly.backends.codec import SCHEDULED, Lender, Record, read_start_by, urgency_of
from duly.backends.sql.groups import decide_about, decided
from duly.backends.sql.moves import by_ids, by_seqs, relocate, unhold
from duly.backends.sql.moves import leave as leave_hold
from duly.backends.sql.operating import is_paused, paused
from duly.backends.sql.unit import Row
from duly.backends.sqlite.interning import SPAN
from duly.backends.sqlite.unit import SqliteUnit, as_list
from duly.backends.tolerance import tolerantly
from duly.model import Claim, Delivery, State, to_micros
from duly.model.holds import UNPLACED, hold_for_handler
from duly.ports import FROZEN
from duly.rules.admission import hold_of
from duly.rules.misfires import LATE, is_missed_entrant
from duly.rules.sharing import scheduled_share, shared

_MOST_EXAMINED = 5_000
_SLICE = 32
_UNHOLD_SLICE = 1_000

# The places that have runs, of those that may start (0) and of those that wait to enter their group (1), with the ready
# time of the first run and of the first that is not ready yet.
_SURVEY = """
WITH RECURSIVE
waiting_lines (line) AS (
    SELECT min(line) FROM {ns}.waiting
    UNION ALL
    SELECT (SELECT min(line) FROM {ns}.waiting WHERE line > waiting_lines.line)
    FROM waiting_lines WHERE waiting_lines.line IS NOT NULL
),
entrant_lines (line) AS (
    SELECT min(line) FROM {ns}.entrants
    UNION ALL
    SELECT (SELECT min(line) FROM {ns}.entrants WHERE line > entrant_lines.line)
    FROM entrant_lines WHERE entrant_lines.line IS NOT NULL
)
SELECT 0, l.line,
    (SELECT min(ready_at) FROM {ns}.waiting WHERE line = l.line),
    (SELECT min(ready_at) FROM {ns}.waiting WHERE line = l.line AND ready_at > ?1)
FROM waiting_lines AS l WHERE l.line IS NOT NULL
UNION ALL
SELECT 1, l.line,
    (SELECT min(ready_at) FROM {ns}.entrants WHERE line = l.line),
    (SELECT min(ready_at) FROM {ns}.entrants WHERE line = l.line AND ready_at > ?1)
FROM entrant_lines AS l WHERE l.line IS NOT NULL
"""

# The first runs of a place that are ready, with what a claim needs.
_READY = """
SELECT w.ready_at, w.id, w.line, 0, w.seq, w.kind, w."group", r.due, r.created_at, r.extra, r.payload
FROM {ns}.waiting AS w CROSS JOIN {ns}.runs AS r ON r.seq = w.seq
WHERE w.line = ? AND w.ready_at <= ?
ORDER BY w.ready_at, w.id
LIMIT ?
"""
_READY_TO_ENTER = _READY.replace("w.line, 0,", "w.line, 1,").replace("{ns}.waiting", "{ns}.entrants")

_DUE_ENTRANTS = """
SELECT ready_at, id, "group" FROM {ns}.entrants WHERE line = ? AND ready_at <= ? ORDER BY ready_at, id LIMIT ?
"""

# Remove the first runs of a place, up to and including one run.
_LEAVE = "DELETE FROM {ns}.waiting WHERE line = ? AND (ready_at, id) <= (?, ?)"
_LEAVE_ENTERING = "DELETE FROM {ns}.entrants WHERE line = ? AND (ready_at, id) <= (?, ?)"

# Positions in a row of _READY.
READY_AT, ID, LINE, ENTERING, SEQ, KIND, GROUP, DUE, CREATED_AT, EXTRA, PAYLOAD = range(11)

_LAST_REQUEST = "SELECT request FROM {ns}.requests WHERE node = ?"
_SET_REQUEST = """
INSERT INTO {ns}.requests (node, request, at) VALUES (?1, ?2, ?3)
ON CONFLICT (node) DO UPDATE SET request = max(request, ?2), at = ?3
"""
_LENT_BEFORE = "SELECT seq FROM {ns}.claims WHERE node = ? AND request = ? ORDER BY seq"

_ANY_BLOCKED = "SELECT 1 FROM {ns}.jobs WHERE blocked = 1 LIMIT 1"
_BLOCKED = """
SELECT j.name FROM json_each(?) AS wanted CROSS JOIN {ns}.jobs AS j ON j.name = wanted.value WHERE j.blocked = 1
"""

# The holds that begin with a text, found by a loose index scan.
_HANDLER_HOLDS = """
WITH RECURSIVE holds (hold) AS (
    SELECT min(hold) FROM {ns}.held WHERE hold >= ?1 AND hold < ?2
    UNION ALL
    SELECT (SELECT min(hold) FROM {ns}.held WHERE hold > holds.hold AND hold < ?2)
    FROM holds WHERE holds.hold IS NOT NULL
)
SELECT hold FROM holds WHERE hold IS NOT NULL
"""

# Whether one of these groups has a member, or more than one run before it that is due at ?2.
_ANY_CROWD = """
SELECT 1 FROM json_each(?1)
WHERE EXISTS (SELECT 1 FROM {ns}.claims WHERE "group" = value)
    OR EXISTS (SELECT 1 FROM {ns}.waiting WHERE "group" = value)
    OR EXISTS (SELECT 1 FROM {ns}.held WHERE "group" = value AND member = 1)
    OR (SELECT count(*) FROM {ns}.entrants WHERE "group" = value AND ready_at <= ?2) > 1
LIMIT 1
"""

# Lend runs under their fences. ?1 node, ?2 request, ?3 now, ?4 expiry.
_LEND = """
INSERT INTO {ns}.claims (seq, fence, node, request, started_at, expires_at)
VALUES {rows:(?, ?, ?1, ?2, ?3, ?4)}
"""
# The same for members of groups and runs with a dedupe key; '' means no group.
_LEND_RICH = """
INSERT INTO {ns}.claims (seq, fence, "group", keyed, node, request, started_at, expires_at)
VALUES {rows:(?, ?, nullif(?, ''), ?, ?1, ?2, ?3, ?4)}
"""


# --- what waits


class WaitingPlace(Struct, frozen=True):
    """One place: whether its runs wait to enter their group, its number, its first run, its first one not ready yet."""

    entering: bool
    number: int
    head: int
    later: int | None

    @property
    def urgency(self) -> int:
        """A smaller number is more urgent."""
        return urgency_of(self.number % SPAN)

    @property
    def scheduled(self) -> bool:
        """Whether its runs are those of schedules."""
        return self.number % SPAN < SCHEDULED


def survey(unit: SqliteUnit, now: int) -> list[WaitingPlace]:
    """All places that have runs."""
    return [
        WaitingPlace(bool(entering), number, head, later) for entering, number, head, later in unit.select(_SURVEY, now)
    ]


def earliest_later(places: Iterable[WaitingPlace]) -> int | None:
    """The time at which the next run becomes ready."""
    return min((place.later for place in places if place.later is not None), default=None)


def _ready(unit: SqliteUnit, places: Sequence[WaitingPlace], limit: int, owed: int, now: int) -> list[Row]:
    """The first runs of places of one urgency that are ready, in order; `owed` scheduled ones if there are."""
    scheduled = [place for place in places if place.scheduled]
    if not scheduled or len(scheduled) == len(places):
        return _first_ready(unit, places, limit, now)
    planned = _first_ready(unit, scheduled, limit, now)
    others = _first_ready(unit, [place for place in places if not place.scheduled], limit, now)
    first, other = shared(planned, others, limit, owed)
    return [*merge(planned[:first], others[:other])]


def _first_ready(unit: SqliteUnit, places: Sequence[WaitingPlace], limit: int, now: int) -> list[Row]:
    heads = [unit.select(_READY_TO_ENTER if each.entering else _READY, each.number, now, limit) for each in places]
    return heads[0] if len(heads) == 1 else sorted(chain.from_iterable(heads))[:limit]


def _leave(unit: SqliteUnit, rows: Sequence[Row]) -> None:
    """Remove runs that `_ready` returned from their places: all that it returned, in order, or the first of them."""
    last = {(row[LINE], row[ENTERING]): row for row in rows}
    for (line, entering), row in last.items():
        unit.execute(_LEAVE_ENTERING if entering else _LEAVE, line, row[READY_AT], row[ID])


def next_due(unit: SqliteUnit, now: int) -> int | None:
    """The earliest ready time among runs that are pending: not ready yet, or not decided about by their group yet."""
    places = survey(unit, now)
    undecided = (place.head for place in places if place.entering and place.head <= now)
    return min(undecided, default=earliest_later(places))


def _due_entrants(unit: SqliteUnit, places: Iterable[WaitingPlace], limit: int, now: int) -> list[Row]:
    """The entrants in these places that have been due for the longest time: ready time, id and group."""
    due = (place.number for place in places if place.entering and place.head <= now)
    heads = chain.from_iterable(unit.select(_DUE_ENTRANTS, number, now, limit) for number in due)
    return sorted(heads)[:limit]


async def promote(unit: SqliteUnit, limit: int, now: int) -> int:
    """Decide about the groups of the entrants that have been due for the longest time; about how many."""
    entrants = _due_entrants(unit, survey(unit, now), limit, now)
    return await decide_about(unit, {row[2] for row in entrants}, now, limit) if entrants else 0


# --- claiming


class Asking(Struct, frozen=True):
    """The node that asks, and for what. Instants in microseconds."""

    node: str
    queues: Sequence[str] | None
    handlers: Collection[str] | None
    limit: int
    request: int
    now: int
    expires_at: int


async def claim(unit: SqliteUnit, asking: Asking) -> tuple[list[Claim], int | None]:
    """Lend runs, or return those that the same request lent before; and when the next run is due."""
    claims = await _lent_before(unit, asking)
    if claims:
        return claims, next_due(unit, asking.now)
    await _unhold_handlers(unit, asking)
    places = survey(unit, asking.now)
    own = [place for place in places if _node(unit, place.number) in {None, asking.node}]
    claims, everything = await _lend(unit, asking, own)
    if not everything:
        return claims, asking.now
    if any(place.entering and place.head <= asking.now for place in places):
        return claims, await _decide_about_others(unit, asking.now, full=len(claims) == asking.limit)
    return claims, earliest_later(own)


def _node(unit: SqliteUnit, place: int) -> str | None:
    """The node whose claims alone take from a place; "" for runs not placed yet, None for any."""
    _, sign, node = unit.names.line(unit, place).partition("@")
    return node if sign else None


async def _decide_about_others(unit: SqliteUnit, now: int, *, full: bool) -> int | None:
    """Decide about a few of the due entrants that were not lent; when the next run is due.

    A full claim ignores a burst: its node is busy now and claims again later, or calls `promote`. A claim that is not
    full decides about a slice of any burst, so that repeated claims from other queues also reach its end.
    """
    if not full or len(_due_entrants(unit, survey(unit, now), _SLICE, now)) < _SLICE:
        await promote(unit, _SLICE, now)
    return next_due(unit, now)


async def _lent_before(unit: SqliteUnit, asking: Asking) -> list[Claim]:
    last = unit.select_one(_LAST_REQUEST, asking.node)
    if last is None or asking.request > last[0]:
        return []
    seqs = [seq for (seq,) in unit.select(_LENT_BEFORE, asking.node, asking.request)]
    runs = [record.run for record in await by_seqs(unit, seqs)]
    unit.barrier |= any(run.policy.delivery is Delivery.AT_MOST_ONCE for run in runs)
    return [Claim(run, run.fence, run.expires_at) for run in runs if run.expires_at is not None]


async def _unhold_handlers(unit: SqliteUnit, asking: Asking) -> None:
    """Put back runs that were held for a handler that the asking node has; in slices, the most urgent first."""
    prefix = hold_for_handler("")
    for (key,) in unit.select(_HANDLER_HOLDS, prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)):
        if asking.handlers is None or key.removeprefix(prefix) in asking.handlers:
            await unhold(unit, key, max(_UNHOLD_SLICE, asking.limit))


# --- one held run


class Taking(Struct, frozen=True):
    """A request for one run by its id. Instants in microseconds."""

    node: str
    request: int
    now: int
    expires_at: int


async def claim_held(unit: SqliteUnit, key: str, run_id: str, taking: Taking) -> Claim | None:
    """Lend one run that is held under a key, or the one that the same call lent before."""
    record = (await by_ids(unit, [run_id])).get(run_id)
    if record is None:
        return None
    run = record.run
    again = run.state is State.RUNNING and (run.node, run.request) == (taking.node, taking.request)
    if not again and not await _may_be_taken(unit, record, key, taking.now):
        return None
    if not again:
        await leave_hold(unit, [record])
        row = (record.seq, unit.fences(1), run.group or "", int(run.dedupe_key is not None))
        unit.insert_many(_LEND_RICH, [row], taking.node, taking.request, taking.now, taking.expires_at)
    [lent] = [found.run for found in await by_seqs(unit, [record.seq])]
    unit.barrier |= lent.policy.delivery is Delivery.AT_MOST_ONCE
    return None if lent.expires_at is None else Claim(lent, lent.fence, lent.expires_at)


async def _may_be_taken(unit: SqliteUnit, record: Record, key: str, now: int) -> bool:
    run = record.run
    if run.hold != key or to_micros(run.ready_at) > now or record.entrant or await is_paused(unit, run.queue):
        return False
    return not unit.select(_BLOCKED, as_list([run.job]))


# --- choosing


async def _lend(unit: SqliteUnit, asking: Asking, places: Sequence[WaitingPlace]) -> tuple[list[Claim], bool]:
    """The claims, and whether all candidates were examined."""
    claims: list[Claim] = []
    holds = _Holds(unit, asking.handlers)
    examined = 0
    for alike in _by_urgency(unit, asking, places, await paused(unit)):
        owed = scheduled_share(asking.limit - len(claims), asking.request)
        while (room := asking.limit - len(claims)) > 0:
            if examined >= _MOST_EXAMINED:
                return claims, False
            rows = _ready(unit, alike, room, owed, asking.now)
            if not rows:
                break
            examined += len(rows)
            lent = await holds.sift(await _admitted(unit, rows, asking.now))
            owed -= sum(row[LINE] % SPAN < SCHEDULED for row in lent)
            claims += _hand_out(unit, asking, lent)
            _leave(unit, rows)
    return claims, True


def _by_urgency(
    unit: SqliteUnit, asking: Asking, places: Sequence[WaitingPlace], stopped: Collection[str]
) -> Iterator[list[WaitingPlace]]:
    """The places that may be taken from and have something due, together by urgency, the most urgent first."""
    if FROZEN in stopped:
        return
    asked = None if asking.queues is None else set(asking.queues)
    due = ((place, unit.names.line(unit, place.number).partition("@")[0]) for place in places)
    open_places = [
        place
        for place, queue in due
        if place.head <= asking.now and (asked is None or queue in asked) and queue not in stopped
    ]
    waiting = {place.number for place in open_places if not place.entering}
    # An entrant may be let in because of another one of its group, and then waits in line.
    let_in = [replace(each, entering=False) for each in open_places if each.entering and each.number not in waiting]
    in_order = sorted([*open_places, *let_in], key=lambda place: place.urgency)
    for _, alike in groupby(in_order, key=lambda place: place.urgency):
        yield list(alike)


async def _admitted(unit: SqliteUnit, rows: Sequence[Row], now: int) -> Sequence[Row]:
    """Those of these runs whose group lets them start. Other due runs of their groups are decided about, too."""
    groups = {row[GROUP] for row in rows if row[GROUP] is not None}
    if not groups:
        return rows
    chosen = {row[SEQ]: row for row in rows if row[ENTERING]}
    late = [row for row in chosen.values() if row[READY_AT] + LATE < now]
    missed = any(is_missed_entrant(read_start_by(row[EXTRA]), row[READY_AT], now) for row in late)
    if not missed and len(chosen) == len(groups) and unit.select_one(_ANY_CROWD, as_list(groups), now) is None:
        return rows  # each is alone before an empty group, which admits it under any rule
    entered = await decided(unit, groups, now, chosen=chosen)
    if not entered:
        return rows
    still = {seq for (seq,) in unit.select(_STILL_WAITING, as_list(row[SEQ] for row in rows if not row[ENTERING]))}
    return [row for row in rows if (entered.get(row[SEQ]) if row[ENTERING] else row[SEQ] in still)]


# A member that waits may have been replaced by an entrant.
_STILL_WAITING = """
SELECT w.seq FROM json_each(?) AS wanted CROSS JOIN {ns}.runs AS r ON r.seq = wanted.value
CROSS JOIN {ns}.waiting AS w ON w.line = r.line AND w.ready_at = r.ready_at AND w.id = r.id
"""


class _Holds:
    """Separates runs that the asking node may not start, kind by kind."""

    def __init__(self, unit: SqliteUnit, handlers: Collection[str] | None) -> None:
        self._unit = unit
        self._handlers = handlers
        self._any_blocked: bool | None = None
        self._blocked: set[str] = set()
        self._known: dict[int, str | None] = {}

    async def sift(self, rows: Sequence[Row]) -> Sequence[Row]:
        """Move what may not start into its hold; the others."""
        if self._any_blocked is None:
            self._any_blocked = self._unit.select_one(_ANY_BLOCKED) is not None
        if not self._any_blocked and self._has_all_handlers({row[KIND] for row in rows}):
            return rows
        self._learn({row[KIND] for row in rows} - self._known.keys())
        refused = [row for row in rows if self._known[row[KIND]] is not None]
        if not refused:
            return rows
        for row in refused:
            await self._hold(row)
        return [row for row in rows if self._known[row[KIND]] is None]

    def _has_all_handlers(self, numbers: Collection[int]) -> bool:
        if self._handlers is None:
            return True
        kinds = self._unit.names.kinds(self._unit, numbers)
        return all(kinds[number].handler in self._handlers for number in numbers)

    def _learn(self, numbers: Collection[int]) -> None:
        known = self._unit.names.kinds(self._unit, numbers)
        kinds = {number: known[number] for number in numbers}
        if self._any_blocked:
            jobs = as_list({kind.job for kind in kinds.values()})
            self._blocked |= {name for (name,) in self._unit.select(_BLOCKED, jobs)}
        for number, kind in kinds.items():
            self._known[number] = hold_of(kind.job, kind.handler, self._blocked, self._handlers)

    async def _hold(self, row: Row) -> None:
        """Hold a run that may not start; one whose assigned node lacks the handler becomes unassigned."""
        names = self._unit.names
        kind, place = names.kind(self._unit, row[KIND]), names.place(self._unit, row[LINE])
        key = hold_of(kind.job, kind.handler, self._blocked, self._handlers, assigned=place.assignable)
        if key == UNPLACED:
            await relocate(self._unit, [row[SEQ]], f"{place.queue}@")
        self._unit.execute(_HOLD, as_list([row[SEQ]]), key, int(row[GROUP] is not None))


_HOLD = "INSERT INTO {into_held} FROM {ns}.runs WHERE seq = ANY($1::bigint[])"


# --- handing out


def _hand_out(unit: SqliteUnit, asking: Asking, rows: Sequence[Row]) -> list[Claim]:
    if not rows:
        return []
    unit.execute(_SET_REQUEST, asking.node, asking.request, asking.now)
    first = unit.fences(len(rows))
    lender = Lender(asking.node, asking.request, asking.now, asking.expires_at)
    numbered = list(enumerate(rows, first))
    claims = tolerantly(partial(_claims, unit, lender), numbered, partial(_bare_claim, unit, lender))
    same = (asking.node, asking.request, asking.now, asking.expires_at)
    bound = [fence for fence, row in numbered if row[EXTRA] is not None or row[GROUP] is not None]
    if not bound:
        unit.insert_many(_LEND, [(row[SEQ], fence) for fence, row in numbered], *same)
        unit.memory.remember({fence: (row[ID], row[SEQ], False) for fence, row in numbered})
        return claims
    rich = set(bound)
    keyed = {lent.fence for lent in claims if lent.run.dedupe_key is not None}
    unit.insert_many(_LEND, [(row[SEQ], fence) for fence, row in numbered if fence not in rich], *same)
    others = [(row[SEQ], fence, row[GROUP] or "", int(fence in keyed)) for fence, row in numbered if fence in rich]
    unit.insert_many(_LEND_RICH, others, *same)
    unit.memory.remember({fence: (row[ID], row[SEQ], fence in rich) for fence, row in numbered})
    return claims


def _bare_claim(unit: SqliteUnit, lender: Lender, numbered: tuple[int, Row], why: str) -> Claim:
    """A claim of a run whose extras cannot be read."""
    fence, row = numbered
    [claim] = _claims(unit, lender, [(fence, (*row[:EXTRA], None, *row[EXTRA + 1 :]))])
    return replace(claim, run=replace(claim.run, damage=why))


def _claims(unit: SqliteUnit, lender: Lender, rows: Sequence[tuple[int, Row]]) -> list[Claim]:
    kinds = unit.names.kinds(unit, {row[KIND] for _, row in rows})
    claims: list[Claim] = []
    append, make = claims.append, lender.claim
    kind_before = line_before = -1
    for fence, (ready_at, run_id, line, _, _, number, group, due, created_at, extra, payload) in rows:
        if number != kind_before:
            kind_before, kind = number, kinds[number]
            unit.barrier |= kind.at_most_once
        if line != line_before:
            line_before, place = line, unit.names.place(unit, line)
        append(make(kind, place, run_id, due, ready_at, created_at, group, extra, payload, fence))
    return claims
