"""Supervised nodes on a store, whose processes a trial kills, and what their handlers noted."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

from duly import Scheduler
from duly.model import State
from tests.crashing import app

ROOT = Path(__file__).parents[2]


class Begun:
    """One attempt at a run, as its handler noted it."""

    def __init__(self, line: str) -> None:
        self.run_id, fence, pid, at = line.split()
        self.fence, self.pid, self.at = int(fence), int(pid), float(at)


class Trial:
    """Starts `duly run --supervise` as nodes with names, and kills their processes."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.client = Scheduler(url, app.scheduler.config)
        self.supervisors: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *options: str, program: str = "tests.crashing.app", how: str = "--supervise") -> None:
        words = [sys.executable, "-m", "duly", "run", program, how, "--node-id", name, "--url", self.url, *options]
        environment = {**os.environ, "CRASH_FOLDER": str(self.folder), "PYTHONPATH": str(ROOT)}
        with (self.folder / f"{name}.log").open("ab") as log:
            self.supervisors[name] = subprocess.Popen(
                words, cwd=self.folder, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    async def process(self, name: str, other_than: int = 0) -> int:
        """The pid of the process of a node, once it works."""
        found: list[int] = []

        async def works() -> bool:
            found[:] = [node.pid for node in await self.client.nodes() if node.id == name and node.pid != other_than]
            return bool(found)

        await self.until(works, f"node {name} works")
        return found[0]

    def begun(self) -> dict[str, list[Begun]]:
        """The attempts at each run, in the order of their beginning."""
        found: dict[str, list[Begun]] = defaultdict(list)
        path = self.folder / "begun"
        text = path.read_text() if path.exists() else ""
        for line in text.splitlines(keepends=True):
            if line.endswith("\n") and len(line.split()) == 4:  # else it is being written
                attempt = Begun(line)
                found[attempt.run_id].append(attempt)
        return found

    async def submit(self, handler: str, number: int = 1, **payload: object) -> list[str]:
        return [put.id for put in await self.client.submit_many(handler, [payload] * number)]

    async def all_begun(self, run_ids: list[str], times: int = 1) -> None:
        def check() -> bool:
            begun = self.begun()
            return all(len(begun.get(run_id, ())) >= times for run_id in run_ids)

        await self.until(check, f"{len(run_ids)} runs have begun {times} times")

    async def ended(self, run_ids: list[str], state: State = State.COMPLETED) -> None:
        async def check() -> bool:
            return all([(await self.client.get_run(run_id)).state is state for run_id in run_ids])

        await self.until(check, f"{len(run_ids)} runs are {state}")

    def kill(self, pid: int, number: int = signal.SIGKILL) -> float:
        at = time.time()
        os.kill(pid, number)
        return at

    async def until(self, check, what: str, seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while True:
            found = check()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                return
            logs = "".join(f"\n== {name}\n{self.log(name)[-3000:]}" for name in self.supervisors)
            assert time.monotonic() < deadline, f"it never came true: {what}{logs}"
            await asyncio.sleep(0.01)

    async def stop(self, name: str) -> int:
        supervisor = self.supervisors.pop(name)
        supervisor.send_signal(signal.SIGTERM)
        return await asyncio.to_thread(supervisor.wait, 60)

    def close(self) -> None:
        """End the supervisors; their processes end with them."""
        for supervisor in self.supervisors.values():
            supervisor.kill()
            supervisor.wait()
