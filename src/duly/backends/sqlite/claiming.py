"""Lending: claims, and what keeps them alive.

A claim looks at the heads of the lines it may take from, the most urgent rank first, and moves runs from there into
the claims, or into their hold; both leave the line, so that no later claim walks past them. Entrants among them are
decided about by their groups first (`groups`). One claim examines a bounded number of runs: what is left after that is
told by a next due that has passed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from itertools import groupby

from msgspec import Struct
from msgspec.structs import replace

from duly.backends.rows import instant
from duly.backends.sqlite.codec import Record, read_extra
from duly.backends.sqlite.groups import decide_about, promote
from duly.backends.sqlite.interning import is_scheduled, priority_of, rank_of
from duly.backends.sqlite.operating import paused
from duly.backends.sqlite.transitions import by_ids, by_seqs, relocate, unhold
from duly.backends.sqlite.transitions import leave as leave_hold
from duly.backends.sqlite.unit_of_work import Row, UnitOfWork, as_list
from duly.backends.sqlite.waiting_index import (
    EXTRA,
    GROUP,
    ID,
    KIND,
    LINE,
    READY_AT,
    SEQ,
    WaitingLine,
    earliest_later,
    fewer_due_entrants,
    leave,
    next_due,
    ready,
    survey,
)
from duly.backends.tolerance import tolerantly
from duly.model import Claim, Delivery, Run, State, from_micros, to_micros
from duly.model.holds import UNPLACED, hold_for_handler
from duly.rules.admission import hold_of
from duly.rules.sharing import scheduled_share

_MOST_EXAMINED = 5_000
_MOST_REMEMBERED = 200_000
_SLICE = 32
_UNHOLD_SLICE = 1_000

_LAST_REQUEST = "SELECT request FROM {ns}_requests WHERE node = ?"
_SET_REQUEST = """
INSERT INTO {ns}_requests (node, request, at) VALUES (?1, ?2, ?3)
ON CONFLICT (node) DO UPDATE SET request = max(request, ?2), at = ?3
"""
_LENT_BEFORE = "SELECT seq FROM {ns}_claims WHERE node = ? AND request = ? ORDER BY seq"

_ANY_BLOCKED = "SELECT 1 FROM {ns}_jobs WHERE blocked = 1 LIMIT 1"
_BLOCKED = """
SELECT j.name FROM json_each(?) AS wanted CROSS JOIN {ns}_jobs AS j ON j.name = wanted.value WHERE j.blocked = 1
"""

# The holds that begin with a text, found by leaping from one to the next.
_HANDLER_HOLDS = """
WITH RECURSIVE holds (hold) AS (
    SELECT min(hold) FROM {ns}_held WHERE hold >= ?1 AND hold < ?2
    UNION ALL
    SELECT (SELECT min(hold) FROM {ns}_held WHERE hold > holds.hold AND hold < ?2)
    FROM holds WHERE holds.hold IS NOT NULL
)
SELECT hold FROM holds WHERE hold IS NOT NULL
"""

# Lend runs under their fences. ?1 node, ?2 request, ?3 now, ?4 expiry.
_LEND = """
INSERT INTO {ns}_claims (seq, fence, node, request, started_at, expires_at)
VALUES {rows:(?, ?, ?1, ?2, ?3, ?4)}
"""
# The same for members of groups and runs with a dedupe key; '' is no group.
_LEND_RICH = """
INSERT INTO {ns}_claims (seq, fence, "group", keyed, node, request, started_at, expires_at)
VALUES {rows:(?, ?, nullif(?, ''), ?, ?1, ?2, ?3, ?4)}
"""
_HOLD = """
INSERT INTO {ns}_held (hold, rank, ready_at, id, seq, line, kind, "group", member) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


class Asking(Struct, frozen=True):
    """Who asks for runs, and for which. Instants in microseconds."""

    node: str
    queues: Sequence[str] | None
    handlers: Collection[str] | None
    limit: int
    request: int
    now: int
    expires_at: int


