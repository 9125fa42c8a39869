"""The dispatcher wakes the worker at the moment the next run is due; the listener passes on hints from the store.

If the worker has room, one claim does everything in one round trip. Otherwise due runs are promoted, so that their
group's overlap rule is applied in time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from duly.model import Role
from duly.ports import Queue
from duly.runtime.environment import Environment, NodeService
from duly.runtime.next_due import NextDue
from duly.runtime.service import Signal
from duly.runtime.worker import Worker

_MOST_AT_ONCE = 500


class Dispatcher(NodeService):
    """One timer for the whole node."""

    name = "dispatcher"

    def __init__(self, env: Environment, queue: Queue, worker: Worker, next_due: NextDue, signal: Signal) -> None:
        super().__init__(env, signal)
        self._queue = queue
        self._worker = worker
        self._next_due = next_due
        self._asked = False

    def look(self) -> None:
        """Something changed in the store: another run may be due next."""
        self._worker.look()
        if self._worker.room <= 0:
            self._asked = True
            self.signal.wake()

    async def tick(self) -> float:
        longest = self._live.config.safety_tick
        if self._worker.stopping:
            return longest  # other nodes take what becomes due now
        if not self._asked and (left := self._next_due.left(longest)) > 0:
            return left
        if self._worker.room > 0:
            self._next_due.forget()
            self._worker.look()  # the answer to its claim contains the next due time
            return longest
        self._asked = False
        looked_at, next_due = await self._queue.promote(_MOST_AT_ONCE)
        self._next_due.learn(next_due)
        return 0.0 if looked_at == _MOST_AT_ONCE else self._next_due.left(longest)


class Listener(NodeService):
    """Passes hints on. A lost hint is made up for by the safety tick."""

    name = "listener"

    def __init__(self, env: Environment, queue: Queue, heard: Callable[[], None]) -> None:
        super().__init__(env)
        self._env = env
        self._queue = queue
        self._heard = heard

    async def tick(self) -> float:
        config = self._env.config
        queues: Sequence[str] | None = config.queue_names if Role.WORKER in config.roles else []
        await self._queue.wait(self._env.card.id, queues, config.safety_tick)
        self._heard()
        return 0.0
