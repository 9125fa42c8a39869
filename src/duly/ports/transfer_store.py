"""The transfer store: reading everything from a store at one moment, and loading it into another."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Protocol

from duly.model import State
from duly.model.transfer import FROZEN, DumpPage, Loaded, StoreMark

__all__ = ["FROZEN", "Snapshot", "TransferStore"]


class Snapshot(Protocol):
    """What a store contains at one moment.

    `at` is that moment, `fence` is at least the highest fence that was given out until then, `ended` is how many ended
    runs are stored by state, and `exact` says whether it is one moment: on a store without transactions that is only
    true while nothing else changes it.
    """

    at: datetime
    fence: int
    ended: dict[State, int]
    exact: bool

    async def dump(self, cursor: str | None, limit: int) -> DumpPage:
        """About `limit` records after the cursor, by kind in the order of `KINDS`, runs by creation.

        A waiting run is pending, whether or not it is ready. With `since`, runs that ended and log entries that were
        added before that time are left out. Runs have their whole logs, and jobs all their earlier definitions, in any
        case. A run that cannot be read in full has `damage`. The cost depends on what is returned.
        """
        ...


class TransferStore(Protocol):
    """Moves whole stores. Nothing here is on the path of a run, except that `FROZEN` stops claims."""

    def snapshot(self, since: datetime | None = None) -> AbstractAsyncContextManager[Snapshot]:
        """Everything in the store, while it works. See `Snapshot.dump` for `since`."""
        ...

    async def mark(self) -> StoreMark | None:
        """Why the store is not in use; None for one that is, and for one that does not exist yet.

        It works on a session that was opened without `Opening.migrates`; every other opening of a marked store raises
        the error of its mark: `ImportUnfinished`, `StoreMoved`, or `BackendUnavailable` for a closed one.
        """
        ...

    async def begin_load(self, source: str) -> None:
        """Mark the store as IMPORTING, unless it contains something: then a `BackendError` says so.

        If an import was interrupted, what it has loaded is deleted first.
        """
        ...

    async def load(self, records: Sequence[Loaded]) -> None:
        """Store records as they are, with their times, versions, counters and numbers; all of them or none.

        Only in a store that is marked as IMPORTING. No run among them is running (`rules.restoring`). A record that
        exists is replaced, a run with its log, and a job with its earlier definitions. Runs keep their order of
        creation, and wait where they waited: held, as a member of their group, or to enter it.
        """
        ...

    async def end_load(self, fence: int) -> None:
        """Remove the mark. All later fences, of claims and of leases, are greater than `fence`."""
        ...

    async def freeze(self) -> None:
        """Let no run start and plan none until `thaw`; everything else goes on. A repeat changes nothing.

        Pauses `FROZEN`, and makes the epochs of all planners old.
        """
        ...

    async def thaw(self) -> None:
        """End a freeze."""
        ...

    def closing(self, address: str, since: datetime) -> AbstractAsyncContextManager[Snapshot]:
        """Read the last changes of a store that moves to another address, and close it.

        While the block is open, no other session changes anything: its calls wait, or raise `BackendUnavailable`.
        Leaving it normally marks the store as MOVED: from then on every call of every session raises `StoreMoved`.
        An exception leaves the store as it was.
        """
        ...

    async def reopen(self) -> None:
        """Remove the mark CLOSED or MOVED: the store is as it was when it was closed. Without one, does nothing."""
        ...