def claim(unit: UnitOfWork, asking: Asking) -> tuple[list[Claim], int | None]:
    """Lend runs, or those lent when the same was asked before; and when the next run is due."""
    claims = _lent_before(unit, asking)
    if claims:
        return claims, next_due(unit, asking.now)
    _unhold_handlers(unit, asking)
    lines = survey(unit, asking.now)
    own = [line for line in lines if unit.names.home(unit, line.number)[1] in {None, asking.node}]
    claims, everything = _lend(unit, asking, own)
    if not everything:
        return claims, asking.now
    if any(line.entering and line.head <= asking.now for line in lines):
        return claims, _decide_about_others(unit, asking.now, full=len(claims) == asking.limit)
    return claims, earliest_later(own)


def _decide_about_others(unit: UnitOfWork, now: int, *, full: bool) -> int | None:
    """Decide about a few of the due entrants that were not lent; when the next run is due.

    A claim that is full leaves a burst alone: whoever asked is busy now and comes again, or has it promoted. One that
    is not full takes its slice of any burst, so that asking again and again for other queues comes to an end too.
    """
    lines = survey(unit, now)
    if not full or fewer_due_entrants(unit, lines, _SLICE, now):
        promote(unit, lines, _SLICE, now)
    return next_due(unit, now)


def _lent_before(unit: UnitOfWork, asking: Asking) -> list[Claim]:
    last = unit.one(_LAST_REQUEST, asking.node)
    if last is None or asking.request > last[0]:
        return []
    seqs = [seq for (seq,) in unit.all(_LENT_BEFORE, asking.node, asking.request)]
    runs = [record.run for record in by_seqs(unit, seqs)]
    unit.barrier |= any(run.policy.delivery is Delivery.AT_MOST_ONCE for run in runs)
    return [Claim(run, run.fence, run.expires_at) for run in runs if run.expires_at is not None]


def _unhold_handlers(unit: UnitOfWork, asking: Asking) -> None:
    """Put back what was held for a handler that the asking node has; in slices, the most urgent first."""
    prefix = hold_for_handler("")
    for (key,) in unit.all(_HANDLER_HOLDS, prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)):
        if asking.handlers is None or key.removeprefix(prefix) in asking.handlers:
            unhold(unit, key, max(_UNHOLD_SLICE, asking.limit))


# --- taking


class Taking(Struct, frozen=True):
    """Who takes one run from under its hold. Instants in microseconds."""

    node: str
    request: int
    now: int
    expires_at: int


def claim_held(unit: UnitOfWork, key: str, run_id: str, taking: Taking) -> Claim | None:
    """Lend one run that is held under a key, or the one that the same call lent before."""
    record = by_ids(unit, [run_id]).get(run_id)
    if record is None:
        return None
    run = record.run
    again = run.state is State.RUNNING and (run.node, run.request) == (taking.node, taking.request)
    if not again and not _may_be_taken(unit, record, key, taking.now):
        return None
    if not again:
        leave_hold(unit, record)
        shared = (taking.node, taking.request, taking.now, taking.expires_at)
        row = (record.seq, unit.fences(1), run.group or "", int(run.dedupe_key is not None))
        unit.insert(_LEND_RICH, [row], *shared)
    [lent] = [found.run for found in by_seqs(unit, [record.seq])]
    unit.barrier |= lent.policy.delivery is Delivery.AT_MOST_ONCE
    return None if lent.expires_at is None else Claim(lent, lent.fence, lent.expires_at)


def _may_be_taken(unit: UnitOfWork, record: Record, key: str, now: int) -> bool:
    run = record.run
    if run.hold != key or to_micros(run.ready_at) > now or record.entrant or run.queue in paused(unit):
        return False
    return not unit.all(_BLOCKED, as_list([run.job]))


# --- choosing


