"""The elector beside a node that stops: leadership that was given up does not come back by an answer under way."""

import asyncio
import random

import pytest

from duly.backends.memory import open_url
from duly.model import SchedulerConfig
from duly.model.event import LeaderElected, LeaderLost
from duly.model.job import MAIN
from duly.ports import Opening, StoreClock, SystemClock
from duly.runtime.elector import Elector
from duly.runtime.environment import Environment, make_card
from duly.runtime.live_config import LiveConfig
from duly.runtime.shard_layout import ShardLayout


class Slow:
    """A coordinator whose answers to one verb are held back until the test lets them go."""

    def __init__(self, coordinator, verb):
        self._coordinator = coordinator
        self._verb = verb
        self.asked = asyncio.Event()
        self.go_on = asyncio.Event()

    def __getattr__(self, name):
        method = getattr(self._coordinator, name)
        if name != self._verb:
            return method

        async def slowly(*arguments, **options):
            answer = await method(*arguments, **options)
            self.asked.set()
            await self.go_on.wait()
            return answer

        return slowly


@pytest.mark.parametrize("verb", ["acquire", "renew"])
async def test_who_resigns_while_it_asks_for_a_lease_does_not_keep_it(verb):
    events = []
    clock = StoreClock(SystemClock(), direct=True)
    config = SchedulerConfig(node_id="a")
    card = make_card("a", config, clock, "1")
    env = Environment(card, LiveConfig(config), clock, events.append, random.Random(1))
    async with open_url("memory://", Opening()) as backend:
        slow = Slow(backend.coordinator, verb)
        elector = Elector(env, slow, backend.store, lambda: [MAIN], lambda: None, ShardLayout(env, backend.store))
        if verb == "renew":
            await elector.tick()
            assert elector.leads
        ticking = asyncio.create_task(elector.tick())
        await slow.asked.wait()
        await elector.resign()
        slow.go_on.set()
        await ticking
        assert not elector.leads
        assert await backend.coordinator.holder(MAIN) is None
    assert len([event for event in events if isinstance(event, LeaderElected)]) == (verb == "renew")
    assert len([event for event in events if isinstance(event, LeaderLost)]) == (verb == "renew")
