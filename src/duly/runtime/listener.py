"""The listener: waits for the store to say that something may have changed, and wakes those whom it may concern."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from duly.model import Role
from duly.ports import Queue
from duly.runtime.environment import Environment
from duly.runtime.service import Signal


class Listener:
    """Passes hints on. A lost one costs the safety tick."""

    name = "listener"

    def __init__(self, env: Environment, queue: Queue, heard: Callable[[], None]) -> None:
        self.signal = Signal()
        self._env = env
        self._queue = queue
        self._heard = heard

    async def tick(self) -> float:
        config = self._env.config
        queues: Sequence[str] | None = config.queue_names if Role.WORKER in config.roles else []
        await self._queue.wait(self._env.card.id, queues, config.safety_tick)
        self._heard()
        return 0.0
