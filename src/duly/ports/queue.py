"""The queue port: the hot path of a run, from waiting through a fenced claim to its settlement.

A *waiting* run is pending or queued. A run with a hold is pending and in no index; `model.holds` has the grammar of
hold keys, and who puts runs back. A store may keep a ready run as pending until it is promoted: every read returns a
waiting run without a hold as queued if it is ready at `now`, else as pending.

**Order.** Priority (9 before 0), then ready time, then id, over all the queues of a claim as if they were one. An
adapter whose `Capabilities.order` is BANDED may mix neighbouring priorities.

**Scheduled runs have a share.** Within one priority, scheduled runs (cause "schedule") do not wait behind a backlog of
others. While both kinds are ready, at least a quarter (rounded up) of the places that a claim fills from that priority
goes to scheduled runs; with fewer than four places to fill it is one place if `request` modulo four is less than their
number (`rules.sharing`). Beyond that share, ready time and id decide. Each kind is lent in its order; the store decides
how the two alternate in the answer. The share costs nothing while only one kind waits.

**Groups.** A run with a `group` counts in it (`member`) from the moment it is queued until it is final, waiting for a
retry included. A due run whose group has `limit` members is not queued; its own `when_full` decides, in the same step:

* `skip`: it ends as skipped, reason "overlap";
* `queue`: it is held under `group:<group>`;
* `replace`: members that wait are cancelled and runs held for the group are skipped (reason "replaced"), running
  members are asked to cancel; then it is queued if there is room by now, else held under `group:<group>`.

Runs that are ready together are considered by ready time, then id. When a member becomes final, the first of the runs
held for that group (by the order above) waits again, pending and without a hold, and enters when it is promoted. If it
leaves without entering, its place goes to the next: it may be cancelled, skipped, deleted, or held under another key
(`rules.admission.moved_up`).

**Fields.** A step sets these fields of a run and leaves the others as they are:

* `put`: `state`, `created_at`. `unique_for` is not stored.
* `promote`: `state`; `member` of a run that enters its group.
* a hold: `hold`, `state` pending. Under `group:<group>` also `start_by` None, under `place` also `assignee` None.
* `claim`, `claim_held`, `begin`: `state` running, `fence`, `node`, `request`, `started_at`, `expires_at`; `progress`
  and `hold` None.
* `renew`: `expires_at`; `progress`, if the beat has one.
* `reap`, `take_over`: `fence`, `expires_at`; `request` 0, so that no repeated `claim` returns the run.
* `settle`: `state`, `ready_at`, `failures`, `losses`, `reason` and `failure` from the settlement, whatever the state;
  `expires_at` None, `cancelling` False. If the run waits again, also `hold`, `assignee`, and `start_by`
  (`rules.misfires.start_by_after`); if it has ended, also `result`.
* any end: `finished_at` (the settlement's `ended_at`, else `now`), `reason`; `hold` and `expires_at` None, `member` and
  `cancelling` False. `assignee` stays.
* `cancel` of a running run: `cancelling`, and `reason` from the latest request.
* `redrive`: `state` and `hold` as after `put`, `ready_at` now, `failures` and `losses` 0, `member` False;
  `finished_at`, `reason`, `start_by` and `assignee` None. What the last attempt left (`node`, `started_at`, `failure`,
  `progress`) stays until the next one.

**`next_due`** is the earliest ready time among pending runs that have no hold, as `promote` and `claim` leave them, and
None if there is no such run. A caller sleeps until then. A `next_due` that has passed means that the call stopped
before it had looked at everything (`limit`): ask again. `claim` may leave out runs that are assigned to other nodes. A
node keeps what it learns in `runtime.next_due`, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Protocol

from duly.model import Assignment, Beat, Claim, Claimed, EndedProcess, Put, Renewal, Run, Settlement, Share


class Queue(Protocol):
    """Every change here is atomic per run and conditional on what is stored, never on what a caller believes."""

    async def put(self, runs: Sequence[Run], *, now: datetime | None = None) -> list[Put]:
        """Add runs: queued if ready and without a group, else pending. Sets `created_at`.

        A run that carries a hold is held from the start, and the nodes that may put it back are woken. In order. A run
        whose id exists, or whose dedupe key belongs to another run of the same handler (also one earlier in this
        batch), is not added: the answer is that run's id, `created=False`, and when that run was created. The id counts
        first: a repeat of a call finds its own runs.

        A run keeps its dedupe key while it is unfinished. A run that was put with `unique_for` keeps it for that many
        seconds from then by the store's clock in any case: whether it has ended, was cancelled, redriven or purged, or
        its job removed. Such a key has no effect once its time has passed; `Store.expire` deletes it. Keys with a time
        are kept separately from the keys of unfinished runs: a run may have both, and each ends independently.

        `legacy` concerns stores that nodes of 0.1.0 can open: the run waits where they look, and has no share of a
        claim as a scheduled run. Other stores ignore it.
        """
        ...

    async def promote(self, limit: int, *, now: datetime | None = None) -> tuple[int, datetime | None]:
        """Move at most `limit` pending runs that are ready to queued, or to what their group says, by ready time, id.

        Before a run enters its group: if its `start_by` has passed and it has been ready for more than a second, it is
        skipped with the reason "misfire". A run that is held for its group has no `start_by` any more.

        Returns how many runs it looked at, and `next_due`. Any working node may call it.
        """
        ...

    async def claim(
        self,
        node: str,
        queues: Sequence[str] | None,
        handlers: Collection[str] | None,
        limit: int,
        lease: float,
        request: int,
        *,
        now: datetime | None = None,
    ) -> Claimed:
        """Lend up to `limit` queued runs to `node` for `lease` seconds: queued → running, in order.

        Promotes ready runs first. `queues` None means all; a paused queue gives nothing. Each claim has a fresh fence,
        greater than all before in this store, taken after the run is locked. Sets node, start and expiry; counts
        nothing. A run whose job is paused or removed goes to the hold `job:<job>` instead, one whose handler is not
        among `handlers` (None: the node has all) to `handler:<handler>`; neither counts towards `limit`
        (`rules.admission.hold_of`). Only runs whose turn has come are held so; those that would come after the last run
        lent stay queued. A job is paused or removed if its record has `paused` or `removed_at`; a run whose job has no
        record starts like any other. Before that, runs held for a handler that this node has are put back, so that they
        reach a node that can start them. A run that is assigned to a node is lent to that node only, in the same order
        among the others; if that node has no handler for it, it is held under `place` again, without an assignee.

        `request` is 1 or more and grows with every new call of a node. Repeating a call with the same number returns
        the runs that it lent the first time and that are still running, under the same fences, and lends nothing more;
        if there are none, it is a new call. A run that was taken over since (`reap`) is not one of them. The same
        numbers count for `claim_held` and `begin`.
        """
        ...

    async def read_ahead(
        self,
        node: str,
        queues: Sequence[str] | None,
        handlers: Collection[str] | None,
        until: datetime,
        limit: int,
        start: int = 0,
        step: int = 1,
        cursor: str | None = None,
        *,
        now: datetime | None = None,
    ) -> tuple[list[Run], str | None]:
        """Scheduled runs that this node could `begin` at their ready time, which comes after now and by `until`.

        Changes nothing. A backend without the capability `reads_ahead` returns nothing, and nodes do not ask. Of all
        pending scheduled runs without a hold that are ready in that time, by ready time, then id, it takes the first
        `step` times `limit` after the cursor, and looks at number `start` (from 0) and every `step`-th after it; so
        nodes that read at the same time can read different ones. It returns those of them that a claim of this node,
        made when they are ready, would lend as things are now: never claimed before, assigned to no other node, of
        these queues and handlers, the queue not paused, the job neither paused nor removed. Groups do not matter here.
        Also returns the cursor with which a call with the same `start` and `step` continues, None at the end. The cost
        of a call does not depend on how many runs come before its cursor.
        """
        ...

    async def begin(
        self, node: str, runs: Sequence[Run], lease: float, request: int, *, now: datetime | None = None
    ) -> list[Claim | None]:
        """Lend runs that this node has read ahead, as `claim` does, but by id and without promoting all others first.

        In order. None for each that may not start now: it is not ready, it is not the run that was read (another
        `created_at`), was claimed before, is not waiting or is held, its group has no room, its `start_by` has passed,
        it is assigned to another node, its job is paused or removed, its queue is paused. The call leaves those as
        they are, or does with them what `promote` and `claim` do. A run that begins enters its group; entrants to that
        group that have been ready for longer are promoted first, and those that are ready at the same time may be. The
        claims have the given runs with the fields that `claim` sets, and fences that grow in their order. Priorities
        do not matter here: a caller begins runs only while its claims show that nothing else waits.

        `request` is a number as in `claim`: repeating a call with the same number returns the claims of those of the
        runs that are still running under it, and lends nothing more, unless there are none.
        """
        ...

    async def renew(
        self, beats: Sequence[Beat], lease: float, silence: float | None = None, *, now: datetime | None = None
    ) -> Renewal:
        """Extend each claim whose run is running under this fence, expired or not, and keep its progress.

        One reply for each, in order: whether this fence still owns the run, and if so, whether an operator wants it
        cancelled. Never waits for another call: for a claim that another transaction is changing, the reply may be
        BUSY; that claim is not extended, the others are. Also records the time of the store-wide last beat, even
        without claims: it proves that a node reaches the store.

        If the last beat is more than `silence` seconds old, either the store was unreachable or all nodes were: an
        amnesty of `lease` seconds begins before anything else, so that live nodes can renew their claims first. The
        caller may have just started and cannot know which nodes are alive. A clock that has gone back shortens an
        amnesty to `lease`. With `silence` None the age of the last beat means nothing. Without any beat, the store's
        creation counts. The call that ends a silence returns when it began, so that the caller can record it.
        """
        ...

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """Apply each settlement whose run is running under its fence; in order, False for a stale or unknown one.

        There is no `now`: the settlement has its times. `rules.settling.as_stored` is what applies to the stored run.
        A settlement whose fence is that of a run that is no longer running was applied before: not stale, changes
        nothing, except that a result it carries is kept where the run is completed and has none. One that would make a
        run pending whose cancellation was asked for makes it cancelled instead; a cancelled run keeps the reason that
        was given with the request. No final run is `cancelling`. One that makes a run pending and has a hold holds it
        under that key; one that makes an assignable run pending and has none, under `place`: the node may be stopping
        or dead, and a retry may succeed elsewhere. Either way an assignable run has no assignee then. A
        final state frees the dedupe key (but see `put`) and the group; an attempt is appended to the history; the
        counters per job and node grow, once per key and call.
        """
        ...

    async def reap(
        self, limit: int, lease: float, silence: float | None = None, *, now: datetime | None = None
    ) -> list[Claim]:
        """Take over expired claims under fresh fences for `lease` seconds, the longest expired first.

        In the answer the run has the fresh fence and still names the node, the start and the expiry of the attempt that
        was lost; the claim has its own expiry, which is also the stored one; the caller settles it. Nothing while an
        amnesty lasts (see `renew`), nor if the last beat is more than `silence` seconds old: the caller's own node
        beats, so the store was unreachable or this call was delayed.
        """
        ...

    async def take_over(
        self, process: EndedProcess, limit: int, lease: float, *, now: datetime | None = None
    ) -> list[Claim]:
        """Take over the claims of a process that has certainly ended, as `reap` takes over expired ones.

        These are the runs that run on `process.node`, lent by its requests `first` to `last`, whether or not their
        claims have expired; those that expire first come first. A run that another process with the same node id has
        claimed was lent by a request outside of these, and a run that was taken over before by request 0: both stay.
        No amnesty and no silence prevents it, because the caller knows that the process has ended.

        A repeat takes what is left: call again until nothing is returned. A claim that another transaction is changing
        may be left out, and a call that the process sent just before it ended may reach the store later. So call again
        after a moment; what comes later still expires.
        """
        ...

    async def unhold(self, key: str, limit: int) -> int:
        """Put back up to `limit` runs held under `key`, in order; returns how many. Call again until 0.

        They are pending without a hold then, and enter their group or queue when they are promoted.
        A run that is put back from `place` is no longer assignable: any node may claim it.
        """
        ...

    async def holds(self) -> dict[str, int]:
        """How many runs are held, by key. A key without runs is left out."""
        ...

    async def held(self, key: str, limit: int, after: Run | None = None, *, now: datetime | None = None) -> list[Run]:
        """The first `limit` runs held under `key`: ready ones by priority, ready time, id; then the others by time.

        With `after` those that come after that run in this order (`rules.placement.placing_order`), whether or not it
        is still there: so that runs which no node can start do not hide those behind them.
        """
        ...

    async def claim_held(
        self, key: str, run_id: str, node: str, lease: float, request: int, *, now: datetime | None = None
    ) -> Claim | None:
        """Lend one run that is held under `key` to `node` for `lease` seconds, as `claim` lends queued ones.

        None, and no change, if it is not held under that key, not ready, waits to enter its group, its job is paused or
        removed, or its queue is paused. The caller checks that it has the handler. `request` is a number as in `claim`:
        repeating a call returns the same claim for as long as the run is running under it.
        """
        ...

    # --- placement: which node may start an assignable run (`rules.placement`). Such a run is put under `place`.

    async def assign(self, assignments: Sequence[Assignment]) -> list[bool]:
        """Give runs to nodes: each that is still held under `place` waits again, and only that node's claims lend it.

        In order; False, and no change, for one that was not held under `place`: another call was first, or it has
        ended. An assigned run is promoted, grouped, held, put back, cancelled, listed and counted like any other, under
        its own queue's name; while its queue is paused, no claim lends it. Wakes the nodes.
        """
        ...

    async def unassign(self, node: str, limit: int) -> int:
        """Take up to `limit` runs that wait for a node back under `place`; returns how many. Call again until 0.

        One that has been offered a place in its group and has not entered gives it to the next.

        Running runs and runs that are held for another reason stay; the latter follow when they are put back.
        """
        ...

    async def assigned(self, *, now: datetime | None = None) -> dict[str, Share]:
        """By node, how many of its assigned runs without a hold are running or ready, and how many are not ready yet.

        A ready run whose queue is paused is left out: it takes no slot. A node without runs may be left out. The cost
        depends on how many are assigned, not on how many wait.
        """
        ...

    # --- waiting

    async def wait(self, node: str, queues: Sequence[str] | None, timeout: float) -> None:
        """Return when there may be something to do, at the latest after `timeout` seconds.

        That is: new ready work, an earlier `next_due`, a request to cancel a run of this node, a free leadership.
        `queues` are those that the node claims from; empty if it claims nothing. A return is a hint: there may be
        nothing to do, or another node may have done it; a lost hint costs the timeout. A store that wakes a single node
        for new work wakes one that can start it by what its claims have said (queues, handlers, room); otherwise it
        wakes all that wait.
        """
        ...
