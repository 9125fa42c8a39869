"""The scenarios of a campaign: a cluster of real nodes with faults, and a time without faults after them.

A failing seed is reported with the history of what went wrong and the command that runs it again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from msgspec import Struct

from duly.model import shift
from duly.testing.sim.clock import SimClock
from duly.testing.sim.cluster import SimCluster
from duly.testing.sim.contents import TapedContents
from duly.testing.sim.facts import read
from duly.testing.sim.fault_plan import FaultPlan
from duly.testing.sim.history import Begin, History
from duly.testing.sim.invariants import Violation, check
from duly.testing.sim.liveness import no_silent_miss, nothing_left_behind
from duly.testing.sim.loop import SimLoop
from duly.testing.sim.network import FAIR, Network
from tests.sim.campaign_jobs import Actor, Operator, Placement, schedules

NODES = ("n1", "n2", "n3")
STORM = 40.0
QUIET = 80.0
_PATIENCE = 25.0


class Verdict(Struct, frozen=True):
    """What one seed showed: how much happened, and what should not have."""

    scenario: str
    seed: int
    steps: int
    begun: int
    repeated: tuple[str, ...]
    violations: tuple[Violation, ...]

    @property
    def failed(self) -> bool:
        """Whether it showed something that must not be."""
        return bool(self.violations or self.repeated)

    @property
    def command(self) -> str:
        """What plays this seed again."""
        return f"python -m tests.sim.campaign --scenario {self.scenario} --seeds {self.seed}"


class Stage:
    """Everything one seed plays with."""

    def __init__(self, seed: int, *, failing: float = 0.15, placement: Placement = "queue", shards: int = 1) -> None:
        self.seed = seed
        self.placement = placement
        self.loop = SimLoop(seed, max_steps=5_000_000)
        self.clock = SimClock(self.loop)
        contents = TapedContents(self.clock)
        self.history = History(self.loop.time, contents.clock.now)
        self.network = Network(self.loop, contents, self.history)
        self.actor = Actor(seed, self.history, failing=failing, placement=placement, shards=shards)
        self.cluster = SimCluster(self.network, self.actor.serve)
        self.dice = random.Random(f"stage/{seed}")

    def enter(self) -> None:
        for name in NODES:
            self.cluster.start(name)

    def operator(self) -> Operator:
        return Operator(self.seed, self.history, self.network.session("operator"), self.placement)


Scenario = Callable[[Stage], Coroutine[Any, Any, None]]


async def storm(stage: Stage) -> None:
    """Everything at once: crashes, pauses, lost and repeated messages, partitions, outages, skewed clocks."""
    stage.enter()
    async with asyncio.TaskGroup() as acts:
        acts.create_task(stage.operator().submit_for(STORM))
        acts.create_task(FaultPlan().rage(stage.cluster, stage.clock, STORM))
    await asyncio.sleep(QUIET)


async def resharding(stage: Stage) -> None:
    """A storm, in which the number of shards changes again and again."""
    stage.enter()
    async with asyncio.TaskGroup() as acts:
        acts.create_task(stage.operator().submit_for(STORM))
        acts.create_task(stage.operator().reshard_for(STORM))
        acts.create_task(FaultPlan().rage(stage.cluster, stage.clock, STORM))
    await asyncio.sleep(QUIET)


async def steps(stage: Stage) -> None:
    """The same, and the store's own clock steps back and forth."""
    stage.enter()
    async with asyncio.TaskGroup() as acts:
        acts.create_task(stage.operator().submit_for(STORM))
        acts.create_task(FaultPlan(steps=2).rage(stage.cluster, stage.clock, STORM))
    await asyncio.sleep(QUIET)


async def outage(stage: Stage) -> None:
    """The store goes away for a while, and nothing else happens: no run may begin twice."""
    stage.enter()
    await asyncio.sleep(10)
    async with asyncio.TaskGroup() as acts:
        acts.create_task(stage.operator().submit_for(STORM))
        acts.create_task(_outages(stage))
    await asyncio.sleep(QUIET)


async def _outages(stage: Stage) -> None:
    for _ in range(2):
        await asyncio.sleep(stage.dice.uniform(1, 6))
        stage.network.take_away()
        await asyncio.sleep(stage.dice.uniform(3, 14))
        stage.network.bring_back()
    stage.cluster.recover()


async def rolling(stage: Stage) -> None:
    """Nodes are stopped gracefully one after the other and started anew: nothing is lost, nothing begins twice."""
    stage.enter()
    await asyncio.sleep(5)
    async with asyncio.TaskGroup() as acts:
        acts.create_task(stage.operator().submit_for(STORM))
        acts.create_task(_roll(stage))
    await asyncio.sleep(QUIET)


async def _roll(stage: Stage) -> None:
    for name in NODES * 2:
        running = stage.actor.running[name]
        await stage.cluster.nodes[name].start(running.stop(20))
        await asyncio.sleep(stage.dice.uniform(0.1, 3))
        stage.cluster.start(name)
        await asyncio.sleep(stage.dice.uniform(2, 5))


class Play(Struct, frozen=True):
    """A scenario, and what must be true of it beyond the invariants: which jobs may not begin a run twice."""

    act: Scenario
    failing: float = 0.15
    once: tuple[str, ...] = ()
    placement: Placement = "queue"
    shards: int = 1


SCENARIOS: dict[str, Play] = {
    "storm": Play(storm),
    "steps": Play(steps),
    "outage": Play(outage, failing=0.0, once=("report", "digest", "mail", "sms")),
    "rolling": Play(rolling, failing=0.0, once=("report", "digest", "mail", "sms", "urgent")),
    "storm-shards": Play(storm, shards=4),
    "resharding": Play(resharding, shards=4),
    "storm-assign": Play(storm, placement="assign"),
    "steps-assign": Play(steps, placement="assign"),
    "outage-assign": Play(outage, failing=0.0, once=("report", "digest", "mail", "sms"), placement="assign"),
    "rolling-assign": Play(
        rolling, failing=0.0, once=("report", "digest", "mail", "sms", "urgent"), placement="assign"
    ),
}


def play(scenario: str, seed: int) -> Verdict:
    """Play one seed and judge it."""
    chosen = SCENARIOS[scenario]
    stage = Stage(seed, failing=chosen.failing, placement=chosen.placement, shards=chosen.shards)
    stage.network.weather = FAIR
    stage.loop.run(chosen.act(stage))
    facts = read(stage.history)
    violations = [
        *check(facts, schedules),
        *no_silent_miss(facts, schedules, shift(stage.network.contents.clock.now(), -_PATIENCE)),
        *nothing_left_behind(stage.history, facts, patience=_PATIENCE),
    ]
    begun = [event for event in stage.history.events if isinstance(event, Begin)]
    once = [event.run_id for event in begun if event.job in chosen.once]
    repeated = tuple(sorted({run_id for run_id in once if once.count(run_id) > 1}))
    return Verdict(scenario, seed, stage.loop.taken, len(begun), repeated, tuple(violations))


def campaign(scenario: str, seeds: range) -> Iterator[Verdict]:
    """Play many seeds, one after the other."""
    for seed in seeds:
        yield play(scenario, seed)