def _lend(unit: UnitOfWork, asking: Asking, lines: Sequence[WaitingLine]) -> tuple[list[Claim], bool]:
    """The claims, and whether all was examined that had to be."""
    claims: list[Claim] = []
    holds = _Holds(unit, asking.handlers)
    examined = 0
    for rank in _ranks(unit, asking, lines):
        owed = scheduled_share(asking.limit - len(claims), asking.request)
        while (room := asking.limit - len(claims)) > 0:
            if examined >= _MOST_EXAMINED:
                return claims, False
            rows = ready(unit, rank, room, owed, asking.now)
            if not rows:
                break
            examined += len(rows)
            lent = holds.sift(_admitted(unit, rows, asking.now))
            owed -= sum(is_scheduled(row[LINE]) for row in lent)
            claims += _hand_out(unit, asking, lent)
            leave(unit, rows)
    return claims, True


def _ranks(unit: UnitOfWork, asking: Asking, lines: Sequence[WaitingLine]) -> Iterator[list[WaitingLine]]:
    """The lines that may be taken from and have something due, those of one rank together, the most urgent first."""
    asked = None if asking.queues is None else set(asking.queues)
    stopped = paused(unit)
    due = ((line, unit.names.home(unit, line.number)[0]) for line in lines if line.head <= asking.now)
    open_lines = [line for line, queue in due if (asked is None or queue in asked) and queue not in stopped]
    waiting = {line.number for line in open_lines if not line.entering}
    # An entrant may be let in on behalf of another one of its group, and then waits in line.
    let_in = [replace(line, entering=False) for line in open_lines if line.entering and line.number not in waiting]
    by_rank = sorted([*open_lines, *let_in], key=lambda line: line.rank)
    for _, rank in groupby(by_rank, key=lambda line: line.rank):
        yield list(rank)


def _admitted(unit: UnitOfWork, rows: Sequence[Row], now: int) -> Sequence[Row]:
    """Those of these runs whose group lets them start."""
    if all(row[GROUP] is None for row in rows):
        return rows
    out = decide_about(unit, rows, now)
    return [row for row in rows if row[SEQ] not in out] if out else rows


class _Holds:
    """Sorts out what the asking node may not start, kind by kind."""

    def __init__(self, unit: UnitOfWork, handlers: Collection[str] | None) -> None:
        self._unit = unit
        self._handlers = handlers
        self._any_blocked: bool | None = None
        self._blocked: set[str] = set()
        self._known: dict[int, str | None] = {}

    def sift(self, rows: Sequence[Row]) -> Sequence[Row]:
        """Move what may not start into its hold; the others."""
        if self._any_blocked is None:
            self._any_blocked = self._unit.one(_ANY_BLOCKED) is not None
        if not self._any_blocked and self._has_all_handlers({row[KIND] for row in rows}):
            return rows
        self._learn({row[KIND] for row in rows} - self._known.keys())
        if all(self._known[row[KIND]] is None for row in rows):
            return rows
        self._unit.many(_HOLD, [self._held(row) for row in rows if self._known[row[KIND]] is not None])
        return [row for row in rows if self._known[row[KIND]] is None]

    def _has_all_handlers(self, numbers: Collection[int]) -> bool:
        if self._handlers is None:
            return True
        kinds = self._unit.names.kinds(self._unit, numbers)
        return all(kinds[number].handler in self._handlers for number in numbers)

    def _learn(self, numbers: Collection[int]) -> None:
        known = self._unit.names.kinds(self._unit, numbers)
        kinds = [known[number] for number in numbers]
        if self._any_blocked:
            self._blocked |= {name for (name,) in self._unit.all(_BLOCKED, as_list({kind.job for kind in kinds}))}
        for kind in kinds:
            self._known[kind.number] = hold_of(kind.job, kind.handler, self._blocked, self._handlers)

    def _held(self, row: Row) -> Row:
        """A run that may not start, as a row under its hold; one for a node without the code is nobody's again."""
        line, kind = row[LINE], self._unit.names.kind(self._unit, row[KIND])
        assigned = self._unit.names.home(self._unit, line)[1] is not None
        key = hold_of(kind.job, kind.handler, self._blocked, self._handlers, assigned=assigned)
        if key == UNPLACED:
            line = relocate(self._unit, row[SEQ], line, "")
        member = row[GROUP] is not None
        return (key, rank_of(line), row[READY_AT], row[ID], row[SEQ], line, row[KIND], row[GROUP], int(member))


