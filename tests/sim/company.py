"""A company: real nodes with programs of their own, on one simulated store, in virtual time."""

from __future__ import annotations

import asyncio
import functools
import random

from duly import Scheduler, SchedulerConfig
from duly.errors import BackendUnavailable
from duly.model import RunQuery
from duly.observe import Bus
from duly.scheduler.client import Client
from duly.scheduler.running_node import RunningNode
from duly.scheduler.submitting import Options
from tests.sim.stage import Stage


class Everything:
    """A subscriber that keeps all events."""

    def __init__(self):
        self.events = []

    def __call__(self, event):
        self.events.append(event)

    def wants(self, kind):
        return True


class Member:
    """One life of a node."""

    def __init__(self, node, running, heard):
        self.node = node
        self.running = running
        self._heard = heard

    def events(self, *kinds):
        return [event for event in self._heard.events if isinstance(event, kinds)]


class Company(Stage):
    """The stage, the nodes on it, and somebody outside who looks and operates."""

    def __init__(self, seed=0, **options):
        super().__init__(seed, **options)
        self.office = Client(
            self.network.session("office", self.clock), Scheduler()._registry, SchedulerConfig(), Bus(), self.rng
        )
        self.definitions = self.office.definitions

    async def start(self, name, scheduler, *, clock=None, **settings):
        """A new node with that program; returns when it runs."""
        node = self.loop.node(name)
        heard = Everything()
        life = len(self.loop.nodes)
        config = SchedulerConfig(**{"node_id": f"{name}.{life}", "lock_ttl": 6, "leader_ttl": 4} | settings)
        rng = random.Random(f"{name}/{life}")
        running = await node.start(self._start(name, scheduler, config, heard, rng, clock))
        return Member(node, running, heard)

    async def _start(self, name, scheduler, config, heard, rng, clock):
        registry, session, bus = scheduler._registry, self.network.session(name, clock), Bus()
        bus.subscribe(heard)
        while True:
            try:
                await session.open()
                running = RunningNode(Client(session, registry, config, bus, rng), rng)
                await running.start()
            except BackendUnavailable:
                await asyncio.sleep(0.01)  # whoever starts it does so until the store answers
            else:
                return running

    async def stop(self, member):
        await member.node.start(member.running.stop(5))

    # --- outside

    async def submit(self, name, **options):
        return await self.office.submitter.submit(name, None, Options(**options))

    async def runs(self, job, *states):
        """The runs of a job, oldest first."""
        page = await self.office.runs(RunQuery(job=job, states=states), 10_000, None)
        return sorted(page.runs, key=lambda run: (run.due, run.id))

    async def record(self, name):
        return await self.office.backend.store.job(name)

    async def until(self, check, what="", seconds=600.0):
        """Let time pass until something holds; returns it."""
        end = self.loop.time() + seconds
        while not (found := await check()):
            assert self.loop.time() < end, f"it never came true: {what or check}"
            await asyncio.sleep(0.1)
        return found


def played(act):
    """A test that is one act: a coroutine function that is given a company."""

    @functools.wraps(act)
    def test():
        company = Company()
        company.play(act(company))

    del test.__wrapped__  # or pytest would take the company for a fixture
    return test
