"""The run store: records of runs and their history, and what operators do with runs and queues."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from duly.model import (
    COUNTED,
    SCAN,
    Attempt,
    CancelReply,
    Counts,
    JobStatistics,
    LogLine,
    Page,
    RedriveReply,
    Report,
    Run,
    RunQuery,
    State,
)


class RunStore(Protocol):
    """Reads what the queue has recorded, and changes it on behalf of operators."""

    async def run(self, run_id: str, *, now: datetime | None = None) -> Run | None:
        """One run in its present state."""
        ...

    async def runs(
        self, query: RunQuery, limit: int, cursor: str | None = None, *, scan: int = SCAN, now: datetime | None = None
    ) -> Page:
        """Runs that match, in the order of the query. A waiting run that is ready and not held is listed as queued.

        Runs that were created (ended, ready) together may come in any order, as long as the pages have each run once.
        `cursor` is the `next` of the previous page; any other text raises `ConfigurationError`.

        The cost of a call has a bound. It looks at about `scan` runs at most; a store may set a lower bound, and after
        a thousand runs it also stops when it has taken a tenth of a second. It never stops before it has looked at
        `limit` runs. A page that ended in this way may be short, even empty: it has `reached` and `searched`, and
        `next` goes on from there. Runs that an index of the store rules out do not count.
        """
        ...

    async def upcoming(self, limit: int, job: str | None = None, *, now: datetime | None = None) -> list[Run]:
        """Waiting runs without a hold, or held under `place`, by ready time, then id."""
        ...

    async def next_runs(self, jobs: Sequence[str] | None = None, *, now: datetime | None = None) -> dict[str, datetime]:
        """For every job that has runs as in `upcoming`, or for those of the given names: the earliest ready time.

        With names, the cost depends on their number, not on how many runs wait: of a job that has very many waiting
        runs, a store may look at the first ones of its queue and at the job's newest ones only. The time may be too
        late then, never too early; `upcoming` of one job is exact.
        """
        ...

    async def covering(self, uid: str, at: datetime) -> Run | None:
        """The record of a recurring job that accounts for instant `at`: its run, or the skipped range around it."""
        ...

    async def ledger(
        self,
        uid: str,
        start: datetime,
        until: datetime,
        limit: int,
        expected: Sequence[datetime] = (),
        *,
        now: datetime | None = None,
    ) -> list[Run]:
        """What is recorded about the instants of a recurring job from `start` to `until`, by instant, at most `limit`.

        Runs, and skipped ranges that overlap. `expected` are the instants in that time by the job's schedule: a store
        that has no index by instant finds only these, and ranges. The cost follows what is returned and expected, not
        what is stored.
        """
        ...

    async def attempts(self, run_id: str) -> list[Attempt]:
        """The history of a run, oldest first; a success at the first attempt is derived from the run itself."""
        ...

    async def statistics(self, jobs: Sequence[str] | None = None) -> dict[str, JobStatistics]:
        """Counters by job, summed over nodes; a job without settled attempts is left out (`rules.statistics`)."""
        ...

    async def counts(self, *, scan: int = COUNTED, now: datetime | None = None) -> Counts:
        """Runs by state and queue. Every state is there; a queue in which nothing waits or runs may be left out.

        Final states are counted since the store was created: each time that a run ended, purged and redriven ones
        included. A paused queue is there in any case.

        The cost of a call has a bound. A store that has to count runs one by one counts about `scan` waiting ones and
        as many running ones, spread over the queues. It is exact if there are no more; else a number may be too small,
        never too large, and `Depth.at_least` names its state. `Depth.oldest` is exact in any case, and a queue that has
        queued runs is not left out.
        """
        ...

    async def finished(self, run_ids: Sequence[str], timeout: float) -> list[Run]:
        """Wait until one of these runs is final or gone, at most `timeout` seconds; return those that are final.

        Returns at once if one is final or unknown already; empty when the time is over.
        """
        ...

    async def cancel(
        self, run_ids: Sequence[str], reason: str | None = None, *, now: datetime | None = None
    ) -> list[CancelReply]:
        """Cancel waiting runs, held ones included; ask the workers of running ones, as often as it is called.

        In order, as if each were treated alone: a run that is named twice is TOO_LATE the second time. The cost per run
        falls with their number; many are treated in slices, so a call that is cut off may have cancelled some.
        """
        ...

    async def redrive(
        self, run_ids: Sequence[str], *, payload: bytes | None = None, now: datetime | None = None
    ) -> list[RedriveReply]:
        """Run failed, lost or cancelled runs again: same id, failures and losses 0, ready now; old attempts stay.

        With `payload`, each run that is redriven has this payload from now on, in the same atomic step.

        An assignable run is held under `place`, without an assignee. Many are treated as in `cancel`: of two with the
        same dedupe key, the first is redriven and the second is a DUPLICATE.
        """
        ...

    async def backfill(self, runs: Sequence[Run], *, now: datetime | None = None) -> list[bool]:
        """Add runs for due instants that had none: each whose id is new, or that of a skipped run, which it replaces.

        One atomic step for all, of some hundred at most. In order; False, and no change, for one whose id is that of
        any other run. They are inserted as `fire` inserts runs, so one that carries the state skipped is recorded as
        such. The record of a replaced run is deleted with its attempts; counters stay.
        """
        ...

    async def purge(self, state: State, before: datetime | None, keep: int | None, limit: int) -> int:
        """Delete up to `limit` runs of a final state with their attempts and logs, the earliest ended first.

        Those that ended before `before`, and those beyond the newest `keep` of that state; nothing if both are None.
        Counters and dedupe keys with a time stay. Returns how many; call again until 0.
        """
        ...

    async def expire(self, limit: int, *, now: datetime | None = None) -> int:
        """Delete up to `limit` dedupe keys whose time (`Run.unique_for`) has passed, the earliest first.

        No other call answers differently afterwards. Returns how many; call again until 0.
        """
        ...

    # --- logs of runs

    async def report(self, reports: Sequence[Report]) -> list[bool]:
        """Keep what running attempts report; in order, False for each whose fence is not the run's latest.

        The progress of a run that is running under the fence is replaced. A store may leave that out if another call is
        changing the run: the next heartbeat has the progress, too.

        The lines are appended to the run's log if it is running under the fence, or has ended under it. Their numbers
        grow by one, and by more where `written` says that lines in between were not kept. Of the whole log the newest
        `keep` lines stay, and of these the newest whose texts take no more than `model.run_log.room_for(keep)` bytes;
        `keep` is that of the latest report. A report whose lines are in the log already adds none: `written` tells.
        Each report is atomic. The log is deleted with the run, and stays if the run is redriven.
        """
        ...

    async def lines(
        self, run_id: str, after: int = 0, limit: int = 1_000, *, attempt: int | None = None
    ) -> list[LogLine]:
        """The lines of a run with a number greater than `after`, in order, at most `limit`; empty for an unknown run.

        With `attempt`, only lines of attempts with this number.
        """
        ...

    # --- queues

    async def pause(self, queue: str) -> bool:
        """Stop claims from a queue. False if it was paused before."""
        ...

    async def resume(self, queue: str) -> bool:
        """Allow claims again. False if it was not paused."""
        ...

    async def paused(self) -> set[str]:
        """The queues that are paused."""
        ...
