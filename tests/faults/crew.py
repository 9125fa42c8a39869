"""The nodes of one trial: processes on a namespace of their own, and what their handlers wrote down."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path

from tests.faults import node


class Crew:
    """Ends with its nodes."""

    def __init__(self, url: str, namespace: str, folder: Path, client_off: float = 0.0) -> None:
        self.folder = folder / namespace
        self.folder.mkdir()
        self._words = (url, namespace)
        self._log = folder / f"{namespace}.log"
        self._nodes: list[subprocess.Popen[bytes]] = []
        self.client = node.make(url, namespace, None, self.folder, client_off)

    def start(self, name: str, off: float = 0.0, roles: str = "scheduler,worker") -> None:
        words = [sys.executable, "-m", "tests.faults.node", *self._words, name, str(self.folder), str(off), roles]
        with self._log.open("ab") as log:
            self._nodes.append(subprocess.Popen(words, stdout=log, stderr=log))

    async def until(self, check, what: str, seconds: float = 120.0) -> None:
        deadline = time.monotonic() + seconds
        while not await check():
            assert time.monotonic() < deadline, f"it never came true: {what}"
            await asyncio.sleep(0.05)

    async def alive(self, number: int) -> None:
        async def all_alive() -> bool:
            return len(await self.client.nodes()) >= number

        await self.until(all_alive, f"{number} nodes are alive")

    def begun(self, job: str) -> dict[str, list[tuple[float, float]]]:
        """Of each run that began, for each time it did: when it was due, and when it began."""
        found: dict[str, list[tuple[float, float]]] = {}
        for path in self.folder.iterdir():
            if path.name.partition("-")[0] == job and (text := path.read_text()):
                due, at = map(float, text.split())
                found.setdefault(path.name.rpartition("-")[0], []).append((due, at))
        return found

    def repeats(self, job: str) -> int:
        """How many attempts began beyond the first of each run."""
        return sum(len(times) - 1 for times in self.begun(job).values())

    def close(self) -> None:
        for process in self._nodes:
            process.kill()
        for process in self._nodes:
            process.wait()