# --- handing out


def _hand_out(unit: UnitOfWork, asking: Asking, rows: Sequence[Row]) -> list[Claim]:
    if not rows:
        return []
    unit.run(_SET_REQUEST, asking.node, asking.request, asking.now)
    first = unit.fences(len(rows))
    numbered = list(enumerate(rows, first))
    claims = tolerantly(partial(_claims, unit, asking), numbered, partial(_bare_claim, unit, asking))
    plain = [(row[SEQ], fence) for fence, row in enumerate(rows, first) if row[GROUP] is None and row[EXTRA] is None]
    rich = [
        (row[SEQ], lent.fence, row[GROUP] or "", int(lent.run.dedupe_key is not None))
        for row, lent in zip(rows, claims, strict=True)
        if row[GROUP] is not None or row[EXTRA] is not None
    ]
    shared = (asking.node, asking.request, asking.now, asking.expires_at)
    unit.insert(_LEND, plain, *shared)
    unit.insert(_LEND_RICH, rich, *shared)
    if len(unit.memory.lent) > _MOST_REMEMBERED:
        unit.memory.lent.clear()
    unit.memory.lent.update({fence: (row[ID], row[SEQ]) for fence, row in enumerate(rows, first)})
    return claims


def _bare_claim(unit: UnitOfWork, asking: Asking, numbered: tuple[int, Row], why: str) -> Claim:
    """A claim of a run whose extras cannot be read."""
    fence, row = numbered
    [claim] = _claims(unit, asking, [(fence, (*row[:EXTRA], None, *row[EXTRA + 1 :]))])
    return replace(claim, run=replace(claim.run, damage=why))


def _claims(unit: UnitOfWork, asking: Asking, rows: Sequence[tuple[int, Row]]) -> list[Claim]:
    """The claims as the executor needs them. The hottest loop, so every run is built field by field, in their order."""
    kinds = unit.names.kinds(unit, {row[KIND] for _, row in rows})
    node, request = asking.node, asking.request
    started_at, expires_at = from_micros(asking.now), from_micros(asking.expires_at)
    due_before = created_before = alike = line_before = -1
    due = created = started_at
    queue, assignee, priority = "", None, 0
    claims: list[Claim] = []
    for fence, row in rows:
        ready_at, run_id, line, _, _, number, group, due_at, created_at, text, payload = row
        if number != alike:
            alike, kind = number, kinds[number]
            unit.barrier |= kind.at_most_once
        if line != line_before:
            line_before, priority = line, priority_of(line)
            queue, assignee = unit.names.home(unit, line)
        if due_at != due_before:
            due_before, due = due_at, from_micros(due_at)
        if created_at != created_before:
            created_before, created = created_at, from_micros(created_at)
        extra = read_extra(text)
        run = Run(
            run_id,
            kind.job,
            kind.handler,
            due,
            due if ready_at == due_at else from_micros(ready_at),
            extra.uid,
            extra.revision,
            kind.cause,
            queue,
            priority,
            payload,
            kind.policy,
            group,
            kind.limit,
            kind.when_full,
            extra.dedupe_key,
            extra.headers,
            State.RUNNING,
            extra.reason,
            None,
            None,
            group is not None,
            extra.failures,
            extra.losses,
            fence,
            node,
            request,
            created,
            started_at,
            expires_at,
            None,
            extra.cancelling,
            None,
            extra.result,
            extra.failure,
            assignee is not None,
            assignee or None,
            kind.damage,
            start_by=instant(extra.start_by),
            strict=extra.strict,
        )
        claims.append(Claim(run, fence, expires_at))
    return claims
