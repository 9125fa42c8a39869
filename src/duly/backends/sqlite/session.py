"""A session: the threads and the notifier behind one opened backend, and its schema. Belongs to one event loop.

Changes go to the writer. Lookups go to a reader, listings to another one, so that a long listing delays neither a
change nor a lookup. Readers are started when they are first needed.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Protocol, TypeVar

from msgspec import Struct

from duly.backends.marks import refused
from duly.backends.sql.moving.transfer import MARK, find_mark
from duly.backends.sql.unit import STORE, Row
from duly.backends.sqlite.connection import check_file, check_library, connect_reader, forks
from duly.backends.sqlite.files import Place, RuntimeDir
from duly.backends.sqlite.notify import Notifier
from duly.backends.sqlite.threads import Reader, Work, Writer
from duly.backends.sqlite.transaction import TransactionThread
from duly.backends.sqlite.unit import SqliteUnit, driven
from duly.errors import BackendError
from duly.ports import Clock

T = TypeVar("T")


class OpenBlock(Protocol):
    """A transaction block; a task that was started in one may outlive it."""

    @property
    def is_open(self) -> bool: ...


# The blocks that the running task is in, with their sessions.
_inside: ContextVar[tuple[tuple[Session, OpenBlock], ...]] = ContextVar("duly_sqlite_inside", default=())


class Session:
    """The way to the file, from `open` to `close`."""

    def __init__(self, place: Place, namespace: str, clock: Clock, *, migrates: bool = True) -> None:
        self.place = place
        self.namespace = namespace
        self.clock = clock
        self._migrates = migrates
        self._resources: Resources | None = None

    async def open(self) -> None:
        """Connect, and migrate the schema unless migration is disabled."""
        if self._resources is not None and not self._resources.forked:
            return
        check_library()
        runtime_dir = await asyncio.to_thread(self._prepare)
        self._resources = Resources(self.place, self.namespace, self.clock, runtime_dir)
        try:
            if self._migrates:
                await self.migrate()
        except BaseException:
            await self.close()
            raise

    def _prepare(self) -> RuntimeDir:
        check_file(self.place.path)
        return RuntimeDir(self.place.path.resolve(), self.namespace)

    async def close(self) -> None:
        """Finish pending calls and close."""
        resources, self._resources = self._resources, None
        if resources is not None and not resources.forked:
            await resources.close()

    @property
    def resources(self) -> Resources:
        """What an open session works with; a closed or forked one refuses."""
        if self._resources is None:
            raise BackendError(f"{self.place.path} is not open in this session: open it, or use `async with`")
        if self._resources.forked:
            raise BackendError(
                f"this process was forked after {self.place.path} was opened, and a connection must not be carried"
                " across a fork: open a new session in the child"
            )
        return self._resources

    # --- calls

    @property
    def notifier(self) -> Notifier:
        return self.resources.notifier

    async def write(self, purpose: str, task: Work[T], timeout: float | None = None) -> T:
        resources = self.resources
        self.refuse_inside_a_block("another write")
        return await resources.writer.submit(task)

    async def write_each(self, purpose: str, task: Work[T]) -> T:
        return await self.write(purpose, task)

    async def read(self, task: Work[T], *, listing: bool = False, timeout: float | None = None) -> T:
        resources = self.resources
        return await (resources.lister if listing else resources.reader).submit(task)

    # --- transaction blocks

    def enter_block(self, block: OpenBlock) -> None:
        """From here on, until the block is over, the running task and those it starts are in it."""
        still = [entry for entry in _inside.get() if entry[1].is_open]
        _inside.set((*still, (self, block)))

    def refuse_inside_a_block(self, what: str) -> None:
        """Raise if the running task is in a block of this session: it would wait for itself."""
        if any(session is self and block.is_open for session, block in _inside.get()):
            raise BackendError(
                f"a transaction of this session is open in this task, and {what} would wait for it for ever:"
                " use the transaction's own put and execute, or do it after the block"
            )

    # --- schema

    async def migrate(self) -> list[str]:
        """Bring the schema up to date; the names of the steps applied."""
        applied: list[str] = []
        while (name := await self.write(STORE, self._apply_next)) is not None:
            applied.append(name)
        return applied

    async def _apply_next(self, unit: SqliteUnit) -> str | None:
        return apply_next(unit, self.namespace, self.place.path)


class Resources:
    """What an open session has."""

    def __init__(self, place: Place, namespace: str, clock: Clock, runtime_dir: RuntimeDir) -> None:
        self.notifier = Notifier(runtime_dir)
        self.checkpointer = Checkpointer(lambda: self.lister.submit(checkpoint))
        self.writer = Writer(
            place,
            namespace,
            clock,
            runtime_dir,
            ring=self.notifier.ring_others,
            hear=self.notifier.ring,
            checkpoint=self.checkpointer.come,
            orphaned=self.notifier.let_go,
        )
        self.transactor = TransactionThread(place, namespace, clock, runtime_dir, ring=self.notifier.ring_others)
        self.one_block = asyncio.Lock()
        self.reader = Reader("duly-sqlite-reader", place, namespace, clock, connect_reader)
        self.lister = Reader("duly-sqlite-lister", place, namespace, clock, connect_reader)
        self._forks = forks()

    @property
    def forked(self) -> bool:
        """Whether this is the copy that a fork has made."""
        return self._forks != forks()

    async def close(self) -> None:
        try:
            for thread in (self.transactor, self.writer, self.lister, self.reader):  # the writer may checkpoint
                await thread.stop()
        finally:  # even if the wait for the threads was cancelled
            self.notifier.close()


_TABLE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = '{ns}_schema'"
_CREATE = """
CREATE TABLE IF NOT EXISTS {ns}_schema (
    version INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    applied_at INTEGER NOT NULL
)
"""
_VERSION = "SELECT coalesce(max(version), 0) FROM {ns}_schema"
_RECORD = "INSERT INTO {ns}_schema (version, name, applied_at) VALUES (?, ?, ?)"


class Step(Struct, frozen=True):
    """One step of the schema: its number, the name of its file, and its statements."""

    version: int
    name: str
    script: str

    def statements(self) -> Iterator[str]:
        """The statements one by one."""
        statement = ""
        for line in self.script.splitlines(keepends=True):
            statement += line
            if sqlite3.complete_statement(statement):
                yield statement
                statement = ""


@cache
def steps() -> tuple[Step, ...]:
    """All steps this code knows, in order."""
    files = resources.files("duly.backends.sqlite").joinpath("migrations").iterdir()
    scripts = {file.name.removesuffix(".sql"): file.read_text() for file in files if file.name.endswith(".sql")}
    return tuple(Step(int(name[:4]), name, scripts[name]) for name in sorted(scripts))


def has_schema(unit: SqliteUnit) -> bool:
    """Whether the namespace has tables."""
    return unit.select_one(_TABLE) is not None


def version_of(unit: SqliteUnit) -> int:
    """The version of the namespace's tables; 0 when there are none."""
    if not has_schema(unit):
        return 0
    row = unit.select_one(_VERSION)
    assert row is not None
    return int(row[0])


