"""A unit of work, which every function on the store gets: statements, the clock, locks, and which waiters to wake.

A statement is a constant in PostgreSQL's syntax, with `{…}` where the dialects differ; each dialect makes its own
text of it once (`Texts`). Lists travel as one parameter, so that one prepared statement serves every length. Statements
on many rows are declared with their columns (`Insert`, `Update`, `Delete`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from duly.backends.sql.notify import Notifier
from duly.model import Put, Run, RunQuery

T = TypeVar("T")
U = TypeVar("U", bound="Unit")
U_co = TypeVar("U_co", bound="Unit", covariant=True)
U_contra = TypeVar("U_contra", bound="Unit", contravariant=True)
Row = Any  # a tuple, or a record of the driver that behaves like one

EVERYTHING = 1 << 62  # a limit that limits nothing

# Where a piece of work runs. Each has its own connection on PostgreSQL; SQLite has one writer.
CLAIMING = "claiming"
SETTLING = "settling"  # and what keeps claims alive
QUICK = "quick"
STORE = "store"
COORDINATING = "coordinator"

_MOST_REMEMBERED = 200_000


# --- statements on many rows


class Column(Struct, frozen=True):
    """A column, and its type where a driver must know it."""

    name: str
    type: str = "bigint"

    @property
    def quoted(self) -> str:
        return f'"{self.name}"'


def columns(**types: str) -> tuple[Column, ...]:
    """Columns by name; a name that Python does not allow ends with an underscore."""
    return tuple(Column(name.rstrip("_"), type_) for name, type_ in types.items())


class Insert(Struct, frozen=True):
    """Insert rows. `then` is what follows: a conflict rule, RETURNING."""

    table: str
    columns: tuple[Column, ...]
    then: str = ""


class Update(Struct, frozen=True):
    """Set columns of the rows with these keys that meet the condition. `constants` are set in all of them.

    `answers` says whether the caller needs to know which rows existed: that costs a quarter more on SQLite.
    """

    table: str
    keys: tuple[Column, ...]
    columns: tuple[Column, ...]
    constants: str = ""
    condition: str = ""
    answers: bool = True


class Delete(Struct, frozen=True):
    """Delete the rows with these values."""

    table: str
    keys: tuple[Column, ...]


Many = Insert | Update | Delete


class Texts(dict[str, str]):
    """From a statement to its text in one dialect and namespace, made when it is first used."""

    def __init__(self, namespace: str, words: Mapping[str, str]) -> None:
        super().__init__()
        self.namespace = namespace
        self._words = words

    def __missing__(self, sql: str) -> str:
        whole = sql
        while True:
            before = whole
            for word, text in self._words.items():
                whole = whole.replace("{" + word + "}", text)
            if whole == before:
                break
        text = self[sql] = self.translated(whole)
        return text

    def translated(self, sql: str) -> str:
        """The statement in this dialect."""
        return sql


# --- what the dialects and the units of work supply


class Dialect(Protocol[U_contra]):
    """What differs between the stores beyond the syntax of statements."""

    async def add(self, unit: U_contra, runs: Sequence[Run], now: int) -> list[Put]:
        """Add runs that duplicate nothing, in order; what became of each."""
        ...

    async def take_keys(self, unit: U_contra, runs: Sequence[tuple[int, Run]], now: int) -> set[int]:
        """Take the dedupe keys of runs (with their numbers), all different; the numbers of those that have theirs."""
        ...

    async def soonest(self, unit: U_contra, limit: int, job: str | None, now: int) -> list[int]:
        """The numbers of the waiting runs that nothing holds, or that are not placed yet, by ready time, then id."""
        ...

    async def first_held(self, unit: U_contra, key: str, limit: int, after: Run | None, now: int) -> list[int]:
        """The numbers of the first runs under a hold, in the order of `rules.placement.placing_order`."""
        ...

    async def matching(self, unit: U_contra, query: RunQuery) -> Conditions:
        """What jobs, handler, cause and queue of a query mean for runs `r`."""
        ...

    async def of_jobs(self, unit: U_contra, query: RunQuery) -> list[Conditions] | None:
        """The runs `r` of the jobs of a query, as conditions that an index serves in the order of their numbers.

        None if the query names no jobs, or too many. Each run meets one of the sets of conditions.
        """
        ...

    async def by_ready_time(
        self, unit: U_contra, queue: str | None, ready_at: int, run_id: str, limit: int
    ) -> list[Row]:
        """Ready time, id and number of waiting runs after that place, held ones included, by ready time and id.

        With `queue`, others may be left out.
        """
        ...

    async def know_line(self, unit: U_contra, line: str) -> None:
        """Be ready for runs in this line."""
        ...

    async def acquire(self, unit: U_contra, name: str, holder: str, ttl: int, now: datetime | None) -> Row | None:
        """Take a lease unless another holder has it: its fence and expiry, None if it is held."""
        ...

    def reason(self, text: str | None) -> str | None:
        """The reason of a wish to cancel as the table of claims keeps it."""
        ...

    # --- moving a store

    async def fence(self, unit: U_contra) -> int:
        """The highest fence that was given out."""
        ...

    async def raise_fence(self, unit: U_contra, fence: int) -> None:
        """Give out greater fences than this one."""
        ...

    async def add_records(self, unit: U_contra, runs: Sequence[Run]) -> dict[str, int]:
        """Insert the records of runs with their times of creation, and nothing else; their numbers by id."""
        ...

    def stored_key(self, key: str) -> Any:
        """A dedupe key as the tables of keys have it."""
        ...

    def key_text(self, key: Any) -> str:
        """The dedupe key in such a value."""
        ...


Conditions = list[tuple[str, tuple[Any, ...]]]  # texts with `?` for each of their parameters


# A run that was lent: its id, its number, and whether it may have a dedupe key, or a place in a group, to give back.
Lent = tuple[str, int, bool]


def lent(run: Run, seq: int) -> Lent:
    """A run that was lent, with its number."""
    return run.id, seq, run.group is not None or run.dedupe_key is not None


class Memory:
    """What a session remembers between units: the runs that it lent, by fence."""

    def __init__(self) -> None:
        self.lent: dict[int, Lent] = {}

    def remember(self, lent: Mapping[int, Lent]) -> None:
        if len(self.lent) > _MOST_REMEMBERED:
            self.lent.clear()
        self.lent.update(lent)


class Locks:
    """Locks that last until the transaction ends. A store with one writer needs none."""

    async def one(self, what: str) -> None:
        """Lock this exclusively."""

    async def groups(self, groups: Iterable[str | None]) -> None:
        """Lock these groups for a decision; no running member leaves them meanwhile.

        Once per transaction, before rows.
        """

    async def groups_of(self, run_ids: Iterable[str]) -> None:
        """The same for the groups that these runs belong to; that never changes."""

    async def claims(self, run_ids: Sequence[str]) -> None:
        """Lock the claims of these runs against other changes."""

    async def many(self, number: int) -> None:
        """If these are many runs, lock out other changes of many runs; call it before anything else.

        Two transactions that lock the same rows in different orders would deadlock.
        """


class Unit(ABC):
    """Wraps one connection for the length of a piece of work.

    `rings` are the kinds of change that others are woken for afterwards. `affects_others` says that, as a side effect,
    runs wait again or are to be cancelled, or others may be able to start what this node cannot: a notifier other than
    the store's own does not know of that otherwise.
    """

    dialect: Dialect[Any]
    memory: Memory
    namespace: str

    def __init__(self) -> None:
        self.locks = Locks()
        self.rings = 0
        self.affects_others = False

    # --- statements

    @abstractmethod
    async def all(self, sql: str, *parameters: Any) -> list[Row]:
        """All rows of a statement."""

    @abstractmethod
    async def one(self, sql: str, *parameters: Any) -> Row | None:
        """The first row of a statement, if there is one."""

    @abstractmethod
    async def run(self, sql: str, *parameters: Any) -> None:
        """Execute a statement that returns no rows."""

    @abstractmethod
    async def insert(self, statement: Insert, rows: Sequence[Sequence[Any]]) -> list[Row]:
        """Insert rows; what RETURNING gives."""

    @abstractmethod
    async def change(self, statement: Update | Delete, rows: Sequence[Sequence[Any]]) -> set[Any]:
        """Update (keys, then columns) or delete rows; the first keys of those that were there."""

    # --- the clock

    @abstractmethod
    def moment(self, now: datetime | None) -> int | None:
        """The first parameter of a statement with `{clock}`."""

    @abstractmethod
    async def at(self, now: datetime | None) -> int:
        """The instant this happens at, in microseconds: by the store's clock, or what a test gives."""

    async def shown_at(self, now: datetime | None) -> int:
        """The instant for display only: the session's estimate of the store's clock, which costs no round trip."""
        return await self.at(now)


Task = Callable[[Unit], Coroutine[Any, Any, T]]


class Session(Protocol[U_co]):
    """How units of work reach the store."""

    @property
    def notifier(self) -> Notifier:
        """Wakes tasks that wait for a change."""
        ...

    async def read(
        self, task: Callable[[U_co], Coroutine[Any, Any, T]], *, listing: bool = False, timeout: float | None = None
    ) -> T:
        """Look something up; a listing may take its time, and delays neither a change nor a lookup."""
        ...

    async def write(
        self, purpose: str, task: Callable[[U_co], Coroutine[Any, Any, T]], timeout: float | None = None
    ) -> T:
        """Change something in one transaction."""
        ...

    async def write_each(self, purpose: str, task: Callable[[U_co], Coroutine[Any, Any, T]]) -> T:
        """Change something whose statements need no common transaction; there is none where that saves round trips."""
        ...
