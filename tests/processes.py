"""Processes that a test starts and ends, and the folder in which they leave their logs and notes."""

import asyncio
import signal
import subprocess
import sys
import time

import pytest


class Processes:
    """Nodes by name. Each logs into `<name>.log`, all write what they did into `notes`."""

    def __init__(self, folder):
        self.folder = folder
        self.nodes = {}

    def spawn(self, name, words, environment=None, **pipes):
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen([sys.executable, *words], env=environment, stderr=log, **pipes)

    def signal(self, name, number):
        self.nodes[name].send_signal(number)

    def kill(self, name):
        self.signal(name, signal.SIGKILL)
        self.nodes.pop(name).wait()

    def close(self):
        for process in self.nodes.values():
            process.kill()
            process.wait()

    def let_go(self, name):
        (self.folder / f"go-{name}").touch()

    def notes(self, *first):
        """The lines of the notes that begin with these words, as words, in order."""
        path = self.folder / "notes"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line.split() for line in lines if line.split()[: len(first)] == list(first)]

    def logs(self):
        return "\n".join(f"== {path.name}\n{path.read_text()[-4000:]}" for path in sorted(self.folder.glob("*.log")))

    async def until(self, check, what, seconds=40):
        """Wait until `check`, a function or a coroutine function, returns something true; that value."""
        deadline = time.monotonic() + seconds
        while True:
            value = check()
            if asyncio.iscoroutine(value):
                value = await value
            if value:
                return value
            if time.monotonic() > deadline:
                pytest.fail(f"never came true: {what}\n{self.logs()}")
            await asyncio.sleep(0.02)
