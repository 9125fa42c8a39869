"""The nodes of the demo, which are processes of their own: started, killed and stopped."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Self

import msgspec

from duly.cli.demo.node import FIRST
from duly.scheduler import ShutdownReport

_PATIENCE = 15.0


class DemoNodes:
    """Processes by the id of their node. None of them outlives the demo."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill_all()
        for process in self._processes.values():
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()

    def start(self, node_id: str) -> None:
        """Start a node. The first one runs what only one node may add."""
        words = [] if self._processes else [FIRST]
        self._processes[node_id] = subprocess.Popen(  # noqa: S603  # our own module
            [sys.executable, "-m", "duly.cli.demo.node", self._url, node_id, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the demo, which stops them in order
        )

    def kill(self, node_id: str) -> None:
        """Kill a node as `kill -9` does."""
        self._processes[node_id].kill()

    def living(self) -> list[str]:
        """The nodes whose processes run."""
        return [name for name, process in self._processes.items() if process.poll() is None]

    def kill_all(self) -> None:
        """Kill all nodes."""
        for process in self._processes.values():
            process.kill()

    async def stop(self) -> ShutdownReport:
        """Let all nodes finish what they run; return what became of their runs."""
        living = self.living()
        parts = await asyncio.gather(*(asyncio.to_thread(_stopped, self._processes[name]) for name in living))
        return _sum([part for part in parts if part is not None])


def _stopped(process: subprocess.Popen[bytes]) -> ShutdownReport | None:
    """Close its input and wait for the report of a node; None if there is none, because it was killed."""
    with suppress(subprocess.TimeoutExpired, ValueError, msgspec.DecodeError):
        written, _ = process.communicate(timeout=_PATIENCE)
        return msgspec.json.decode(written, type=ShutdownReport)
    return None


def _sum(reports: Sequence[ShutdownReport]) -> ShutdownReport:
    fields = ShutdownReport.__struct_fields__
    return ShutdownReport(**{name: sum(getattr(report, name) for report in reports) for name in fields})
