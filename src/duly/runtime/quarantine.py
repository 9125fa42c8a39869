"""The quarantine: runs suspects (`rules.suspects`) one at a time, on a node that has nothing else to do.

A node without work takes a suspect at once. A busy one stops claiming for a while, so that it becomes idle; if its
handlers take longer than that, it claims again and waits longer the next time. It spends at most a quarter of its time
closed.
"""

from __future__ import annotations

import math

from msgspec.structs import replace

from duly.model import Run
from duly.model.holds import ALONE
from duly.ports import Backend
from duly.rules.lease_limits import sent_at
from duly.rules.placement import lacks
from duly.rules.suspects import is_suspect, seconds_alone
from duly.runtime.active_runs import ActiveRun, ActiveRuns
from duly.runtime.environment import Environment, NodeService
from duly.runtime.handler import Catalog
from duly.runtime.worker import Worker

_LOOK_AGAIN = 0.05  # while the node is closed; makes no call
_PERIOD = 5.0
_LOOKED_AT = 20
_OPEN = 3  # times as long as it was closed
_LONGEST = 86_400.0


class Quarantine(NodeService):
    """Closes and opens the worker, and takes suspects while it has nothing else."""

    name = "quarantine"

    def __init__(
        self, env: Environment, backend: Backend, worker: Worker, active_runs: ActiveRuns, catalog: Catalog
    ) -> None:
        super().__init__(env)
        self._queue = backend.queue
        self._store = backend.store
        self._worker = worker
        self._active_runs = active_runs
        self._catalog = catalog
        self._card = env.card
        self._lease = env.config.lease
        self._period = min(_PERIOD, self._lease / 3)
        self._closed_at: float | None = None
        self._draining = False
        self._after: Run | None = None
        self._open_until = -math.inf
        self._patience = self._lease

    async def tick(self) -> float:
        if self._worker.stopping:
            return math.inf
        now = self._clock.monotonic()
        if any(self._is_alone(active) for active in self._active_runs):
            self._close(now, draining=False)
            return _LOOK_AGAIN
        if self._closed_at is not None and not (self._draining and self._idle):
            if self._draining and now < self._closed_at + self._patience:
                return _LOOK_AGAIN
            self._patience = min(2 * self._patience, _LONGEST) if self._draining else self._lease
            self._open()
        if now < self._open_until:
            return min(self._open_until - now, self._period)
        try:
            return await self._look(now)
        except BaseException:
            self._open()  # a problem with suspects must not delay other runs
            self._worker.look()  # asks again for claims whose answer was lost
            raise

    @property
    def _idle(self) -> bool:
        return not len(self._active_runs) and not self._worker.busy

    async def _look(self, now: float) -> float:
        found = await self._queue.held(ALONE, _LOOKED_AT, self._after)
        suspects = await self._startable([run for run in found if run.ready_at <= self._clock.now()])
        # Suspects that cannot start here do not block those after them.
        self._after = found[-1] if len(found) == _LOOKED_AT and not suspects else None
        if self._after is not None:
            return _LOOK_AGAIN
        if suspects and not self._idle:
            self._close(now, draining=True)
            return _LOOK_AGAIN
        for run in suspects:
            if await self._worker.claim_alone(ALONE, run.id):
                self._close(now, draining=False)
                return _LOOK_AGAIN
        self._patience = self._lease
        self._open()
        return self._period

    async def _startable(self, found: list[Run]) -> list[Run]:
        """Those of these runs that may start on this node."""
        if not found:
            return []
        paused = await self._store.paused()
        records = {record.name: record for record in await self._store.jobs(sorted({run.job for run in found}))}
        stopped = {name for name, record in records.items() if record.paused is not None or record.removed_at}
        card = replace(self._card, handlers=self._catalog.names)
        selectors = {name: record.spec.selector for name, record in records.items()}
        return [
            run
            for run in found
            if run.queue not in paused and run.job not in stopped and lacks(card, run, selectors.get(run.job)) is None
        ]

    # --- alone

    def _is_alone(self, active: ActiveRun) -> bool:
        """Whether nothing else may be claimed beside this attempt yet.

        Until its time alone is over and a renewal that was sent after that is acknowledged: a reaper then
        sees from its expiry that others may have joined it.
        """
        losses, most = active.claim.run.losses, self._live.config.max_losses
        if not is_suspect(losses, most):
            return False
        return sent_at(active.trusted_until, self._lease) < active.started + seconds_alone(losses, most, self._lease)

    def _close(self, now: float, *, draining: bool) -> None:
        self._worker.close()
        self._draining = draining
        if self._closed_at is None:
            self._closed_at = now

    def _open(self) -> None:
        if self._closed_at is not None:
            now = self._clock.monotonic()
            self._open_until = now + _OPEN * (now - self._closed_at)
            self._closed_at = None
        self._worker.reopen()
