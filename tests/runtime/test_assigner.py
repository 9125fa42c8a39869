"""The assigner, stepped by hand on the memory store: placing, taking back, and how often it asks."""

import random
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from duly.backends.memory import open_url
from duly.model import (
    EverySpec,
    JobChange,
    JobRecord,
    JobSpec,
    Node,
    Origin,
    Run,
    SchedulerConfig,
    Share,
    Succeeded,
    shift,
)
from duly.model.event import RunsPlaced, RunsTakenBack
from duly.ports import Opening
from duly.rules.placement import to_place
from duly.rules.settling import settle
from duly.runtime.assigner import Assigner
from duly.runtime.environment import Environment
from duly.runtime.live_config import LiveConfig
from duly.testing.clock import ManualClock

START = datetime(2027, 3, 1, tzinfo=UTC)


class Events(list):
    def __call__(self, event):
        self.append(event)

    def wants(self, kind):
        return True


class Leading:
    """An elector that is asked one thing."""

    leads = True


class Counting:
    """Counts the calls of a port."""

    def __init__(self, port):
        self._port = port
        self.calls = []

    def __getattr__(self, name):
        self.calls.append(name)
        return getattr(self._port, name)


class Stage:
    def __init__(self, **config):
        self.clock = ManualClock(START)
        self.backend = open_url(f"memory://assigner-{id(self)}", Opening("duly", self.clock))
        self.queue = self.backend.queue = Counting(self.backend.queue)
        self.events, self.elector = Events(), Leading()
        self.config = SchedulerConfig(placement="assign", **config)
        card = self.node("me")
        env = Environment(card, LiveConfig(self.config), self.backend.clock, self.events, random.Random(0))
        self.assigner = Assigner(env, self.backend, self.elector)
        self._number = 0

    @staticmethod
    def node(name, **fields):
        values = {"host": "h", "pid": 1, "started_at": START, "handlers": frozenset({"mail", "train"}), "capacity": 2}
        return Node(id=name, **values | fields)

    async def announce(self, *nodes, ttl=15.0):
        for node in nodes:
            await self.backend.coordinator.announce(node, ttl)

    async def put(self, *waits, job="mail", **fields):
        runs = []
        for wait in waits:
            self._number += 1
            at = shift(self.clock.now(), wait)
            runs.append(to_place(Run(id=f"0{self._number:05}", job=job, handler=job, due=at, ready_at=at, **fields)))
        await self.backend.queue.put(runs)
        return runs

    async def whose(self, *runs):
        found = [await self.backend.store.run(run.id) for run in runs]
        return [run.assignee for run in found]

    async def settle_down(self):
        """Tick until the assigner wants to wait; the wait it asks for."""
        for _ in range(1000):
            delay = await self.assigner.tick()
            if delay > 0:
                return delay
        raise AssertionError("the assigner never rests")


@pytest.fixture
async def stage():
    return Stage()


async def test_due_and_upcoming_runs_are_spread_over_the_live_nodes(stage):
    await stage.announce(stage.node("a"), stage.node("b"))
    runs = await stage.put(0, 0, 0, 0, 10, 11, 12, 13, 14)
    await stage.settle_down()
    assert sorted(filter(None, await stage.whose(*runs[:4]))) == ["a", "a", "b", "b"]
    assert sorted(filter(None, await stage.whose(*runs[4:]))) == ["a", "a", "b", "b"]
    assert await stage.whose(runs[8]) == [None]
    assert stage.events == [RunsPlaced(8, 2)]


async def test_a_run_beyond_the_upcoming_ones_is_placed_when_it_is_due(stage):
    await stage.announce(stage.node("a"), ttl=60)
    runs = await stage.put(1, 1, 1.2)
    delay = await stage.settle_down()
    assert delay == pytest.approx(1.2)
    stage.clock.set(shift(START, 1.2))
    for claim in (await stage.backend.queue.claim("a", None, None, 10, 15, 1)).claims:
        assert claim.run.id in {runs[0].id, runs[1].id}
    await stage.settle_down()
    assert await stage.whose(runs[2]) == [None]  # both slots are taken
    assert stage.assigner._pause > 0  # it looks again soon, and not in a hot loop


