"""The settler: sends settlements to the store in batches, and keeps them until the store has acknowledged them."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from itertools import islice

from msgspec.structs import replace

from duly.errors import RunFailed, RunLost
from duly.model import Outcome, OutcomeKind, Run, Settlement, State, sanitize, seconds_between, shift
from duly.model.event import RunEnded, RunMissed, RunReleased, RunsSettled, SettlementAbandoned, SettlementRefused
from duly.ports import Queue
from duly.rules.settling import plain, settle
from duly.runtime.active_runs import ActiveRun, ActiveRuns
from duly.runtime.environment import Environment, NodeService
from duly.runtime.failures import failure_of
from duly.runtime.hooks import Hooks
from duly.runtime.isolation import Refused, send_isolated
from duly.runtime.next_due import NextDue
from duly.runtime.rates import Rates
from duly.runtime.reporter import Reporter

MOST_AT_ONCE = 500


class Farewell:
    """What the store has acknowledged since the node began to stop.

    Handlers that finished here, runs that were given back, and runs that ended because they may not begin twice.
    """

    def __init__(self) -> None:
        self.finished = 0
        self.given_back = 0
        self.interrupted = 0

    def count(self, active: ActiveRun, settlement: Settlement) -> None:
        if settlement.outcome is None:
            self.given_back += settlement.state is State.PENDING  # else it came too late to start
        elif settlement.outcome is OutcomeKind.INTERRUPTED:
            self.interrupted += 1
        elif active.task is not None:  # else it was another node's, and this one has reaped it
            self.finished += 1


class Settler(NodeService):
    """Sends a settlement at once when no call is under way, and batches those that arrive during a call.

    `drained` is called when there is room for results again, `held` when a settlement has put a run under a hold.
    `reporter` stores what attempts have written, before they are settled.
    """

    name = "settler"

    def __init__(
        self,
        env: Environment,
        queue: Queue,
        active_runs: ActiveRuns,
        hooks: Hooks,
        next_due: NextDue,
        *,
        drained: Callable[[], None] = lambda: None,
        held: Callable[[], None] = lambda: None,
        reporter: Reporter | None = None,
    ) -> None:
        super().__init__(env)
        self._queue = queue
        self._active_runs = active_runs
        self._hooks = hooks
        self._next_due = next_due
        self._rng = env.rng
        self.pace = Rates(env.clock.monotonic)
        self._offered: deque[tuple[ActiveRun, Outcome]] = deque()
        self._waiting: deque[tuple[ActiveRun, Settlement]] = deque()
        self._sending = asyncio.Lock()
        self._drained = drained
        self._held = held
        self._reporter = reporter
        self._farewell: Farewell | None = None

    def begin_farewell(self) -> Farewell:
        """Count from now on what becomes of the runs of a node that stops."""
        self._farewell = Farewell()
        return self._farewell

    @property
    def full(self) -> bool:
        """Whether too many results are unsettled to claim more work."""
        bound = max(2 * MOST_AT_ONCE, 4 * self._live.config.max_concurrent)
        return len(self._offered) + len(self._waiting) >= bound

    @property
    def empty(self) -> bool:
        return not self._offered and not self._waiting

    def offer(self, active: ActiveRun, outcome: Outcome) -> None:
        """Settle this run; returns at once."""
        offered = self._offered
        offered.append((active, outcome))
        if len(offered) == 1:  # else the signal is already set, and its tick is still to come
            self.signal.wake()

    async def tick(self) -> float:
        """Send one batch. On failure it stays where it is; repeating a settlement does no harm."""
        async with self._sending:  # a stop flushes while the service still runs
            await asyncio.sleep(0)  # the claim that these runs caused goes first: it starts other runs
            self._work_out()
            return await self._send()

    def _work_out(self) -> None:
        """Decide the outcome of each offered run, once, however often it is sent."""
        offered, waiting = self._offered, self._waiting
        most_losses, dice = self._live.config.max_losses, self._rng.random
        while offered:
            active, outcome = offered.popleft()
            run = active.claim.run
            ended_at = shift(run.started_at, active.elapsed) if run.started_at else run.ready_at
            waiting.append((active, settle(run, active.claim.fence, outcome, ended_at, dice(), most_losses)))

    async def _send(self) -> float:
        batch = list(islice(self._waiting, MOST_AT_ONCE))
        if not batch:
            return math.inf
        if self._reporter is not None and self._reporter.busy:
            await self._reporter.flush([active for active, _ in batch])
        sent = self._clock.monotonic()
        answers = await send_isolated(self._queue.settle, [settlement for _, settlement in batch])
        self.pace.add([settlement.queue for _, settlement in batch])
        if self._emit.wants(RunsSettled):
            self._emit(RunsSettled(len(batch), self._clock.monotonic() - sent))
        was_full = self.full
        tell_all = self._emit.wants(RunEnded) or self._farewell is not None
        forget, remove = self._waiting.popleft, self._active_runs.remove
        for (active, settlement), answer in zip(batch, answers, strict=True):
            forget()
            if answer is True and settlement.state is State.COMPLETED and not tell_all:
                remove(active)
            else:
                self._answered(active, settlement, answer)
        if was_full:
            self._drained()
        return math.inf if self.empty else 0.0

    def _answered(self, active: ActiveRun, settlement: Settlement, answer: bool | Refused) -> None:
        if isinstance(answer, Refused):
            self._settle_plainly(active, settlement, answer.error)
            return
        self._active_runs.remove(active)
        if answer and self._farewell is not None:
            self._farewell.count(active, settlement)
        if not answer or settlement.state is not State.COMPLETED or self._emit.wants(RunEnded):
            self._tell(active, settlement, refused=not answer)

    def _settle_plainly(self, active: ActiveRun, settlement: Settlement, error: Exception) -> None:
        """The store cannot take this settlement: offer it once more without anything that came from the handler."""
        bare = plain(settlement, sanitize.text_of(error))
        if bare is not None:
            self._waiting.append((active, bare))
            return
        self._active_runs.remove(active)  # so that it is no longer renewed, and another node takes it over
        self._emit(SettlementAbandoned(active.claim.run, failure_of(error)))

    def _tell(self, active: ActiveRun, settlement: Settlement, *, refused: bool) -> None:
        run = active.claim.run
        if refused:
            self._emit(SettlementRefused(run.id, settlement.fence, run))
            return
        if settlement.hold is not None:
            self._held()
        elif settlement.state is State.PENDING:
            self._next_due.expect(settlement.ready_at)
        if settlement.state is State.SKIPPED:
            self._emit(RunMissed(run, seconds_between(run.ready_at, settlement.ended_at)))
            return
        if settlement.outcome is None:
            self._emit(RunReleased(run))
            return
        self._emit(_ended(run, settlement, settlement.outcome))
        if settlement.state in (State.FAILED, State.LOST):
            self._tell_hooks(active, settlement)

    def _tell_hooks(self, active: ActiveRun, settlement: Settlement) -> None:
        """The run has ended badly and the store has recorded it: call the user's hooks, once.

        They get the exception that the handler raised; where there is none (a loss, a timeout) one of ours.
        """
        run = _as_settled(active.claim.run, settlement)
        error = RunLost if settlement.state is State.LOST else RunFailed
        message = settlement.failure.message if settlement.failure else settlement.state.value
        self._hooks.ended(run, active.handler, active.error or error(message, run))

    def unsent(self) -> list[tuple[ActiveRun, Settlement]]:
        """The settlements that are not stored yet; for another thread, while the loop is blocked."""
        return list(self._waiting)

    async def flush(self) -> None:
        """Send all that is left, and let the hooks finish."""
        while not self.empty:
            await self.tick()
        await self._hooks.finish()


def _ended(run: Run, settlement: Settlement, outcome: OutcomeKind) -> RunEnded:
    return RunEnded(
        run=run,
        outcome=outcome,
        state=settlement.state,
        seconds=(settlement.ended_at - settlement.started_at).total_seconds(),
        failure=settlement.failure,
        retry_at=settlement.ready_at if settlement.state is State.PENDING else None,
    )


def _as_settled(run: Run, settlement: Settlement) -> Run:
    return replace(
        run,
        state=settlement.state,
        failures=settlement.failures,
        losses=settlement.losses,
        reason=settlement.reason,
        failure=settlement.failure,
        finished_at=settlement.ended_at,
    )
