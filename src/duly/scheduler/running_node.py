"""A node built from a client and this process's code: how it starts, deploys and stops."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime

from duly.errors import DulyError, StoreMoved
from duly.model import JobFile
from duly.model.event import JobConflict
from duly.model.job import COMMAND_HANDLER, MAIN
from duly.ports import Tracer
from duly.runtime.environment import Environment, make_card
from duly.runtime.executors.custom import Executor
from duly.runtime.handler import Catalog
from duly.runtime.node import Code, Node
from duly.runtime.stages import Stages
from duly.runtime.stored_commands import stored_commands
from duly.scheduler.capability_checks import check_deliveries, check_placement, too_new
from duly.scheduler.client import Client
from duly.scheduler.executors import Executors
from duly.scheduler.job import Job
from duly.scheduler.loop_end import LoopEnd
from duly.scheduler.views import ShutdownReport
from duly.version import __version__

_CLOSED_AFTER = 1.7  # seconds after the handlers' time limit; from then on nothing of theirs is waited for


class RunningNode:
    """A node and what it needs from the scheduler around it. Belongs to one event loop."""

    def __init__(
        self,
        client: Client,
        rng: random.Random,
        tracer: Tracer | None = None,
        executors: Mapping[str, Executor] = {},
    ) -> None:
        self.client = client
        self.loop = asyncio.get_running_loop()
        self.config = config = client.config
        self._registry = registry = client.registry
        self._emit = client.emit
        self._catalog = Catalog()
        card = make_card(client.node_id, config, client.clock, __version__)
        env = Environment(card, client.live, client.clock, client.emit, rng, tracer)
        code = Code(
            catalog=self._catalog,
            compose=client.submitter.compose,
            deploy=self.deploy,
            shards=lambda: (MAIN, *registry.shards()),
            schedules=registry.schedule_in_code,
        )
        self._actor = f"node {card.id}"
        self._started_at = card.started_at
        self._executors = Executors(config.max_result_bytes, executors)
        self.node = Node(env, client.backend, code, self._executors)
        self._over = asyncio.Event()
        self._moved: StoreMoved | None = None
        self.node.health.when_moved(self._store_moved)
        self._loop_end = LoopEnd(self._end_with_loop)
        self._job_file: tuple[JobFile, datetime] | None = None
        self._registering: set[asyncio.Task[None]] = set()
        if config.allow_commands == "stored":
            self._catalog.add(COMMAND_HANDLER, stored_commands(client.backend.store))

    async def start(self) -> None:
        """Apply the cluster's settings, bring the store in line with the code, and run."""
        await self.client.read_settings()
        await self.deploy()
        self.client.when_changed(self.node.changed)
        await self.node.start()
        await self._loop_end.arm()

    async def deploy(self) -> None:
        """Check the code against the store, and save what is new or changed."""
        jobs = self._registry.jobs()
        await self._adopt(jobs)
        complete = await self.client.code_deploys.deploy(jobs, self._started_at)
        if self._job_file is not None:
            file, _ = self._job_file
            if await too_new(file.jobs, self.client.backend.coordinator):
                complete = False
            else:
                await self.client.job_files.deploy(*self._job_file, by=self._actor)
        if not complete:
            self.node.deployer.again()

    async def carry(self, job_file: JobFile) -> None:
        """Take over the jobs of a file: they are deployed at the start, and again if the store forgets this node."""
        self._job_file = (job_file, await self.client.backend.store.time())

    async def reload(self, job_file: JobFile, *, changed: bool) -> bool:
        """Deploy a file that was read again; False if a newer one is in force. If it fails, the previous jobs stay."""
        since = await self.client.backend.store.time()
        stands = await self.client.job_files.deploy(job_file, since, by=self._actor, changed=changed)
        self._job_file = (job_file, since)
        return stands

    async def _adopt(self, jobs: Sequence[Job]) -> None:
        """Make the handlers of these jobs known to the node."""
        await check_deliveries({job.name: job.delivery for job in jobs}, self.client.backend, self.config)
        found = {}
        for job in jobs:
            check_placement(job.name, job.selector, self.config)
            handler = self._registry.handler(job, self.config)
            if handler is not None:
                found[job.name] = handler
        self._catalog.update(found)

    async def register(self, job: Job) -> None:
        """Add a job while running."""
        await self._adopt([job])
        if not await self.client.code_deploys.deploy([job], self._started_at):
            self.node.deployer.ask()
        await self.client.backend.coordinator.announce(self.node.card_now(), self.config.lease)

    def redefine(self, job: Job) -> None:
        """Use the handler of this job from now on, and register the job soon. A failure is reported as an event."""
        handler = self._registry.handler(job, self.config)
        if handler is not None:
            self._catalog.update({job.name: handler})
        task = self.loop.create_task(self._register_later(job), name="duly-register")
        self._registering.add(task)
        task.add_done_callback(self._registering.discard)

    async def _register_later(self, job: Job) -> None:
        try:
            await self.register(job)
        except DulyError as exc:
            self._emit(JobConflict(job.name, str(exc)))

    async def stop(self, timeout: float | None) -> ShutdownReport:
        """Stop gracefully, once. Never raises, and takes at most two seconds longer than `timeout`."""
        stages = Stages(self._emit)
        await self._loop_end.call_off()
        stopped = await self.node.stop(timeout, stages)
        await stages.run("close executors", self._executors.close(), _CLOSED_AFTER)
        self._over.set()
        return ShutdownReport(stopped.drained, stopped.released, stopped.interrupted, stopped.left)

    async def dispose(self) -> None:
        """Release all resources of a node that was never started."""
        await self._loop_end.call_off()
        self.node.dispose()
        await self._executors.close()

    async def _end_with_loop(self) -> None:
        """The loop ends and nobody has stopped the node: it gives up its claims, which expire."""
        stages = Stages(self._emit)
        await stages.run("end services", self.node.abandon(), _CLOSED_AFTER)
        await stages.run("close executors", self._executors.close(), _CLOSED_AFTER)
        self._over.set()

    async def wait(self) -> None:
        """Return when the node has stopped; raises `StoreMoved` when its store has moved to another address."""
        await self._over.wait()
        if self._moved is not None:
            raise self._moved

    def _store_moved(self, error: StoreMoved) -> None:
        """Called on any thread."""
        self._moved = self._moved or error
        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self._over.set)
