"""The jobs of a campaign, whose handlers record what they do, and its real nodes."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Literal

from duly.errors import BackendUnavailable
from duly.model import JobRecord, SchedulerConfig
from duly.observe import Bus
from duly.rules.retry import RetryPolicy
from duly.rules.schedules import Every, from_spec
from duly.runtime.context import Context
from duly.scheduler import Scheduler
from duly.scheduler.client import Client
from duly.scheduler.cluster_settings import ClusterSettings
from duly.scheduler.running_node import RunningNode
from duly.scheduler.submitting import Options
from duly.testing.sim.history import History
from duly.testing.sim.invariants import NextRun
from duly.testing.sim.network import FaultySession

SUBMITTED = ("mail", "sms", "urgent")

Placement = Literal["queue", "assign"]

_LOCK_TTL = 6.0
_LEADER_TTL = 4.0
_QUICK_RETRY = RetryPolicy(max_retries=1, initial_interval=0.5)


def play_house(history: History, rng: random.Random, *, failing: float = 0.15) -> Scheduler:
    """A program with jobs of every kind."""
    scheduler = Scheduler("memory://")

    async def act(ctx: Context) -> None:
        history.begin(ctx.job, ctx.run_id, ctx.fence)
        await asyncio.sleep(rng.choice((0.05, 0.1, 0.5, 1.0, 3.0, 9.0)))
        if rng.random() < failing:
            history.end(ctx.job, ctx.run_id, ctx.fence, "raised")
            raise ConnectionError("by chance")
        history.end(ctx.job, ctx.run_id, ctx.fence, "returned")

    @scheduler.job(Every(seconds=4), retry=_QUICK_RETRY)
    async def report(ctx: Context) -> None:
        await act(ctx)

    @scheduler.job(Every(seconds=5), overlap="queue", retry=_QUICK_RETRY, timeout=4)
    async def ledger(ctx: Context) -> None:
        await act(ctx)

    @scheduler.job(Every(seconds=7), delivery="at_most_once")
    async def digest(ctx: Context) -> None:
        await act(ctx)

    @scheduler.job(overlap="queue", retry=_QUICK_RETRY)
    async def mail(ctx: Context) -> None:
        await act(ctx)

    @scheduler.job(delivery="at_most_once")
    async def sms(ctx: Context) -> None:
        await act(ctx)

    @scheduler.job(priority=9, on_store_loss="stop", retry=_QUICK_RETRY)
    async def urgent(ctx: Context) -> None:
        await act(ctx)

    return scheduler


def schedules(record: JobRecord) -> NextRun | None:
    """When a job of the cast is due, for the judges."""
    spec = record.spec.schedule
    return None if spec is None else from_spec(spec).next_run


class Actor:
    """One life of a node. `running` is there once it has reached the store."""

    def __init__(self, seed: int, history: History, *, failing: float, placement: Placement, shards: int) -> None:
        self._seed = seed
        self._shards = shards
        self._placement = placement
        self._history = history
        self._failing = failing
        self.running: dict[str, RunningNode] = {}

    async def serve(self, node_id: str, session: FaultySession) -> None:
        """What a node does in its life: reach the store, and run for real."""
        rng = random.Random(f"actor/{self._seed}/{node_id}")
        scheduler = play_house(self._history, rng, failing=self._failing)
        registry = scheduler._registry  # the stage drives what the scheduler would
        config = SchedulerConfig(
            node_id=node_id,
            lock_ttl=_LOCK_TTL,
            leader_ttl=_LEADER_TTL,
            max_concurrent=6,
            shutdown_timeout=5,
            placement=self._placement,
            shards=self._shards,
        )
        while True:
            try:
                await session.open()
                running = RunningNode(Client(session, registry, config, Bus(), rng), rng)
                await running.start()
            except BackendUnavailable:
                await asyncio.sleep(0.5)
            else:
                break
        self.running[node_id.partition(".")[0]] = running
        await running.wait()


class Operator:
    """Somebody who submits work, and is never heard of by the nodes otherwise."""

    def __init__(self, seed: int, history: History, session: FaultySession, placement: Placement) -> None:
        self._rng = random.Random(f"operator/{seed}")
        registry = play_house(history, self._rng)._registry  # as above
        config = SchedulerConfig(node_id="operator", placement=placement)
        self._client = Client(session, registry, config, Bus(), self._rng)

    async def submit_for(self, seconds: float) -> None:
        """Submit now and then; what the store does not answer is given up."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end:
            await self._submit(self._rng.choice(SUBMITTED))
            await asyncio.sleep(self._rng.uniform(0.2, 2.0))

    async def reshard_for(self, seconds: float) -> None:
        """Change the number of shards of the running cluster now and then."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        settings = ClusterSettings(self._found)
        while loop.time() < end:
            await asyncio.sleep(self._rng.uniform(1.0, 12.0))
            with suppress(BackendUnavailable):
                await settings.set("shards", self._rng.choice((1, 2, 4, 7)))

    async def _found(self) -> Client:
        return self._client

    async def _submit(self, name: str) -> None:
        delay = self._rng.choice((0, 0, 1.5, 6.0))
        key = self._rng.choice((None, None, f"key-{self._rng.randrange(5)}"))
        try:
            await self._client.submitter.submit(name, None, Options(delay=delay, dedupe_key=key))
        except BackendUnavailable:
            return