def apply_next(unit: SqliteUnit, namespace: str, path: Path) -> str | None:
    """Apply the next step that is missing; its name, or None when there is none."""
    version, latest = version_of(unit), steps()[-1].version
    if version == MARK and (mark := driven(find_mark(unit))) is not None:
        raise refused(mark, str(path))
    if version > latest:
        raise BackendError(
            f"{path} has schema version {version} in namespace {namespace!r}, but this Duly knows only version"
            f" {latest}: install the newer Duly that migrated it, or open another file"
        )
    step = next((step for step in steps() if step.version > version), None)
    if step is None:
        return None
    unit.execute(_CREATE)
    for statement in step.statements():
        unit.execute(statement)
    unit.execute(_RECORD, step.version, step.name, unit.micros(None))
    return step.name


_SHORTEST_REST = 0.1


async def checkpoint(unit: SqliteUnit) -> list[Row]:
    """Checkpoint: copy the log into the file, as far as no reader needs the old pages."""
    return unit.select("PRAGMA wal_checkpoint(PASSIVE)")


class Checkpointer:
    """Belongs to one event loop. One checkpoint at a time, with a pause in between."""

    def __init__(self, start: Callable[[], asyncio.Future[list[Row]]]) -> None:
        self._start = start
        self._busy = False
        self._rested_at = 0.0

    def come(self) -> None:
        """Copy, unless that is being done or was done just now."""
        loop = asyncio.get_running_loop()
        if not self._busy and loop.time() >= self._rested_at:
            self._busy = True
            self._start().add_done_callback(self._done)

    def _done(self, copied: asyncio.Future[list[Row]]) -> None:
        self._busy = False
        self._rested_at = asyncio.get_running_loop().time() + _SHORTEST_REST
        if not copied.cancelled():
            copied.exception()  # ignore errors: a lasting one also fails the writer's next commit
