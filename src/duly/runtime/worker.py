"""The worker: claims as many runs as it has free slots, and starts them.

A slot is free when its handler has ended; the claim stays renewed until the settlement is acknowledged. Claims are made
at once when idle, otherwise when a quarter of the slots are free or two milliseconds after the first became free.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from msgspec.structs import replace

from duly.errors import BackendUnavailable
from duly.model import Cause, Claim, Interrupted, Missed, Outcome, Run, seconds_between
from duly.model.event import HandlersAbandoned, HookFailed, RunsClaimed, RunStarted, ServiceFailed, SlotLeaked
from duly.model.node import first_request
from duly.ports import Queue, Span, Tracer
from duly.rules.lease_limits import trusted_until
from duly.rules.misfires import is_missed
from duly.runtime.active_runs import ActiveRun, ActiveRuns
from duly.runtime.attempt import Attempts
from duly.runtime.environment import Environment, NodeService
from duly.runtime.failures import failure_of
from duly.runtime.handler import Catalog, ExecutorKind
from duly.runtime.next_due import NextDue
from duly.runtime.rates import Rates
from duly.runtime.reading_ahead import ReadAhead
from duly.runtime.settler import Settler
from duly.runtime.tasks import task_starter

_GATHER = 0.002
_ASK_AGAIN = 0.05
_MOST_IN_A_ROW = 8  # calls that begin runs, before a claim looks at what else waits


class Worker(NodeService):
    """Fills the slots of a node."""

    name = "worker"

    def __init__(
        self,
        env: Environment,
        queue: Queue,
        catalog: Catalog,
        attempts: Attempts,
        settler: Settler,
        active_runs: ActiveRuns,
        next_due: NextDue,
        ahead: ReadAhead,
    ) -> None:
        super().__init__(env)
        self._node_id = env.card.id
        self._queue = queue
        self._catalog = catalog
        self._attempts = attempts
        self._settler = settler
        self._active_runs = active_runs
        self._next_due = next_due
        self._ahead = ahead
        self._begun_in_a_row = 0
        self._others_wait = True
        self._rng = env.rng
        self._tracer = env.tracer
        self._lease = env.config.lease
        self._requests = first_request(env.card.started_at)
        self._unanswered: Callable[[], Awaitable[Sequence[Claim]]] | None = None
        self._claiming = asyncio.Lock()
        self._busy = 0
        self._leaked = 0
        self._freed_at: float | None = None
        self._may_be_more = True
        self._tell_starts = True
        self.pace = Rates(env.clock.monotonic)
        self.last_start: float | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self.stopping = False
        self.closed = False  # nothing is claimed: a suspect runs alone, or is about to (`runtime.quarantine`)

    # --- claiming

    @property
    def room(self) -> int:
        """How many runs could start now."""
        if self.stopping or self.closed or self._settler.full:
            return 0
        return self._live.config.max_concurrent - self._busy

    @property
    def busy(self) -> int:
        """How many slots are taken, by handlers or by threads that outlived their timeout."""
        return self._busy

    def look(self) -> None:
        """There may be work."""
        self._may_be_more = True
        if self.room > 0:
            self.signal.wake()

    async def tick(self) -> float:
        if self.room <= 0:
            await self._repeat()
            return math.inf
        if self._busy and (pause := self._gathering()) > 0:
            return pause
        self._may_be_more = False
        self._freed_at = None
        asked = self.room
        started = await self._begin(asked) if self._may_begin() else await self._claim_all(asked)
        self._may_be_more = self._may_be_more or started >= asked
        return 0.0 if self._may_be_more and self.room > 0 else self._live.config.safety_tick

    def _gathering(self) -> float:
        """How long to wait for more free slots before asking the store."""
        free = self.room
        if free * 4 >= self._live.config.max_concurrent:
            return 0.0
        now = self._clock.monotonic()
        self._freed_at = self._freed_at or now
        return self._freed_at + _GATHER - now

    def _may_begin(self) -> bool:
        """Whether to begin what was read ahead: it is due, and nothing that comes before it waits in the store.

        This is known from the last claim, so a claim must check again after several calls in a row.
        """
        if self._begun_in_a_row >= _MOST_IN_A_ROW:
            self._begun_in_a_row = 0
            return False
        return not self._others_wait and self._ahead.first_due() is not None

    async def _begin(self, limit: int) -> int:
        """Make one call and start the runs it returns. A claim follows once all runs read ahead have begun."""
        self._begun_in_a_row += 1
        self._may_be_more = True
        async with self._claiming:
            if self._unanswered is None:
                if self.room <= 0:
                    return 0
                self._requests += 1
                self._unanswered = partial(self._ask_to_begin, self._ahead.take(limit), self._requests)
            return await self._answer(self._unanswered)

    async def _ask_to_begin(self, runs: Sequence[Run], request: int) -> Sequence[Claim]:
        begun = await self._queue.begin(self._node_id, runs, self._lease, request)
        claims = [claim for claim in begun if claim is not None]
        if not claims:
            self._ahead.refused(runs)
            self._begun_in_a_row = _MOST_IN_A_ROW
        return claims

    async def _claim_all(self, room: int) -> int:
        """Claim from all queues as if they were one, or from one after the other in an order drawn by weight."""
        queues = self._live.config.queues
        if not isinstance(queues, Mapping):
            return await self._claim(queues, room)
        started = 0
        for queue in _draw(queues, self._rng):
            if started < room and self.room > 0:
                started += await self._claim([queue], room - started)
        return started

    async def _claim(self, queues: Sequence[str] | None, limit: int) -> int:
        """Make one call, start the runs it returns, and return their number."""
        async with self._claiming:  # a stop waits for it
            if self._unanswered is None:
                if self.room <= 0:  # closed while another call was under way
                    return 0
                self._requests += 1
                self._unanswered = partial(self._ask, queues, limit, self._requests)
            return await self._answer(self._unanswered)

    async def claim_alone(self, key: str, run_id: str) -> bool:
        """Claim one run that is held under `key` if this node has no other, and close for further ones."""
        async with self._claiming:
            if self._unanswered is not None:
                await self._answer(self._unanswered)
                return self.closed
            if self.stopping or self._busy or len(self._active_runs):
                return False
            self._requests += 1
            self._unanswered = partial(self._ask_alone, key, run_id, self._requests)
            try:
                return await self._answer(self._unanswered) > 0
            except BackendUnavailable:
                raise
            except Exception:
                self._unanswered = None  # the store refuses this run: that must not keep others from being claimed
                raise

    async def _answer(self, ask: Callable[[], Awaitable[Sequence[Claim]]]) -> int:
        """If the answer is lost, the same call is repeated: the store returns the same claims again."""
        sent = self._clock.monotonic()
        claims = await ask()
        self._unanswered = None
        if self._emit.wants(RunsClaimed):
            self._emit(RunsClaimed(len(claims), self._clock.monotonic() - sent))
        if claims:
            self._start(claims, sent)
        return len(claims)

    async def _ask(self, queues: Sequence[str] | None, limit: int, request: int) -> Sequence[Claim]:
        handlers = self._catalog.names
        first = self._ahead.first_due()
        claimed = await self._queue.claim(self._node_id, queues, handlers, limit, self._lease, request)
        self._next_due.learn(claimed.next_due)
        self._others_wait = len(claimed.claims) >= limit and any(
            claim.run.cause is not Cause.SCHEDULE or first is None or claim.run.ready_at < first
            for claim in claimed.claims
        )
        self._ahead.note(claimed.claims)
        return claimed.claims

    async def _ask_alone(self, key: str, run_id: str, request: int) -> Sequence[Claim]:
        claim = await self._queue.claim_held(key, run_id, self._node_id, self._lease, request)
        if claim is None:
            return ()
        self.closed = True
        return (claim,)

    def stop_claiming(self) -> None:
        """Claim nothing more: the node stops."""
        self.stopping = True
        self._ahead.forget()

    def close(self) -> None:
        """Claim nothing until `reopen`."""
        self.closed = True

    def reopen(self) -> None:
        """Claim again."""
        if self.closed:
            self.closed = False
            self.look()

    # --- running

    def _start(self, claims: Sequence[Claim], sent: float) -> None:
        now, trusted = self._clock.monotonic(), trusted_until(sent, self._lease)
        self._tell_starts = self._emit.wants(RunStarted)
        self.pace.add([claim.run.queue for claim in claims])
        self.last_start = self._clock.now().timestamp()
        find, add, start = self._catalog.find, self._active_runs.add, task_starter(asyncio.get_running_loop())
        for claim in claims:
            run = claim.run
            active = ActiveRun(claim, find(run), now, trusted)
            add(active)
            if self.stopping:
                self._settler.offer(active, Interrupted(began=False))
                continue
            if run.start_by is not None and is_missed(run, self._clock.now()):
                self._settler.offer(active, Missed())
                continue
            self._busy += 1
            # Not in a TaskGroup: it would cost as much again as the task, and `_work` lets nothing escape.
            active.task = start(self._work(active), name=run.id)
        if self._busy > self._leaked:
            self._idle.clear()

    async def _work(self, active: ActiveRun) -> None:
        active.entered = True
        span = None if self._tracer is None else self._span(self._tracer, active)
        if self._tell_starts and active.may_begin(self._clock.monotonic()):
            self._emit(RunStarted(active.claim.run, seconds_between(active.claim.run.ready_at, self._clock.now())))
        outcome = None
        try:
            outcome = await self._attempts.make(active)
        except Exception as exc:  # noqa: BLE001  # a fault of ours: the run is left to its lease, and the event reports it
            self._emit(ServiceFailed("attempt", failure_of(exc), self._lease))
        if span is not None:
            self._end(span, active.claim.run, outcome)
        # The slot first: then the claim that it causes is on its way before the settlement, and others start sooner.
        if active.residue is None or active.residue.done():
            self._free()
        else:
            self._leave_slot(active.residue, active)
        if not active.abandoned:
            self._over(active, outcome)

    def _over(self, active: ActiveRun, outcome: Outcome | None) -> None:
        """This attempt has ended, or is no longer waited for."""
        active.elapsed = self._clock.monotonic() - active.started
        if outcome is None:
            self._active_runs.remove(active)
        else:
            self._settler.offer(active, outcome)

    def _span(self, tracer: Tracer, active: ActiveRun) -> Span | None:
        """Trace this attempt. While it lasts the run's headers name its span: logs and child processes read them."""
        run = active.claim.run
        try:
            span = tracer.attempt(run)
        except Exception as exc:  # noqa: BLE001  # a tracer is foreign code: its failure is reported, the run goes on
            self._emit(HookFailed("tracer", run.job, run.id, failure_of(exc)))
            return None
        active.claim = replace(active.claim, run=replace(run, headers=span.headers))
        return span

    def _end(self, span: Span, run: Run, outcome: Outcome | None) -> None:
        try:
            span.end(outcome)
        except Exception as exc:  # noqa: BLE001  # as above: the result is settled anyway
            self._emit(HookFailed("tracer", run.job, run.id, failure_of(exc)))

    def _leave_slot(self, residue: asyncio.Future[None], active: ActiveRun) -> None:
        """A thread outlived its attempt: its slot is free when it ends."""
        self._leaked += 1
        self._emit(SlotLeaked(active.claim.run.id, active.claim.run.job, self._leaked))
        residue.add_done_callback(lambda _: self._thread_ended())

    def _thread_ended(self) -> None:
        self._leaked -= 1
        self._free()

    def _free(self) -> None:
        self._busy -= 1
        if self._busy == self._leaked:
            self._idle.set()
        if self._may_be_more and not self.stopping:
            self.signal.wake()

    # --- stopping attempts

    def cancel(self, active_runs: Sequence[ActiveRun]) -> None:
        """Stop these attempts for an operator. A thread cannot be cancelled: it ends when it checks its context."""
        for active in active_runs:
            if active.ended:
                continue
            active.cancelled = True
            if active.handler is None or active.handler.executor is not ExecutorKind.THREAD:
                active.stop()

    def lose(self, active_runs: Sequence[ActiveRun]) -> None:
        """Another node has the runs of these attempts by now."""
        for active in active_runs:
            if not active.ended:
                active.lost = True
                active.stop()

    # --- stopping

    async def idle(self) -> None:
        """Wait until nothing runs any more."""
        await self._idle.wait()

    def interrupt(self) -> None:
        """Stop what still runs: set its flag, and cancel it if it is not in a thread. May be repeated."""
        for active in self._active_runs:
            if active.task is not None and not active.ended:
                active.released = True
                if active.handler is None or active.handler.executor is not ExecutorKind.THREAD:
                    active.stop()

    def abandon(self) -> None:
        """Give back what still runs although it was asked to stop.

        Their handlers end only with the process. They are no longer waited for, and the event loop must not wait for
        them when it is closed.
        """
        left = [
            active
            for active in self._active_runs
            if active.task is not None and not active.task.done() and not active.abandoned
        ]
        for active in left:
            active.abandoned = True
            self._over(active, self._attempts.cut_short(active))
            if active.task is not None:
                _disown(active.task)
        if left:
            self._emit(HandlersAbandoned(tuple(active.claim.run for active in left)))

    async def withdraw(self) -> None:
        """Return when no claim is under way. Claims whose answer was lost are requested again, to be released."""
        while self._claiming.locked() or self._unanswered is not None:
            with suppress(BackendUnavailable):
                await self._repeat()
            await asyncio.sleep(_ASK_AGAIN)

    async def _repeat(self) -> None:
        """Request claims again whose answer was lost."""
        if self._unanswered is not None:
            async with self._claiming:
                if self._unanswered is not None:
                    await self._answer(self._unanswered)


def _disown(task: asyncio.Task[None]) -> None:
    """Let a loop that is closed, as by `asyncio.run`, neither wait for a task nor complain about it."""
    asyncio._unregister_task(task)  # noqa: SLF001  # documented for those who write tasks of their own
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001  # as `asyncio.gather` does


def _draw(weights: Mapping[str, float], rng: random.Random) -> list[str]:
    """Queues in random order, a heavier one likely to come first."""
    return sorted(weights, key=lambda queue: rng.random() ** (1 / weights[queue]), reverse=True)
