"""One trial: a node under load, with handlers that do not mind being told to stop, is told to stop."""

import asyncio
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from duly import Scheduler
from duly.model import OutcomeKind, State
from tests.stopping import node

STUBBORN = ("stubborn", "endless", "polite", "patient", "hooked", "endless_process", "command")
ONCE = ("patient_once", "endless_once")


class Stopped(Struct):
    """How a node stopped: its exit code, the seconds it took, and how its store looks afterwards."""

    code: int | None
    seconds: float
    running: list[str]
    crashed: list[str]
    outcomes: dict[str, str]


class Trial:
    """Starts a node on a store, gives it work, and stops it."""

    def __init__(self, url: str, folder: Path, shutdown_timeout: float, lock_ttl: float = 5.0) -> None:
        self.url = url
        self.folder = folder
        self.shutdown_timeout = shutdown_timeout
        self._lock_ttl = lock_ttl
        self.client = Scheduler(url, node.make(url, None, 1.0, 5.0).config)
        self.node: subprocess.Popen[bytes] | None = None
        self.runs: dict[str, str] = {}

    async def start(self, name: str = "node") -> None:
        self.spawn(name)
        await self.until(self.client.nodes, "the node is up")

    def spawn(self, name: str = "node") -> None:
        words = [sys.executable, "-m", "tests.stopping.node", self.url, name, str(self.folder)]
        with (self.folder.parent / f"{name}.log").open("ab") as log:
            times = [str(self.shutdown_timeout), str(self._lock_ttl)]
            self.node = subprocess.Popen([*words, *times], stdout=log, stderr=log)

    async def occupy(self, *handlers: str) -> None:
        """Let these handlers begin."""
        for handler in handlers:
            handle = await self.client.submit(handler, {"folder": str(self.folder)})
            self.runs[handle.id] = handler

        async def begun() -> bool:
            return len({path.name.partition("-")[0] for path in self.folder.iterdir()}) >= len(self.runs)

        await self.until(begun, "they have begun")

    async def load(self, number: int) -> None:
        """Submit work that ends by itself, so that claims and settlements are under way."""
        await self.client.submit_many("quick", [{"folder": ""}] * number)

    async def stop(self, *, twice: bool = False) -> Stopped:
        assert self.node is not None
        told = time.monotonic()
        self.node.send_signal(signal.SIGTERM)
        if twice:
            self.node.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self.node.wait, min(self.shutdown_timeout, 10) + 60)
        seconds = time.monotonic() - told
        return Stopped(self.node.returncode, seconds, *await self._left())

    async def _left(self) -> tuple[list[str], list[str], dict[str, str]]:
        running = [f"{run.job} {run.id}" for run in (await self.client.runs(state=State.RUNNING, limit=1000)).runs]
        crashed, outcomes = [], {}
        for run_id, handler in self.runs.items():
            run = await self.client.get_run(run_id)
            attempts = [attempt.outcome for attempt in await self.client.attempts(run_id)]
            if run.losses or OutcomeKind.LOST in attempts:
                crashed.append(f"{handler} {run_id}")
            outcomes[handler] = f"{run.state} {' '.join(attempts)}"
        return running, crashed, outcomes

    def forget(self) -> None:
        """Begin afresh."""
        self.runs.clear()
        for path in self.folder.iterdir():
            path.unlink()

    def close(self) -> None:
        if self.node is not None and self.node.poll() is None:
            self.node.kill()
            self.node.wait()

    async def until(self, check, what: str, seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not await check():
            assert time.monotonic() < deadline, f"it never came true: {what}"
            assert self.node is None or self.node.poll() is None, "the node has ended"
            await asyncio.sleep(0.005)
