"""The job store: definitions of jobs, and the step that plans their runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from duly.model import Fired, Firing, JobChange, JobRecord


class JobStore(Protocol):
    """Records of jobs. The planner changes them through `fire`, every other caller through `save`."""

    async def save(self, changes: Sequence[JobChange], *, now: datetime | None = None) -> list[JobRecord | None]:
        """Apply each change whose `expect` is the stored revision (None: no record of that name exists); in order.

        Each change is one atomic step: replace the record, treat waiting runs as `waiting` says, insert the runs of the
        ledger whose id is new. `cursor` and `plan_at` are taken from the change for a new job and with `moves_cursor`;
        otherwise the stored ones stay, because the planner may have moved them meanwhile. `planned` and `planned_in` of
        an existing job are always the stored ones. The runs of a job are those with its name; "not yet due" are those
        with the record's `uid` and cause "schedule" that are pending, without failures and losses, and due after now,
        held or not. Deleting them lowers `planned` by their number. CANCEL ends every other waiting run with the reason
        `rules.admission.REMOVED`, also where the job had another `uid` then. REWIND, which excludes `moves_cursor`,
        also sets the cursor back to the earliest deleted instant and `plan_at` to now. The ledger is inserted as `fire`
        inserts runs. A change that `redefines` also empties the value `DEPLOYED` and raises its version. What a change
        `replaces` is appended to the log `definitions_log(name)`, which keeps the newest `KEPT_DEFINITIONS`. Returns
        each record as stored, None for a lost race.

        Where CANCEL applies to very many runs, a store may cancel most of them in slices before that step, so that it
        blocks no other call. If the call is cut off then, the record is unchanged, and a repeat continues.
        """
        ...

    async def remove(self, name: str, expect: int, *, now: datetime | None = None) -> bool:
        """Delete the record of that revision for good, and its waiting runs as CANCEL does; False if it is not there.

        The log of its definitions is deleted in the same step; if there is one again, its numbers begin at 1.
        Runs that have ended, their attempts and the job's counters stay, and so do dedupe keys with a time.
        """
        ...

    async def job(self, name: str) -> JobRecord | None:
        """The record of that name, removed ones (tombstones) included."""
        ...

    async def jobs(
        self, names: Sequence[str] | None = None, *, after: str = "", limit: int | None = None
    ) -> list[JobRecord]:
        """All records, or those of the given names, by name in code point order, tombstones included.

        Only those whose name is greater than `after`, and at most `limit` of them: a caller can read many in slices.
        Unknown names are left out.
        """
        ...

    async def handlers(self, *, retired: bool) -> set[str]:
        """The handlers of the jobs that need one (`JobRecord.needs_handler`), of the retired ones or of the others.

        The cost depends on the number of handlers, not on the number of jobs.
        """
        ...

    async def jobs_of(self, handler: str, *, retired: bool, after: str = "", limit: int) -> list[JobRecord]:
        """The jobs of a handler among those in `handlers`, in slices by name as in `jobs`.

        The cost depends on what is returned.
        """
        ...

    async def reindex(self, cursor: str = "") -> str | None:
        """Compare a slice of the records with the index that `jobs`, `handlers` and `jobs_of` use, and correct it.

        Nodes of an earlier version may not keep that index. Returns the `cursor` of the next slice, None at the end, at
        once where the store itself keeps the index for all versions.
        """
        ...

    async def next_plans(self, limit: int) -> list[tuple[str, datetime]]:
        """The names of plannable jobs of all shards and their `plan_at`, by that time, then by name.

        The cost depends on `limit` and the number of shards, not on how many jobs are registered.
        """
        ...

    async def install(self, shard: str, proposed: int) -> int:
        """Install a new leader's epoch: the greater of `proposed` and one more than the present. Returns it.

        After that, a `fire` with another epoch of this shard changes nothing, and before the first epoch is installed,
        no `fire` changes anything, not even one with epoch 0.
        """
        ...

    async def due(
        self, shard: str, limit: int, *, now: datetime | None = None
    ) -> tuple[list[JobRecord], datetime | None]:
        """The shard's plannable records whose `plan_at` has come, earliest first; and the next `plan_at` after those.

        `JobRecord.shard` and `plannable` decide; a change may move a job to another shard. The next `plan_at` is in the
        past if `limit` cut the list. With a later `now`, records that are to be planned later are found too. The cost
        depends on what is returned, not on how many jobs are registered.
        """
        ...

    async def fire(
        self, firings: Sequence[Firing], shard: str, epoch: int, *, now: datetime | None = None
    ) -> list[Fired]:
        """Advance cursors and insert runs; one atomic step per firing, in order.

        STALE_EPOCH, regardless of anything else, if `epoch` is not the installed one. A firing applies if the job's
        uid, revision and cursor are as expected, and the job is plannable. Then the store sets cursor and plan_at,
        moves the job to the shard `move_to` if that is given (never a job whose schedule only code can compute),
        inserts the runs whose id is new (waiting, held if they carry a hold, or skipped as they are with `finished_at`
        now), and raises `planned` by the number of those that are not skipped. A repeat answers STALE_JOB and changes
        nothing.
        """
        ...
