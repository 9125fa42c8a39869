"""The queue port on memory."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from itertools import islice

from msgspec.structs import replace

from duly.backends.codec import kept_progress, kept_settlement
from duly.backends.cursors import coming_after, cursor_of
from duly.backends.memory.contents import Contents
from duly.model import (
    WAITING,
    Assignment,
    Beat,
    BeatReply,
    Cause,
    Claim,
    Claimed,
    EndedProcess,
    Put,
    Renewal,
    Run,
    Settlement,
    Share,
    State,
    seconds_between,
    shift,
    to_micros,
)
from duly.model.holds import UNPLACED, held_handler
from duly.rules.admission import hold_of
from duly.rules.misfires import start_by_after
from duly.rules.placement import placing_order
from duly.rules.settling import as_stored
from duly.rules.sharing import scheduled_share
from duly.rules.statistics import tally


class MemoryQueue:
    """Every method is atomic, because it runs to its end without yielding."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._runs = contents.runs
        self._heard = contents.notifier.rings

    async def put(self, runs: Sequence[Run], *, now: datetime | None = None) -> list[Put]:
        at = now or self._contents.clock.now()
        answers = [self._runs.put(run, at) for run in runs]
        self._contents.notifier.ring()
        return answers

    async def promote(self, limit: int, *, now: datetime | None = None) -> tuple[int, datetime | None]:
        looked_at = self._runs.promote(limit, now or self._contents.clock.now())
        return looked_at, self._next_due()

    def _next_due(self) -> datetime | None:
        run = self._runs.next_pending()
        return None if run is None else run.ready_at

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
        at = now or self._contents.clock.now()
        claims = self._claimed_before(node, request)
        if not claims:
            self._unhold_handlers(handlers)
            self._runs.promote(sys.maxsize, at)
            claims = self._lend(node, queues, handlers, limit, shift(at, lease), request, at)
        return Claimed(claims, self._next_due())

    def _claimed_before(self, node: str, request: int) -> list[Claim]:
        if request > self._contents.requests.get(node, -1):
            self._contents.requests[node] = request
            return []
        return [
            Claim(run, run.fence, run.expires_at)
            for run in self._runs.by_id.values()
            if run.state is State.RUNNING and run.node == node and run.request == request and run.expires_at
        ]

    def _unhold_handlers(self, handlers: Collection[str] | None) -> None:
        for key in list(self._runs.holds):
            handler = held_handler(key)
            if handler is not None and (handlers is None or handler in handlers):
                for run in self._runs.held(key):
                    self._runs.unhold(run)

    def _lend(
        self,
        node: str,
        queues: Sequence[str] | None,
        handlers: Collection[str] | None,
        limit: int,
        expires_at: datetime,
        request: int,
        now: datetime,
    ) -> list[Claim]:
        wanted = self._runs.queues() if queues is None else queues
        open_queues = [queue for queue in wanted if not self._contents.is_paused(queue)]
        lines = self._runs.lines(open_queues, node)
        claims: list[Claim] = []
        while limit > len(claims) and (priority := self._runs.first_priority([*lines[0], *lines[1]])) is not None:
            owed = scheduled_share(limit - len(claims), request)
            while taken := self._runs.take_queued(lines, priority, limit - len(claims), owed):
                for run in self._startable(taken, handlers):
                    owed -= run.cause is Cause.SCHEDULE
                    claims.append(self._lent(run, node, expires_at, request, now))
        return claims

    def _startable(self, runs: Sequence[Run], handlers: Collection[str] | None) -> Iterator[Run]:
        """Those of these runs that a node with these handlers may start; the others are held."""
        for run in runs:
            assigned = run.assignee is not None
            hold = hold_of(run.job, run.handler, self._contents.blocked_jobs, handlers, assigned=assigned)
            if hold is None:
                yield run
            else:
                self._runs.hold(run, hold)

    def _lent(self, run: Run, node: str, expires_at: datetime, request: int, now: datetime) -> Claim:
        fence = self._runs.next_fence()
        lent = replace(
            run,
            state=State.RUNNING,
            fence=fence,
            node=node,
            request=request,
            started_at=now,
            expires_at=expires_at,
            progress=None,
        )
        self._runs.save(lent)
        return Claim(lent, fence, expires_at)

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
        after = coming_after(cursor, now or self._contents.clock.now())
        coming = (run for run in self._runs.soonest(until) if run.cause is Cause.SCHEDULE)
        later = (run for run in coming if (to_micros(run.ready_at), run.id) > after)
        some = list(islice(later, step * limit + 1))
        taken = some[: step * limit]
        found = [run for run in taken[start::step] if self._could_begin(run, node, queues, handlers)]
        return found, cursor_of(to_micros(taken[-1].ready_at), taken[-1].id) if len(some) > len(taken) > 0 else None

    def _could_begin(self, run: Run, node: str, queues: Sequence[str] | None, handlers: Collection[str] | None) -> bool:
        return (
            (queues is None or run.queue in queues)
            and (handlers is None or run.handler in handlers)
            and self._may_begin(run, node)
        )

    def _may_begin(self, run: Run, node: str) -> bool:
        contents = self._contents
        return (
            run.fence == 0
            and run.state in WAITING
            and run.hold is None
            and run.assignee in (None, node)
            and run.job not in contents.blocked_jobs
            and not contents.is_paused(run.queue)
        )

    async def begin(
        self, node: str, runs: Sequence[Run], lease: float, request: int, *, now: datetime | None = None
    ) -> list[Claim | None]:
        at = now or self._contents.clock.now()
        known = {claim.run.id: claim for claim in self._claimed_before(node, request)}
        if any(run.id in known for run in runs):
            return [known.get(run.id) for run in runs]
        self._runs.promote_before(runs, at)
        return [self._begin(run, node, shift(at, lease), request, at) for run in runs]

    def _begin(self, read: Run, node: str, expires_at: datetime, request: int, now: datetime) -> Claim | None:
        run = self._runs.by_id.get(read.id)
        if run is None or run.created_at != read.created_at or run.ready_at > now or not self._may_begin(run, node):
            return None
        late = run.start_by is not None and run.start_by < now
        if late or not self._runs.has_room(run):
            return None
        return self._lent(replace(run, member=run.group is not None), node, expires_at, request, now)

    async def renew(
        self, beats: Sequence[Beat], lease: float, silence: float | None = None, *, now: datetime | None = None
    ) -> Renewal:
        at = now or self._contents.clock.now()
        contents = self._contents
        silent_since = contents.last_beat if self._silent(silence, at) else None
        if silent_since is not None:
            contents.no_reap_before = shift(at, lease)
        elif at < contents.last_beat:
            contents.no_reap_before = min(contents.no_reap_before, shift(at, lease))
        contents.last_beat = at
        return Renewal(tuple(self._renew(beat, shift(at, lease)) for beat in beats), silent_since)

    def _renew(self, beat: Beat, expires_at: datetime) -> BeatReply:
        run = self._owned(beat.run_id, beat.fence)
        if run is None:
            return BeatReply.LOST
        self._runs.save(replace(run, expires_at=expires_at, progress=kept_progress(beat.progress) or run.progress))
        return BeatReply.CANCEL if run.cancelling else BeatReply.KEPT

    def _silent(self, silence: float | None, at: datetime) -> bool:
        return silence is not None and seconds_between(self._contents.last_beat, at) > silence

    def _owned(self, run_id: str, fence: int) -> Run | None:
        run = self._runs.by_id.get(run_id)
        return run if run is not None and run.state is State.RUNNING and run.fence == fence else None

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        fresh: list[bool] = []
        applied: list[Settlement] = []
        for settlement in map(kept_settlement, settlements):
            run = self._runs.by_id.get(settlement.run_id)
            fresh.append(run is not None and run.fence == settlement.fence)
            if run is None or run.fence != settlement.fence:
                continue
            if run.state is State.RUNNING:
                applied.append(self._apply(run, settlement))
            elif run.state is State.COMPLETED and run.result is None and settlement.result is not None:
                self._runs.by_id[run.id] = replace(run, result=settlement.result)
        self._contents.count(tally(applied))
        if applied:
            self._contents.notifier.ring()
        return fresh

    def _apply(self, run: Run, settlement: Settlement) -> Settlement:
        if settlement.attempt is not None:
            self._runs.attempts[run.id].append(settlement.attempt)
        settlement = as_stored(run, settlement)
        ended = settlement.state is not State.PENDING
        unplaced = run.assignable and not ended
        self._runs.save(
            replace(
                run,
                state=settlement.state,
                ready_at=settlement.ready_at,
                failures=settlement.failures,
                losses=settlement.losses,
                reason=settlement.reason,
                result=settlement.result,
                failure=settlement.failure,
                member=run.member and not ended,
                expires_at=None,
                finished_at=settlement.ended_at if ended else None,
                cancelling=run.cancelling and not ended,
                start_by=run.start_by if ended else start_by_after(run, settlement),
                hold=settlement.hold or (UNPLACED if unplaced else None),
                assignee=None if unplaced else run.assignee,
            )
        )
        return settlement

    async def reap(
        self, limit: int, lease: float, silence: float | None = None, *, now: datetime | None = None
    ) -> list[Claim]:
        at = now or self._contents.clock.now()
        if at < self._contents.no_reap_before or self._silent(silence, at):
            return []
        claims: list[Claim] = []
        while len(claims) < limit and (run := self._runs.take_expired(at)) is not None:
            claims.append(self._taken_over(run, shift(at, lease)))
        return claims

    async def take_over(
        self, process: EndedProcess, limit: int, lease: float, *, now: datetime | None = None
    ) -> list[Claim]:
        at = now or self._contents.clock.now()
        return [self._taken_over(run, shift(at, lease)) for run in self._runs.of_process(process)[:limit]]

    def _taken_over(self, run: Run, expires_at: datetime) -> Claim:
        # Clear the request: a repeat of it must not return the reaper's fence.
        taken = replace(run, fence=self._runs.next_fence(), expires_at=expires_at, request=0)
        self._runs.save(taken)
        return Claim(replace(taken, expires_at=run.expires_at), taken.fence, expires_at)

    async def unhold(self, key: str, limit: int) -> int:
        chosen = self._runs.held(key)[:limit]
        for run in chosen:
            self._runs.unhold(run)
        if chosen:
            self._contents.notifier.ring()
        return len(chosen)

    async def holds(self) -> dict[str, int]:
        return {key: len(runs) for key, runs in self._runs.holds.items()}

    async def held(self, key: str, limit: int, after: Run | None = None, *, now: datetime | None = None) -> list[Run]:
        at = now or self._contents.clock.now()
        held = [self._runs.by_id[run_id] for run_id in self._runs.holds.get(key, ())]
        ordered = sorted((placing_order(run.ready_at, run.priority, run.id, at), run) for run in held)
        seen = None if after is None else placing_order(after.ready_at, after.priority, after.id, at)
        return [run for key, run in ordered if seen is None or key > seen][:limit]

    async def claim_held(
        self, key: str, run_id: str, node: str, lease: float, request: int, *, now: datetime | None = None
    ) -> Claim | None:
        at = now or self._contents.clock.now()
        run = self._runs.by_id.get(run_id)
        if run is None:
            return None
        if run.state is State.RUNNING and (run.node, run.request) == (node, request) and run.expires_at:
            return Claim(run, run.fence, run.expires_at)
        entrant = run.group is not None and not run.member
        stopped = run.job in self._contents.blocked_jobs or self._contents.is_paused(run.queue)
        if run.hold != key or run.ready_at > at or entrant or stopped:
            return None
        return self._lent(replace(run, hold=None), node, shift(at, lease), request, at)

    async def assign(self, assignments: Sequence[Assignment]) -> list[bool]:
        given = []
        for assignment in assignments:
            run = self._runs.by_id.get(assignment.run_id)
            if run is not None and run.hold == UNPLACED:
                self._runs.assign(run, assignment.node)
                given.append(True)
            else:
                given.append(False)
        if any(given):
            self._contents.notifier.ring()
        return given

    async def unassign(self, node: str, limit: int) -> int:
        waiting = [run for run in self._runs.by_id.values() if run.assignee == node and run.state in WAITING]
        chosen = [run for run in waiting if run.hold is None][:limit]
        for run in chosen:
            self._runs.hold(run, UNPLACED)
        if chosen:
            self._contents.notifier.ring()
        return len(chosen)

    async def assigned(self, *, now: datetime | None = None) -> dict[str, Share]:
        at = now or self._contents.clock.now()
        shares: dict[str, Share] = {}
        for run in self._runs.by_id.values():
            if run.assignee is not None and not run.final and run.hold is None:
                share = shares.get(run.assignee, Share())
                due = run.state is State.RUNNING or run.ready_at <= at
                if due and run.state is not State.RUNNING and self._contents.is_paused(run.queue):
                    continue
                shares[run.assignee] = Share(share.due + due, share.upcoming + (not due))
        return shares

    async def wait(self, node: str, queues: Sequence[str] | None, timeout: float) -> None:
        self._heard = await self._contents.notifier.wait(self._heard, timeout)
