"""Nodes as real processes on one store, and a client that looks on."""

import asyncio
import os
import signal
import sqlite3
from pathlib import Path

from tests.processes import Processes

from duly import Scheduler, SchedulerConfig

APP = Path(__file__).with_name("app.py")
BEATS_PER_SECOND = 5


class Cluster(Processes):
    """Nodes as real processes, and a client that looks on."""

    def __init__(self, folder, url, placement="queue", *, queue=None, coordinator=None):
        super().__init__(folder)
        self.url = url
        self.placement = placement
        self.parts = {"CLUSTER_QUEUE": queue, "CLUSTER_COORDINATOR": coordinator}
        config = SchedulerConfig(placement=placement)
        self.client = Scheduler(self.url, config, queue=queue, coordinator=coordinator)

    def start(self, name):
        environment = os.environ | {
            "CLUSTER_FOLDER": str(self.folder),
            "CLUSTER_NODE": name,
            "CLUSTER_URL": self.url,
            "CLUSTER_PLACEMENT": self.placement,
            **{name: url for name, url in self.parts.items() if url is not None},
        }
        self.nodes[name] = self.spawn(name, [str(APP)], environment)

    async def freeze(self, name):
        """Stop a process, but not while it holds the lock of a file: that would stop everybody, and nobody can help."""
        self.signal(name, signal.SIGSTOP)
        while not self._can_be_written():
            self.signal(name, signal.SIGCONT)
            await asyncio.sleep(0.01)
            self.signal(name, signal.SIGSTOP)

    def _can_be_written(self):
        if not self.url.startswith("sqlite:"):
            return True
        connection = sqlite3.connect(self.url.removeprefix("sqlite:///"), timeout=2, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        except sqlite3.OperationalError:
            return False
        finally:
            connection.close()
        return True

    def stop(self, name):
        self.signal(name, signal.SIGTERM)
        return self.nodes.pop(name).wait(30)

    async def leader(self):
        health = await self.client.health()
        return health.leader

    async def up(self, *names):
        for name in names:
            self.start(name)
        await self.until(self._all_announced(names), f"{names} are up")

    def _all_announced(self, names):
        async def check():
            return set(names) <= {node.id for node in await self.client.nodes()}

        return check

    async def leads(self, name):
        return await self.leader() == name

    def beats(self):
        """The instants that were run, numbered; in the order in which they were written down."""
        return [round(float(at) * BEATS_PER_SECOND) for _, at, _ in self.notes("beat")]

    def beats_are_complete(self, first, last):
        """Every instant from first to last was run exactly once."""
        within = [beat for beat in sorted(self.beats()) if first <= beat <= last]
        assert within == list(range(first, last + 1)), self.logs()
