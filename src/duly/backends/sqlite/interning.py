"""Names as numbers: queues, and kinds of run (job, handler, cause and policies), each written down once.

A queue has a number of its own for each node that runs are assigned to, `mail@node`, and one for those that are yet to
be placed, `mail@`: so a claim never walks past what other nodes have. A session remembers what it has looked up.
Numbers are never taken back, so memory can only be too small, never wrong, but for numbers that were given in a
transaction which was rolled back: then it is forgotten (`unit.Memory`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from duly.backends.tolerance import UNREADABLE, damage
from duly.errors import BackendError
from duly.model import EPOCH, Cause, Delivery, Run, RunPolicy, WhenFull

if TYPE_CHECKING:
    from duly.backends.sqlite.unit_of_work import Row, UnitOfWork

MIDDLE = 500
SPAN = 1000
SCHEDULED = 400  # less are the ranks of runs of schedules, which are claimed beside the others (`rules.sharing`)
_MOST_PRIORITY = 99
_FOR = "@"  # not in the name of a queue, nor of a node
_MOST_KINDS = 100_000
_MOST_POLICIES = 10_000

_FIND_QUEUE = "SELECT number FROM {ns}_queues WHERE name = ?"
_ADD_QUEUE = "INSERT INTO {ns}_queues (name) VALUES (?) RETURNING number"
_FIND_QUEUES = "SELECT number FROM {ns}_queues WHERE name = ?1 OR name >= ?2 AND name < ?3"
_QUEUE_NAME = "SELECT name FROM {ns}_queues WHERE number = ?"

_FIND_POLICY = "SELECT number FROM {ns}_policies WHERE policy = ?"
_ADD_POLICY = "INSERT INTO {ns}_policies (policy) VALUES (?) RETURNING number"

_FIND_KIND = """
SELECT number FROM {ns}_kinds
WHERE job = ? AND handler = ? AND cause = ? AND "limit" = ? AND when_full = ? AND policy = ?
"""
_ADD_KIND = """
INSERT INTO {ns}_kinds (job, handler, cause, "limit", when_full, policy) VALUES (?, ?, ?, ?, ?, ?) RETURNING number
"""
_KINDS = """
SELECT k.number, k.job, k.handler, k.cause, k."limit", k.when_full, k.policy
FROM json_each(?) AS wanted CROSS JOIN {ns}_kinds AS k ON k.number = wanted.value
"""
_POLICY = "SELECT policy FROM {ns}_policies WHERE number = ?"

_policy = msgspec.json.Decoder(RunPolicy)
_CAUSES = {cause.value: cause for cause in Cause}
_WHEN_FULL = {when_full.value: when_full for when_full in WhenFull}


class Kind(Struct, frozen=True):
    """What runs of one kind have in common."""

    number: int
    job: str
    handler: str
    cause: Cause
    limit: int
    when_full: WhenFull
    policy: RunPolicy
    damage: str | None = None

    @property
    def at_most_once(self) -> bool:
        return self.policy.delivery is Delivery.AT_MOST_ONCE

    def sample(self) -> Run:
        """One of them, as far as they are alike."""
        return Run(
            "",
            self.job,
            self.handler,
            EPOCH,
            EPOCH,
            cause=self.cause,
            policy=self.policy,
            group="",
            limit=self.limit,
            when_full=self.when_full,
        )


# A queue, and the node whose claims alone give what is in its line; "" for runs yet to be placed, None for anybody.
Home = tuple[str, str | None]
KindKey = tuple[str, str, str, int, str, int]


class Names:
    """What one session has looked up. Belongs to one thread."""

    def __init__(self) -> None:
        self._queues: dict[str, int] = {}
        self._homes: dict[int, Home] = {}
        self._kinds: dict[KindKey, int] = {}
        self._by_number: dict[int, Kind] = {}
        self._policies: dict[int, tuple[RunPolicy, int]] = {}
        self._policy_numbers: dict[str, int] = {}
        self._policy_values: dict[int, RunPolicy] = {}

    # --- queues

    def line(self, unit: UnitOfWork, run: Run) -> int:
        """The line a run stands in: those with its queue, priority and kind, for anybody or for its assignee."""
        if not 0 <= run.priority <= _MOST_PRIORITY:
            raise BackendError(f"run {run.id} has priority {run.priority}: from 0 to 9")
        home = (run.queue, run.assignee or "" if run.assignable else None)
        kind = SCHEDULED if run.cause is Cause.SCHEDULE else 0
        return self.line_for(unit, home) + MIDDLE - run.priority - kind

    def line_for(self, unit: UnitOfWork, home: Home) -> int:
        """The first line of a queue for one node or for anybody, made now if there is none."""
        name = home[0] if home[1] is None else home[0] + _FOR + home[1]
        number = self._queues.get(name)
        if number is None:
            row = unit.one(_FIND_QUEUE, name) or unit.one(_ADD_QUEUE, name)
            assert row is not None
            number = self._queues[name] = int(row[0])
        return number * SPAN

    def queues_of(self, unit: UnitOfWork, name: str) -> list[int]:
        """All numbers of a queue: its own, and those for nodes."""
        return [number for (number,) in unit.all(_FIND_QUEUES, name, name + _FOR, name + chr(ord(_FOR) + 1))]

    def home(self, unit: UnitOfWork, line: int) -> Home:
        """The queue that a line belongs to, and for whom it is."""
        number = line // SPAN
        home = self._homes.get(number)
        if home is None:
            row = unit.one(_QUEUE_NAME, number)
            assert row is not None
            queue, sign, node = row[0].partition(_FOR)
            home = self._homes[number] = (queue, node if sign else None)
        return home

    # --- kinds

    def kind_of(self, unit: UnitOfWork, run: Run) -> int:
        """The number of a run's kind, given now if it has none."""
        key = (run.job, run.handler, run.cause, run.limit, run.when_full, self._policy_number(unit, run.policy))
        number = self._kinds.get(key)
        if number is None:
            plain = [str(value) if isinstance(value, str) else value for value in key]  # enumerations as plain text
            row = unit.one(_FIND_KIND, *plain) or unit.one(_ADD_KIND, *plain)
            assert row is not None
            number = int(row[0])
            self._remember(number, key, run)
        return number

    def _remember(self, number: int, key: KindKey, run: Run) -> None:
        """A kind by both of its names: who puts runs often lends them too."""
        if len(self._kinds) >= _MOST_KINDS:
            self._kinds.clear()
            self._by_number.clear()
        self._kinds[key] = number
        self._by_number[number] = Kind(
            number, run.job, run.handler, run.cause, run.limit, run.when_full, self._policy_value(key[5], run.policy)
        )

    def kind(self, unit: UnitOfWork, number: int) -> Kind:
        """The kind of that number."""
        kind = self._by_number.get(number)
        return self.kinds(unit, (number,))[number] if kind is None else kind

    def kinds(self, unit: UnitOfWork, numbers: Collection[int]) -> Mapping[int, Kind]:
        """At least the kinds of these numbers; unknown ones are looked up together."""
        unknown = [number for number in numbers if number not in self._by_number]
        if unknown:
            if len(self._by_number) + len(unknown) > _MOST_KINDS:
                self._by_number.clear()
                unknown = [*numbers]
            for row in unit.all(_KINDS, msgspec.json.encode(unknown).decode()):
                self._by_number[row[0]] = self._read_kind(unit, row)
        return self._by_number

    def _read_kind(self, unit: UnitOfWork, row: Row) -> Kind:
        number, job, handler, cause, limit, when_full, policy = row
        alike = number, job, handler, _CAUSES[cause], limit, _WHEN_FULL[when_full]
        try:
            value = self._policy_values.get(policy) or self._policy_value(policy, self._read_policy(unit, policy))
        except UNREADABLE as exc:
            return Kind(*alike, RunPolicy(), damage(exc))
        return Kind(*alike, value)

    # --- policies: few, and mostly the same objects again and again

    def _policy_number(self, unit: UnitOfWork, policy: RunPolicy) -> int:
        known = self._policies.get(id(policy))
        if known is not None:
            return known[1]
        number = self._find_policy(unit, msgspec.json.encode(policy).decode())
        if len(self._policies) >= _MOST_POLICIES:
            self._policies.clear()
        self._policies[id(policy)] = (policy, number)  # kept, so that its address stays its own
        return number

    def _find_policy(self, unit: UnitOfWork, text: str) -> int:
        number = self._policy_numbers.get(text)
        if number is None:
            row = unit.one(_FIND_POLICY, text) or unit.one(_ADD_POLICY, text)
            assert row is not None
            if len(self._policy_numbers) >= _MOST_POLICIES:
                self._policy_numbers.clear()
            number = self._policy_numbers[text] = int(row[0])
        return number

    def _policy_value(self, number: int, policy: RunPolicy) -> RunPolicy:
        """One and the same object for all kinds with that policy."""
        if len(self._policy_values) >= _MOST_POLICIES:
            self._policy_values.clear()
        return self._policy_values.setdefault(number, policy)

    @staticmethod
    def _read_policy(unit: UnitOfWork, number: int) -> RunPolicy:
        row = unit.one(_POLICY, number)
        assert row is not None
        return _policy.decode(row[0])


def rank_of(line: int) -> int:
    """How urgent the runs in a line are: the smaller, the more."""
    rank = line % SPAN
    return rank + SCHEDULED if rank < SCHEDULED else rank


def is_scheduled(line: int) -> bool:
    """Whether the runs in a line are those of schedules."""
    return line % SPAN < SCHEDULED


def priority_of(line: int) -> int:
    """The priority of the runs in a line."""
    return MIDDLE - rank_of(line)
