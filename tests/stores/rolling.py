"""A store with nodes and clients of two versions of Duly: that of the repository, and one from a wheel."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.processes import Processes

APP = Path(__file__).with_name("rolling_app.py")


class Client:
    """A process with the code of one version that calls the store for the test."""

    def __init__(self, process):
        self._process = process

    async def call(self, name, *args, **options):
        self._process.stdin.write(json.dumps([name, args, options]).encode() + b"\n")
        self._process.stdin.flush()
        return await self.answer()

    async def answer(self):
        line = await asyncio.wait_for(asyncio.to_thread(self._process.stdout.readline), 30)
        assert line, "the client has ended"
        return json.loads(line)


class Deploy(Processes):
    """The processes on one store. `code` is the folder of the earlier version."""

    def __init__(self, folder, url, namespace, code):
        super().__init__(folder)
        self.url = url
        self.namespace = namespace
        self._code = code
        self._clients = []

    # --- processes

    def _spawn(self, name, mode, *, earlier, roles="scheduler worker", queues="default ticks", **pipes):
        environment = os.environ | {
            "ROLLING_FOLDER": str(self.folder),
            "ROLLING_URL": self.url,
            "ROLLING_NAMESPACE": self.namespace,
            "ROLLING_ROLES": roles,
            "ROLLING_QUEUES": queues,
            "ROLLING_NODE": name,
        }
        if earlier:
            environment["PYTHONPATH"] = str(self._code)
        return self.spawn(name, [str(APP), mode], environment, **pipes)

    def start(self, name, *, earlier=False, **settings):
        self.nodes[name] = self._spawn(name, "node", earlier=earlier, **settings)

    async def client(self, name, *, earlier=False):
        process = self._spawn(name, "client", earlier=earlier, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._clients.append(process)
        client = Client(process)
        assert await client.answer() == "ready"
        return client

    async def stop(self, name):
        """Ask a node to stop; its exit code."""
        self.nodes[name].send_signal(signal.SIGTERM)
        return await self.ended(name)

    async def ended(self, name):
        """Wait until a node has ended; its exit code."""
        return await asyncio.to_thread(self.nodes.pop(name).wait, 30)

    def close(self):
        super().close()
        for process in self._clients:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()

    # --- what is seen from outside

    def command(self, *words):
        """What a `duly` command of the new version prints."""
        words = [sys.executable, "-m", "duly", *words, "--url", self.url, "--namespace", self.namespace]
        return subprocess.run(words, capture_output=True, text=True, check=True, timeout=30).stdout

    def log(self, name):
        return (self.folder / f"{name}.log").read_text()

    def noted(self, word):
        """What handlers wrote down, in order: run, fence, node."""
        return [(run, int(fence), node) for _, run, fence, node in self.notes(word)]

    async def up(self, client, *names):
        async def announced():
            return set(names) <= set(await client.call("nodes"))

        await self.until(announced, f"{names} are up")

    async def leads(self, client, name):
        async def check():
            return await client.call("leader") == name

        await self.until(check, f"{name} leads")

    async def completed(self, client, run_ids):
        async def check():
            return set(await client.call("states", run_ids)) == {"completed"}

        await self.until(check, f"{run_ids} are completed")
