"""Nodes as real processes on one store, and a client that looks on."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from duly import Scheduler, SchedulerConfig

APP = Path(__file__).with_name("app.py")
BEATS_PER_SECOND = 5


class Cluster:
    """Nodes as real processes, and a client that looks on."""

    def __init__(self, folder, url, placement="queue", *, queue=None, coordinator=None):
        self.folder = folder
        self.url = url
        self.placement = placement
        self.parts = {"CLUSTER_QUEUE": queue, "CLUSTER_COORDINATOR": coordinator}
        config = SchedulerConfig(placement=placement)
        self.client = Scheduler(self.url, config, queue=queue, coordinator=coordinator)
        self.nodes = {}

    def start(self, name):
        environment = os.environ | {
            "CLUSTER_FOLDER": str(self.folder),
            "CLUSTER_NODE": name,
            "CLUSTER_URL": self.url,
            "CLUSTER_PLACEMENT": self.placement,
            **{name: url for name, url in self.parts.items() if url is not None},
        }
        with (self.folder / f"{name}.log").open("ab") as log:
            self.nodes[name] = subprocess.Popen([sys.executable, str(APP)], env=environment, stderr=log)

    def signal(self, name, number):
        self.nodes[name].send_signal(number)

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

    def kill(self, name):
        self.signal(name, signal.SIGKILL)
        self.nodes.pop(name).wait()

    def stop(self, name):
        self.signal(name, signal.SIGTERM)
        return self.nodes.pop(name).wait(30)

    def close(self):
        for process in self.nodes.values():
            process.kill()
            process.wait()

    def notes(self, *first):
        path = self.folder / "notes"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line.split() for line in lines if line.split()[: len(first)] == list(first)]

    def let_go(self, name):
        (self.folder / f"go-{name}").touch()

    def logs(self):
        return "\n".join(f"== {path.name}\n{path.read_text()}" for path in sorted(self.folder.glob("*.log")))

    async def until(self, check, what, seconds=40):
        deadline = time.monotonic() + seconds
        while True:
            value = check()
            if asyncio.iscoroutine(value):
                value = await value
            if value:
                return value
            if time.monotonic() > deadline:
                pytest.fail(f"never came true: {what}\n{self.logs()}")
            await asyncio.sleep(0.01)

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
