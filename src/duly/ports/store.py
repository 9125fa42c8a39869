"""The store port: definitions, the planning step, records and their history, and the small things around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, Protocol

from duly.model import (
    Attempt,
    CancelReply,
    Claim,
    Counts,
    Entry,
    Fired,
    Firing,
    Item,
    JobChange,
    JobRecord,
    JobStatistics,
    Page,
    Put,
    RedriveReply,
    Run,
    RunQuery,
    State,
)


class Transaction(Protocol):
    """A user's transaction that the completion of one run joins."""

    async def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement inside the transaction and return its rows."""
        ...

    async def put(self, runs: Sequence[Run]) -> list[Put]:
        """As `Queue.put`, visible only if the transaction commits."""
        ...


class Store(Protocol):
    """The control plane and the memory. Absence is None; a lost race is a value."""

    # --- definitions and planning

    async def save(self, changes: Sequence[JobChange], *, now: datetime | None = None) -> list[JobRecord | None]:
        """Apply each change whose `expect` is the stored revision (None: no record of that name); in order.

        One atomic step each: the record is replaced, waiting runs are treated as `waiting` says, the ledger's runs are
        inserted where their id is new. `cursor` and `plan_at` are the record's for a new job and where `moves_cursor`
        says so; otherwise the stored ones stay, since the planner may have moved them meanwhile. "Not yet due" means
        recurring, pending, never attempted, and due after now. Deleting such runs lowers `planned` by their number;
        REWIND, which does not go with `moves_cursor`, also sets the cursor back to the earliest deleted instant, and
        `plan_at` to now. Returns the record as stored, None for a lost race.

        Where CANCEL meets very many runs, most of them may be cancelled in slices before that step, so that nobody is
        held up; if the call is cut off then, the record is as it was, and a repeat goes on.
        """
        ...

    async def remove(self, name: str, expect: int, *, now: datetime | None = None) -> bool:
        """Delete the record of that revision for good, with its waiting runs as by CANCEL. History stays."""
        ...

    async def job(self, name: str) -> JobRecord | None:
        """The record of that name, tombstones included."""
        ...

    async def jobs(
        self, names: Sequence[str] | None = None, *, after: str = "", limit: int | None = None
    ) -> list[JobRecord]:
        """All records, or those of the given names, by name, tombstones included.

        Only those whose name is greater than `after`, and at most `limit` of them: so that many can be read in slices.
        """
        ...

    async def install(self, shard: str, proposed: int) -> int:
        """Make a new leader's epoch known: the greater of `proposed` and one more than the present. Returns it.

        From then on a `fire` with an older epoch of this shard changes nothing.
        """
        ...

    async def due(
        self, shard: str, limit: int, *, now: datetime | None = None
    ) -> tuple[list[JobRecord], datetime | None]:
        """The shard's plannable records whose `plan_at` has come, earliest first; and the next `plan_at` after those.

        Cost follows what is returned, not what is registered.
        """
        ...

    async def fire(
        self, firings: Sequence[Firing], shard: str, epoch: int, *, now: datetime | None = None
    ) -> list[Fired]:
        """Advance cursors and insert runs; one atomic step per firing, in order.

        A firing applies if `epoch` is the installed one, the job's uid, revision and cursor are as expected and it is
        plannable. Then cursor and plan_at are set, runs inserted where their id is new (pending, held if they carry a
        hold, or as they are if skipped), and `planned` grows by the number of those that are not skipped. A repeat is
        STALE_JOB and harmless.
        """
        ...

    # --- records and history

    async def run(self, run_id: str, *, now: datetime | None = None) -> Run | None:
        """One run as it stands."""
        ...

    async def runs(
        self, query: RunQuery, limit: int, cursor: str | None = None, *, now: datetime | None = None
    ) -> Page:
        """Runs that match, newest created first; `cursor` is the `next` of the page before, else ConfigurationError.

        A waiting run that is ready and not held is listed as queued.
        """
        ...

    async def upcoming(self, limit: int, job: str | None = None, *, now: datetime | None = None) -> list[Run]:
        """Waiting runs that nothing holds, or nothing but that they are yet to be placed, by ready time, then id."""
        ...

    async def next_runs(self, *, now: datetime | None = None) -> dict[str, datetime]:
        """For every job that has runs as in `upcoming`: the earliest ready time among them."""
        ...

    async def covering(self, uid: str, at: datetime) -> Run | None:
        """The record of a recurring job that accounts for instant `at`: its run, or the skipped range around it."""
        ...

    async def attempts(self, run_id: str) -> list[Attempt]:
        """The history of a run, oldest first; a success at the first try is told from the run itself."""
        ...

    async def statistics(self, jobs: Sequence[str] | None = None) -> dict[str, JobStatistics]:
        """Counters by job, summed over nodes; a job that never ended a run is left out."""
        ...

    async def counts(self, *, now: datetime | None = None) -> Counts:
        """Runs by state and queue. States that end a run are counted since the store began, not what is left."""
        ...

    async def finished(self, run_ids: Sequence[str], timeout: float) -> list[Run]:
        """Wait until one of these runs is final, or gone; return those that are final. After `timeout` maybe none."""
        ...

    async def cancel(
        self, run_ids: Sequence[str], reason: str | None = None, *, now: datetime | None = None
    ) -> list[CancelReply]:
        """Cancel waiting runs, held ones included; ask the workers of running ones.

        In order, as if each were treated alone: a run that is named twice is TOO_LATE the second time. Cost per run
        falls with their number; many are treated in slices, so a call that is cut off may have cancelled some.
        """
        ...

    async def redrive(self, run_ids: Sequence[str], *, now: datetime | None = None) -> list[RedriveReply]:
        """Run failed, lost or cancelled runs again: same id, failures and losses 0, ready now; old attempts stay.

        An assignable one is held under `place`, without an assignee. Many are treated as by `cancel`: of two with the
        same dedupe key, the first is redriven and the second is a DUPLICATE.
        """
        ...

    async def purge(
        self,
        state: State,
        before: datetime | None,
        keep: int | None,
        limit: int,
    ) -> int:
        """Delete up to `limit` runs of a final state with their attempts, the longest ended first.

        Those that ended before `before`, and those beyond the newest `keep`. Returns how many; call again until 0.
        """
        ...

    async def expire(self, limit: int, *, now: datetime | None = None) -> int:
        """Delete up to `limit` dedupe keys whose time (`Run.unique_for`) has passed, the longest passed first.

        Changes nothing that anybody can see. Returns how many; call again until 0.
        """
        ...

    # --- queues

    async def pause(self, queue: str) -> bool:
        """Stop claims from a queue. False if it was paused before."""
        ...

    async def resume(self, queue: str) -> bool:
        """Let claims go on. False if it was not paused."""
        ...

    async def paused(self) -> set[str]:
        """The queues that are paused."""
        ...

    # --- small things

    async def append(
        self, log: str, entries: Sequence[bytes], expect: int | None = None, keep: int | None = None
    ) -> int | None:
        """Add entries to a log, all or none; returns the last sequence number, also when there is nothing to add.

        With `expect` only if the log's last number is that (0: empty); None when it is not. With `keep`, which is at
        least 1, only the newest so many entries stay afterwards; without it nothing ever goes. Numbers begin at 1, grow
        by one and are never given twice, whatever has gone.
        """
        ...

    async def read(self, log: str, after: int = 0, limit: int = 100) -> list[Entry]:
        """Entries with a number greater than `after`, in order. Those that are left: a jump in numbers tells a gap."""
        ...

    async def get(self, kind: str, key: str) -> Item | None:
        """A stored value, None if there is none."""
        ...

    async def put(self, kind: str, key: str, value: bytes | None, expect: int | None = None) -> Item | None:
        """Write a value, or delete it (None).

        With `expect` only if the present version is that (0: it does not exist). Returns the item as it is now; None
        for a deletion and for a lost race.
        """
        ...

    async def items(self, kind: str) -> list[Item]:
        """All values of a kind, by key."""
        ...

    async def take(
        self, bucket: str, tokens: float, rate: float, burst: float, *, now: datetime | None = None
    ) -> float:
        """Take tokens from a bucket that refills at `rate` per second up to `burst`.

        0.0 when they were taken; else the seconds until they could be, and nothing is taken. A new bucket is full.
        """
        ...

    # --- transactions, where `Capabilities.transactions` says so

    def transaction(self, claim: Claim, *, timeout: float) -> AbstractAsyncContextManager[Transaction]:
        """A transaction whose last statement checks the fence and completes the run.

        Leaving the block normally commits both the user's writes and the completion, or raises `ClaimLost` and neither.
        An exception, or more than `timeout` seconds, rolls back.
        """
        ...

    def within(self, connection: Any) -> Transaction:
        """Join a transaction the user has open on `connection`; it is theirs to commit. `execute` runs on it as is."""
        ...

    # --- housekeeping

    async def migrate(self) -> list[str]:
        """Bring the schema up to date; returns the names of the steps applied. Safe to call from many at once."""
        ...

    async def time(self) -> datetime:
        """The store's clock."""
        ...
