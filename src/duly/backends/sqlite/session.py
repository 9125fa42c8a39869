"""A session: the threads, the bell and the memory behind one opened backend. Belongs to one event loop.

Changes go to the writer. Lookups go to a reader, listings to another one, so that a long listing delays neither a
change nor a lookup. Readers are started when they are first needed.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Protocol, TypeVar

from duly.backends.sqlite import schema
from duly.backends.sqlite.checkpoint import Checkpointer, checkpoint
from duly.backends.sqlite.completion_waiters import CompletionWaiters
from duly.backends.sqlite.connection import check_file, check_library, connect_reader, forks
from duly.backends.sqlite.listing import ended_of
from duly.backends.sqlite.notify import Notifier
from duly.backends.sqlite.runtime_dir import RuntimeDir
from duly.backends.sqlite.threads import Reader, Work
from duly.backends.sqlite.transaction_thread import TransactionThread
from duly.backends.sqlite.unit_of_work import UnitOfWork
from duly.backends.sqlite.url import Place
from duly.backends.sqlite.writer import Writer
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
        self._gear: Gear | None = None

    async def open(self) -> None:
        """Connect, and bring the schema up to date unless that was left to others."""
        if self._gear is not None and not self._gear.forked:
            return
        check_library()
        meeting = await asyncio.to_thread(self._prepare)
        self._gear = Gear(self.place, self.namespace, self.clock, meeting)
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
        """Finish what was begun and let go."""
        gear, self._gear = self._gear, None
        if gear is not None and not gear.forked:
            await gear.close()

    @property
    def gear(self) -> Gear:
        """What an open session works with; a closed or forked one refuses."""
        if self._gear is None:
            raise BackendError(f"{self.place.path} is not open in this session: open it, or use `async with`")
        if self._gear.forked:
            raise BackendError(
                f"this process was forked after {self.place.path} was opened, and a connection must not be carried"
                " across a fork: open a new session in the child"
            )
        return self._gear

    # --- calls

    async def write(self, work: Work[T]) -> T:
        """Run a function that changes something."""
        gear = self.gear
        self.refuse_inside_a_block("another write")
        return await gear.writer.submit(work)

    async def read(self, work: Work[T]) -> T:
        """Run a function that looks something up."""
        return await self.gear.reader.submit(work)

    async def browse(self, work: Work[T]) -> T:
        """Run a function that may take its time to look many things up."""
        return await self.gear.lister.submit(work)

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
        while (name := await self.write(self._apply_next)) is not None:
            applied.append(name)
        return applied

    def _apply_next(self, unit: UnitOfWork) -> str | None:
        return schema.apply_next(unit, self.namespace, self.place.path)


class Gear:
    """What an open session has."""

    def __init__(self, place: Place, namespace: str, clock: Clock, meeting: RuntimeDir) -> None:
        self.notifier = Notifier(meeting)
        self.relief = Checkpointer(lambda: self.lister.submit(checkpoint))
        self.writer = Writer(
            place,
            namespace,
            clock,
            meeting,
            ring=self.notifier.ring_others,
            hear=self.notifier.ring,
            relieve=self.relief.come,
            orphaned=self.notifier.let_go,
        )
        self.transactor = TransactionThread(place, namespace, clock, meeting, ring=self.notifier.ring_others)
        self.one_block = asyncio.Lock()
        self.reader = Reader("duly-sqlite-reader", place, namespace, clock, connect_reader)
        self.lister = Reader("duly-sqlite-lister", place, namespace, clock, connect_reader)
        self.endings = CompletionWaiters(
            self.notifier, lambda run_ids: self.reader.submit(lambda unit: ended_of(unit, run_ids))
        )
        self._forks = forks()

    @property
    def forked(self) -> bool:
        """Whether this is the copy that a fork has made."""
        return self._forks != forks()

    async def close(self) -> None:
        try:
            for thread in (self.transactor, self.writer, self.lister, self.reader):  # the writer may ask for a relief
                await thread.stop()
        finally:  # also if nobody waits for the threads any longer
            self.endings.close()
            self.notifier.close()