async def test_full_nodes_are_asked_less_and_less_often_until_one_has_room(stage):
    await stage.announce(stage.node("a", capacity=1), ttl=1e6)
    first, second = await stage.put(0, 0)
    delays = [await stage.assigner.tick() for _ in range(8)]
    assert delays == sorted(delays)
    assert delays[-1] <= 0.25
    [claim] = (await stage.backend.queue.claim("a", None, None, 10, 15, 1)).claims
    assert claim.run.id == first.id
    await stage.backend.queue.settle([settle(claim.run, claim.fence, Succeeded(), stage.clock.now(), 0.5)])
    await stage.settle_down()
    assert await stage.whose(second) == ["a"]


async def test_runs_of_a_node_are_taken_back_when_its_presence_lapses_and_not_before(stage):
    await stage.announce(stage.node("a"), ttl=5)
    runs = await stage.put(0, 0, 20)
    await stage.settle_down()
    await stage.announce(stage.node("b"), ttl=60)
    stage.clock.set(shift(START, 4.9))
    await stage.settle_down()
    assert await stage.whose(*runs) == ["a", "a", "a"]
    stage.clock.set(shift(START, 6.8))
    await stage.settle_down()
    assert await stage.whose(*runs) == ["b", "b", "b"]
    assert RunsTakenBack("a", 3) in stage.events


async def test_the_selector_of_a_job_is_respected_and_others_go_past_it(stage):
    spec = JobSpec(name="train", handler="train", schedule=EverySpec(stage.config.grace), selector={"gpu": "yes"})
    record = JobRecord("0uid", spec, 1, Origin.CODE, START, START)
    await stage.backend.store.save([JobChange(record, None)])
    await stage.announce(stage.node("a", capacity=1000), ttl=1e6)
    stuck = await stage.put(*[0.0] * 700, job="train")
    [mail] = await stage.put(0)
    assert await stage.settle_down() <= 1.8
    assert await stage.whose(mail) == ["a"]
    assert await stage.whose(stuck[0]) == [None]
    await stage.announce(stage.node("g", labels={"gpu": "yes"}), ttl=1e6)
    await stage.settle_down()
    assert (await stage.backend.queue.assigned())["g"] == Share(due=2)


async def test_a_paused_queue_does_not_fill_the_nodes(stage):
    await stage.announce(stage.node("a"), ttl=1e6)
    before = await stage.put(0, 0, queue="slow")
    await stage.settle_down()
    await stage.backend.store.pause("slow")
    behind, mail = await stage.put(0, 0, queue="slow"), await stage.put(0, 0)
    await stage.settle_down()
    assert await stage.whose(*before, *mail) == ["a"] * 4
    assert await stage.whose(*behind) == [None, None]
    await stage.backend.store.resume("slow")
    await stage.settle_down()
    assert await stage.whose(*behind) == [None, None]  # the slots are taken by now


async def test_who_does_not_lead_places_nothing(stage):
    stage.elector.leads = False
    await stage.announce(stage.node("a"))
    runs = await stage.put(0)
    assert await stage.assigner.tick() == stage.config.safety_tick
    assert stage.queue.calls == ["put"]
    assert await stage.whose(*runs) == [None]


async def test_without_anything_to_place_one_cheap_question_is_asked(stage):
    await stage.announce(stage.node("a"))
    assert await stage.assigner.tick() == stage.config.safety_tick
    stage.queue.calls.clear()
    for _ in range(3):
        assert await stage.assigner.tick() > 0
    assert stage.queue.calls == ["held"] * 3


async def test_a_node_that_stops_is_given_nothing_more(stage):
    await stage.announce(stage.node("a"), ttl=60)
    await stage.announce(replace(stage.node("a"), capacity=0), ttl=60)
    runs = await stage.put(0, 10)
    await stage.settle_down()
    assert await stage.whose(*runs) == [None, None]
