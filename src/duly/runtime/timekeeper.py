"""The timekeeper: reads the store's clock periodically, and reports when it has jumped.

Drift is followed, a jump is doubted for a while (`ports.clock`). Where the store's clock is the machine's own there is
nothing to ask; its jumps are reported as well.
"""

from __future__ import annotations

from duly.model.event import ClockDoubted, ClockTrusted
from duly.ports import Store
from duly.runtime.environment import Environment, NodeService

_PERIOD = 5.0


class Timekeeper(NodeService):
    """Reads the store's clock once per period."""

    name = "timekeeper"

    def __init__(self, env: Environment, store: Store) -> None:
        super().__init__(env)
        self._store = store
        self._period = min(_PERIOD, env.config.refresh)
        self._doubt = 0.0
        self._followed = env.clock.followed

    async def tick(self) -> float:
        if self._clock.direct:
            self._clock.now()
        else:
            sent = self._clock.monotonic()
            self._clock.read(await self._store.time(), sent)
        self._report(self._clock.doubt, self._clock.followed)
        return self._period

    def _report(self, doubt: float, followed: int) -> None:
        if doubt and doubt != self._doubt:
            self._emit(ClockDoubted(doubt))
        elif self._doubt and not doubt:
            self._emit(ClockTrusted(self._doubt, followed=followed > self._followed))
        self._doubt, self._followed = doubt, followed
