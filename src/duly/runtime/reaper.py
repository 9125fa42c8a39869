"""The reaper: takes over the claims of vanished workers and settles them in the usual way."""

from __future__ import annotations

from collections.abc import Sequence

from duly.model import Claim, EndedProcess, Lost, Run, seconds_between
from duly.model.event import RunsReaped
from duly.ports import Queue
from duly.rules.lease_limits import trusted_until
from duly.rules.suspects import vanished, was_alone
from duly.runtime.active_runs import ActiveRun
from duly.runtime.environment import Environment, NodeService
from duly.runtime.handler import Catalog
from duly.runtime.settler import Settler

_MOST_AT_ONCE = 100
_PERIOD = 1.0


class Reaper(NodeService):
    """Every working node reaps; it needs no leader."""

    name = "reaper"

    def __init__(self, env: Environment, queue: Queue, settler: Settler, catalog: Catalog) -> None:
        super().__init__(env)
        self._queue = queue
        self._settler = settler
        self._catalog = catalog
        self._card = env.card
        self._lease = env.config.lease
        self._silence = env.config.silence

    async def tick(self) -> float:
        sent = self._clock.monotonic()
        claims = await self._queue.reap(_MOST_AT_ONCE, self._lease, self._silence)
        self._settle_all(claims, sent, "")
        return 0.0 if len(claims) == _MOST_AT_ONCE else min(_PERIOD, self._lease / 3)

    async def take_over(self, ended: EndedProcess) -> int:
        """Take over the claims of a process that has certainly ended, and settle them; returns their number."""
        taken = 0
        while True:
            sent = self._clock.monotonic()
            claims = await self._queue.take_over(ended, _MOST_AT_ONCE, self._lease)
            if not claims:
                return taken
            self._settle_all(claims, sent, ended.why)
            taken += len(claims)

    def _settle_all(self, claims: Sequence[Claim], sent: float, why: str) -> None:
        if claims:
            runs = [claim.run for claim in claims]
            nodes = tuple(sorted({run.node or "" for run in runs}))
            self._emit(RunsReaped(tuple(run.id for run in runs), nodes, tuple(runs)))
        for claim in claims:
            self._settle(claim, sent, why)

    def _settle(self, claim: Claim, sent: float, why: str) -> None:
        active = ActiveRun(claim, self._catalog.find(claim.run), sent, trusted_until(sent, self._lease))
        active.ended = True
        started_at = claim.run.started_at
        active.elapsed = 0.0 if started_at is None else max(0.0, seconds_between(started_at, self._clock.now()))
        self._settler.offer(active, Lost(self._is_to_blame(claim.run, why), why))

    def _is_to_blame(self, run: Run, why: str) -> bool:
        gone = bool(why) or vanished(run, self._card)
        return gone and was_alone(run, self._live.config.max_losses, self._lease)
