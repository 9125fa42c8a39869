"""Names as numbers: lines, and kinds of run (job, handler, cause, policies and the rule of the group).

A queue has a separate number for each node that runs are assigned to, `mail@node`, and one for those that are not
placed yet, `mail@`: so a claim never reads the runs of other nodes. A session remembers what it has looked up.
Numbers are never taken back, so memory can only be too small, never wrong, but for numbers that were given in a
transaction which was rolled back: then it is forgotten (`unit.Memory`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, TypeVar

import msgspec

from duly.backends.codec import (
    CAUSES,
    Kind,
    Place,
    checked_rank_of,
    line_of,
    place_of,
    read_policy,
    stored_cause,
    to_json,
)
from duly.backends.tolerance import UNREADABLE, damage
from duly.model import Run, RunPolicy, WhenFull

if TYPE_CHECKING:
    from duly.backends.sql.unit import Row
    from duly.backends.sqlite.unit import SqliteUnit

K = TypeVar("K")
V = TypeVar("V")

SPAN = 1000
_FOR = "@"  # not in the name of a queue, nor of a node
_MOST = 100_000  # of each kind of thing that is remembered

_FIND_QUEUE = "SELECT number FROM {ns}.queues WHERE name = ?"
_ADD_QUEUE = "INSERT INTO {ns}.queues (name) VALUES (?) RETURNING number"
_FIND_QUEUES = "SELECT number FROM {ns}.queues WHERE name = ?1 OR name >= ?2 AND name < ?3"
_QUEUE_NAME = "SELECT name FROM {ns}.queues WHERE number = ?"

_FIND_POLICY = "SELECT number FROM {ns}.policies WHERE policy = ?"
_ADD_POLICY = "INSERT INTO {ns}.policies (policy) VALUES (?) RETURNING number"

_FIND_KIND = """
SELECT number FROM {ns}.kinds
WHERE job = ? AND handler = ? AND cause = ? AND "limit" = ? AND when_full = ? AND policy = ?
"""
_ADD_KIND = """
INSERT INTO {ns}.kinds (job, handler, cause, "limit", when_full, policy) VALUES (?, ?, ?, ?, ?, ?) RETURNING number
"""
_KINDS = """
SELECT k.number, k.job, k.handler, k.cause, k."limit", k.when_full, p.policy
FROM json_each(?) AS wanted CROSS JOIN {ns}.kinds AS k ON k.number = wanted.value
LEFT JOIN {ns}.policies AS p ON p.number = k.policy
"""


KindKey = tuple[str, str, str, int, str, int]


class Names:
    """What one session has looked up. Belongs to one thread."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._lines: dict[int, str] = {}
        self._kinds: dict[KindKey, int] = {}
        self._by_number: dict[int, Kind] = {}
        self._policies: dict[int, tuple[RunPolicy, int]] = {}
        self._places: dict[int, Place] = {}

    # --- lines

    def place_number(self, unit: SqliteUnit, run: Run) -> int:
        """The number of the place where a run waits: that of its queue, node, priority and cause."""
        return self.number_of(unit, line_of(run)) * SPAN + checked_rank_of(run)

    def number_of(self, unit: SqliteUnit, line: str) -> int:
        """The number of a line, given now if it has none."""
        number = self._numbers.get(line)
        if number is None:
            row = unit.select_one(_FIND_QUEUE, line) or unit.select_one(_ADD_QUEUE, line)
            assert row is not None
            number = _remembered(self._numbers, line, int(row[0]))
        return number

    def queues_of(self, unit: SqliteUnit, name: str) -> list[int]:
        """All numbers of a queue: its own, and those for nodes."""
        return [number for (number,) in unit.select(_FIND_QUEUES, name, name + _FOR, name + chr(ord(_FOR) + 1))]

    def line(self, unit: SqliteUnit, place: int) -> str:
        """The line that a run waits in, by the number of its place."""
        number = place // SPAN
        line = self._lines.get(number)
        if line is None:
            row = unit.select_one(_QUEUE_NAME, number)
            assert row is not None
            line = _remembered(self._lines, number, str(row[0]))
        return line

    def place(self, unit: SqliteUnit, number: int) -> Place:
        """The place of that number."""
        place = self._places.get(number)
        if place is None:
            place = _remembered(self._places, number, place_of(self.line(unit, number), number % SPAN))
        return place

    # --- kinds

    def kind_of(self, unit: SqliteUnit, run: Run) -> int:
        """The number of a run's kind, given now if it has none."""
        cause = stored_cause(run.cause)
        key = (run.job, run.handler, cause, run.limit, run.when_full, self._policy_number(unit, run.policy))
        number = self._kinds.get(key)
        if number is None:
            plain = [str(value) if isinstance(value, str) else value for value in key]  # enumerations as plain text
            row = unit.select_one(_FIND_KIND, *plain) or unit.select_one(_ADD_KIND, *plain)
            assert row is not None
            number = _remembered(self._kinds, key, int(row[0]))
            # By both names: a session that puts runs often lends them too.
            kind = Kind(run.job, run.handler, cause, run.policy, run.limit, run.when_full)
            _remembered(self._by_number, number, kind)
        return number

    def kind(self, unit: SqliteUnit, number: int) -> Kind:
        """The kind of that number."""
        kind = self._by_number.get(number)
        return self.kinds(unit, (number,))[number] if kind is None else kind

    def kinds(self, unit: SqliteUnit, numbers: Collection[int]) -> Mapping[int, Kind]:
        """At least the kinds of these numbers; unknown ones are looked up together."""
        unknown = [number for number in numbers if number not in self._by_number]
        if unknown:
            if len(self._by_number) + len(unknown) > _MOST:
                self._by_number.clear()
                unknown = [*numbers]
            for row in unit.select(_KINDS, msgspec.json.encode(unknown).decode()):
                self._by_number[row[0]] = _read_kind(row)
        return self._by_number

    # --- policies: few, and mostly the same objects again and again

    def _policy_number(self, unit: SqliteUnit, policy: RunPolicy) -> int:
        known = self._policies.get(id(policy))
        if known is not None:
            return known[1]
        text = to_json(policy)
        row = unit.select_one(_FIND_POLICY, text) or unit.select_one(_ADD_POLICY, text)
        assert row is not None
        # Keeps the policy alive, so that its id is not reused.
        return _remembered(self._policies, id(policy), (policy, int(row[0])))[1]


def _remembered(memory: dict[K, V], key: K, value: V) -> V:
    if len(memory) >= _MOST:
        memory.clear()
    memory[key] = value
    return value


def _read_kind(row: Row) -> Kind:
    _, job, handler, cause, limit, when_full, policy = row
    try:
        return Kind(job, handler, CAUSES[cause], read_policy(policy), limit, WhenFull(when_full))
    except UNREADABLE as exc:
        return Kind(job, handler, CAUSES[cause], RunPolicy(), limit, WhenFull(when_full), damage(exc))
