"""The configuration in force in this process, and the service that keeps it equal to the cluster's settings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from duly.model import Item, SchedulerConfig
from duly.ports import Coordinator
from duly.rules.cluster_settings import KEY, Changed, InForce, in_force
from duly.runtime.service import Signal

_READ_AGAIN = 30.0  # the longest delay if the notification of a change was lost


class LiveConfig:
    """A process's own configuration, overridden by the cluster's settings.

    Read `config` whenever a value is needed: it is the configuration in force at that moment, and any thread may read
    it. What cannot change while a node runs is the same in every value of it.
    """

    def __init__(self, own: SchedulerConfig) -> None:
        self.own = own
        self.config = own
        self.in_force = InForce(own)
        self._listeners: tuple[Changed, ...] = ()

    def subscribe(self, call: Changed) -> Callable[[], None]:
        """Call a function with the settings before and after each change; call the result to unsubscribe."""
        self._listeners = (*self._listeners, call)

        def unsubscribe() -> None:
            self._listeners = tuple(each for each in self._listeners if each is not call)

        return unsubscribe

    def apply(self, item: Item | None) -> None:
        """Apply the stored settings."""
        before, after = self.in_force, in_force(self.own, item)
        if after == before:
            return
        self.in_force, self.config = after, after.config
        for call in self._listeners:
            call(before, after)


class SettingsWatcher:
    """Reads the cluster's settings, then waits for each change of them."""

    name = "settings"

    def __init__(self, coordinator: Coordinator, live: LiveConfig) -> None:
        self.signal = Signal()
        self._coordinator = coordinator
        self._live = live

    async def read(self) -> None:
        """Apply the settings that are stored now."""
        self._live.apply(await self._coordinator.get(KEY))

    async def tick(self) -> float:
        await self.read()
        try:
            async with asyncio.timeout(_READ_AGAIN):
                async for item in self._coordinator.watch(KEY):
                    self._live.apply(item)
        except TimeoutError:
            pass
        return 0.0
