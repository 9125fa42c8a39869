"""The queue port: the hot path of a run, from waiting through a fenced claim to its settlement.

Order is strict: priority (9 before 0), then ready time, then id, over all asked queues as if they were one; an adapter
whose `Capabilities.order` is banded may keep that order within priority bands only. A *waiting* run is pending or
queued. A run with a hold is pending but in no index: neither promoted nor claimed until it is put back.

Within one priority, scheduled runs (cause "schedule") do not wait behind a backlog of others. While both are ready, at
least a quarter (rounded up) of the places that a claim fills from that priority goes to scheduled runs; with fewer than
four places to fill it is one place if `request` modulo four is less than their number (`rules.sharing`). Beyond that
share, ready time and id decide. Each kind is lent in its order; how the two follow each other in the answer is the
store's affair. The share costs nothing while only one kind waits.

A run with a `group` counts in it (`member`) from the moment it is queued until it is final, waiting for a retry
included. A due run whose group holds `limit` members is not queued; its own `when_full` decides, in the same step:

* `skip`: it ends as skipped, reason "overlap";
* `queue`: it is held under `group:<group>`;
* `replace`: members that wait are cancelled and runs held for the group are skipped (reason "replaced"), running
  members are asked to cancel; then it is queued if there is room by now, else held under `group:<group>`.

Runs that are ready together are considered by ready time, then id. When a member becomes final, the first of the runs
held for that group (by the order above) waits again; if that one leaves without entering, its place goes to the next.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Protocol

from duly.model import Assignment, Beat, Claim, Claimed, Put, Renewal, Run, Settlement, Share


class Queue(Protocol):
    """Every change here is atomic per run and conditional on what is stored, never on what a caller believes."""

    async def put(self, runs: Sequence[Run], *, now: datetime | None = None) -> list[Put]:
        """Add runs: queued if ready and without a group, else pending. Sets `created_at`.

        One that carries a hold is held from the start, and somebody is woken who may put it back. In order. A run whose
        id exists, or whose dedupe key another run of the same handler has (also one earlier in this batch), is not
        added: the answer is that run's id, `created=False`, and when that run was created.

        A run has its dedupe key while it is unfinished. One that was put with `unique_for` has it for so many seconds
        from then by the store's clock in any case: whether it has ended, was cancelled, redriven or purged, or its job
        removed. Such a key is not looked at any more once its time has passed; `Store.expire` deletes it.
        """
        ...

    async def promote(self, limit: int, *, now: datetime | None = None) -> tuple[int, datetime | None]:
        """Move at most `limit` pending runs that are ready to queued, or to what their group says.

        Before a run enters its group: if its `start_by` has passed and it has been ready for more than a second, it is
        skipped with the reason "misfire". A run that is held for its group is no longer to start by a time.

        Returns how many were looked at and the earliest ready time among runs still pending (None: there is none). Any
        working node may call it.
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

        Promotes what is ready first. `queues` None means all; a paused queue gives nothing. Each claim has a fresh
        fence, greater than all before in this store, taken after the run is locked. Stamps node, start, expiry; counts
        nothing. A run whose job is paused or removed goes to the hold `job:<job>` instead, one whose handler is not
        among `handlers` (None: all are known) to `handler:<handler>`; neither counts towards `limit`. Before that, runs
        held for a handler that this node has are put back, so they come to a node that can start them. A run that is
        assigned to a node is lent to that node only, in the same order among the others; if that node has no handler
        for it, it is held under `place` again, without an assignee.

        `request` is 1 or more and grows with every new call of a node. Repeating a call with the same number returns
        those runs it lent then which are still running, under the same fences, and lends nothing more; if there are
        none, it is a new call. `next_due` is as in `promote`, but may leave out what is assigned to other nodes; one
        that has passed says that there is more to look at.
        """
        ...

    async def renew(
        self, beats: Sequence[Beat], lease: float, silence: float | None = None, *, now: datetime | None = None
    ) -> Renewal:
        """Extend each claim whose run is running under this fence, expired or not, and keep its progress.

        Replies for each, in order: whether this fence still owns the run, and if so, whether an operator wants it
        cancelled. Waits for no other call: a claim that another transaction is changing may be answered with BUSY
        instead, and is not extended; the others are. Also stamps the store-wide beat, with no beats too: somebody can
        reach the store.

        If nobody has beaten for longer than `silence` seconds, the store itself was away, or everybody was: an amnesty
        of `lease` seconds begins before anything else, so that those who live can renew their claims first. The caller
        may have just started: it cannot know who lives. A clock that has gone back shortens an amnesty to `lease`.
        None: silence says nothing. Whoever ends a silence is answered when it began, so that it can be written down.
        """
        ...

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """Apply each settlement whose run is running under its fence; in order, False for a stale one.

        A settlement whose fence is that of a run that is no longer running was applied before: not stale, changes
        nothing, except that a result it carries is kept where the run is completed and has none. One that would make a
        run pending whose cancellation was asked for makes it cancelled instead; a cancelled run keeps the reason that
        was given with the wish. No final run is `cancelling`: the wish is over. One that makes a run pending and has a
        hold holds it under that; one that makes an assignable run pending and has none, under `place`: the node may be
        stopping or dead, and a retry may do better elsewhere. Either way an assignable run has no assignee then. A
        final state frees the dedupe key (but see `put`) and the group; an attempt is appended to the history; the
        counters per job and node grow, once per key and call.
        """
        ...

    async def reap(
        self, limit: int, lease: float, silence: float | None = None, *, now: datetime | None = None
    ) -> list[Claim]:
        """Take over expired claims under fresh fences for `lease` seconds, the longest expired first.

        The run still names the node, the start and the expiry of the attempt that was lost, the claim its own expiry;
        the caller settles it. Nothing while an amnesty lasts (see `renew`), nor where nobody has beaten for more than
        `silence` seconds: the caller's node does, so the store was away, or this very call was long on its way.
        """
        ...

    async def hold(self, key: str, run_ids: Sequence[str]) -> list[str]:
        """Take waiting runs out of the indexes under `key`; returns the ids that were taken.

        Ids that are unknown, running, final or held already are left as they are.
        """
        ...

    async def unhold(self, key: str, limit: int) -> int:
        """Put back up to `limit` runs held under `key`, in order; returns how many. Call again until 0.

        A run that is put back from `place` is assignable no longer: whoever has room claims it.
        """
        ...

    async def holds(self) -> dict[str, int]:
        """How many runs are held, by key."""
        ...

    async def held(self, key: str, limit: int, after: Run | None = None, *, now: datetime | None = None) -> list[Run]:
        """The first `limit` runs held under `key`: ready ones by priority, ready time, id; then the others by time.

        With `after` those that come after that run in this order (`rules.placement.placing_order`), whether or not it
        is still there: so that runs which nobody can have do not hide those behind them.
        """
        ...

    async def claim_held(
        self, key: str, run_id: str, node: str, lease: float, request: int, *, now: datetime | None = None
    ) -> Claim | None:
        """Lend one run that is held under `key` to `node` for `lease` seconds, as `claim` lends queued ones.

        None if it is not held so, not ready, waits to enter its group, its job is paused or removed, or its queue is
        paused: then it stays as it is. What handlers the node has is its own affair. `request` is a number as of
        `claim`: repeating a call returns the same claim for as long as the run is running under it.
        """
        ...

    # --- placement: who may start an assignable run. Such a run is put under the hold `place` (`rules.placement`).

    async def assign(self, assignments: Sequence[Assignment]) -> list[bool]:
        """Give runs to nodes: each that is still held under `place` waits again, and only that node's claims lend it.

        In order; False for one that was not held so, which stays as it is: somebody else was first, or it has ended.
        An assigned run is promoted, grouped, held, put back, cancelled, listed and counted like any other, under its
        own queue's name; a paused queue gives it to nobody. Wakes the nodes.
        """
        ...

    async def unassign(self, node: str, limit: int) -> int:
        """Take up to `limit` runs that wait for a node back under `place`; returns how many. Call again until 0.

        What runs there stays, and what is held for another reason; that comes when it is put back.
        """
        ...

    async def assigned(self, *, now: datetime | None = None) -> dict[str, Share]:
        """By node, what it has been assigned and is not held: running or ready, and not ready yet.

        A ready run whose queue is paused is left out: it takes nobody's slot. A node that has nothing may be left out.
        Cost follows what is assigned, not what waits.
        """
        ...

    # --- waiting

    async def wait(self, node: str, queues: Sequence[str] | None, timeout: float) -> None:
        """Return when there may be something to do, at the latest after `timeout` seconds.

        That is: new ready work, an earlier next due, a wish to cancel a run of this node, a free leadership. `queues`
        are those that the node claims from; none, if it claims nothing. A hint: it may come for nothing, and what it is
        for may already be gone; a lost one costs the timeout. Where new work is told to one node only, it is one that
        can start it by what its claims have said (queues, handlers, room); otherwise all that wait are told.
        """
        ...
