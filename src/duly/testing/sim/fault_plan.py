"""A fault plan: a seeded sequence of faults. Nodes pause, die and come back; they are cut off; the store goes away."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from msgspec import Struct

from duly.testing.sim.clock import SimClock
from duly.testing.sim.cluster import SimCluster
from duly.testing.sim.network import FOUL, Weather


class FaultPlan(Struct, frozen=True):
    """The faults: seconds between two of them and how long each lasts, (least, most), and how likely each kind is.

    `skews` steps a node's wall clock, `steps` the store's.
    """

    between: tuple[float, float] = (0.5, 6.0)
    lasting: tuple[float, float] = (0.2, 20.0)
    weather: Weather = FOUL
    pauses: int = 4
    kills: int = 4
    cuts: int = 3
    outages: int = 1
    freezes: int = 1
    skews: int = 1
    steps: int = 0
    stride: tuple[float, float] = (-8.0, 8.0)

    async def rage(self, cluster: SimCluster, store_clock: SimClock, seconds: float) -> None:
        """Inject faults for that many virtual seconds; then repair everything."""
        loop = asyncio.get_running_loop()
        dice = random.Random(f"storm/{cluster.network.loop.seed}")
        end = loop.time() + seconds
        cluster.network.weather = self.weather
        trouble = _Trouble(self, cluster, store_clock, dice)
        async with asyncio.TaskGroup() as faults:
            while loop.time() < end:
                faults.create_task(trouble.strike(end))
                await asyncio.sleep(dice.uniform(*self.between))
        cluster.recover()


class _Trouble:
    """Chooses the next fault and injects it."""

    def __init__(self, storm: FaultPlan, cluster: SimCluster, store_clock: SimClock, dice: random.Random) -> None:
        self._storm = storm
        self._cluster = cluster
        self._network = cluster.network
        self._store_clock = store_clock
        self._dice = dice
        self._kinds: dict[Callable[[str, float], Awaitable[None]], int] = {
            self._pause: storm.pauses,
            self._kill: storm.kills,
            self._cut: storm.cuts,
            self._take_away: storm.outages,
            self._freeze: storm.freezes,
            self._skew: storm.skews,
            self._step: storm.steps,
        }

    async def strike(self, end: float) -> None:
        name = self._dice.choice(sorted(self._cluster.nodes))
        [kind] = self._dice.choices(list(self._kinds), list(self._kinds.values()))
        left = max(0.0, end - asyncio.get_running_loop().time())
        await kind(name, min(left, self._dice.uniform(*self._storm.lasting)))

    async def _pause(self, name: str, seconds: float) -> None:
        if self._cluster.nodes[name].awake:
            self._cluster.pause(name)
            await asyncio.sleep(seconds)
            self._cluster.resume(name)

    async def _kill(self, name: str, seconds: float) -> None:
        if not self._cluster.nodes[name].killed:
            self._cluster.kill(name)
            await asyncio.sleep(seconds)
            self._cluster.start(name)

    async def _cut(self, name: str, seconds: float) -> None:
        self._network.cut(name)
        await asyncio.sleep(seconds)
        self._network.join(name)

    async def _take_away(self, _: str, seconds: float) -> None:
        self._network.take_away()
        await asyncio.sleep(seconds)
        self._network.bring_back()

    async def _freeze(self, _: str, seconds: float) -> None:
        self._network.store.pause()
        self._network.history.note("the store is frozen")
        await asyncio.sleep(seconds)
        self._network.store.resume()
        self._network.history.note("the store goes on")

    async def _skew(self, name: str, _: float) -> None:
        self._cluster.clocks[name].skew += self._dice.uniform(*self._storm.stride)
        self._network.history.note(f"clock now {self._cluster.clocks[name].skew:+.3f}s", name)

    async def _step(self, _: str, __: float) -> None:
        self._store_clock.skew += self._dice.uniform(*self._storm.stride)
        self._network.history.note(f"the store's clock now {self._store_clock.skew:+.3f}s")
