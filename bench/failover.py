"""How soon a killed leader is replaced, with etcd as coordinator: `python bench/failover.py [--ttl 3] [--rounds 5]`.

Nodes are processes on PostgreSQL and a cluster of three members of etcd, all on this machine. Each round the leader is
ended by kill -9; the time runs from that moment until the store says that another one has installed its epoch, which is
when it may plan.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import time

from duly import Scheduler, SchedulerConfig
from duly.model.event import LeaderElected
from duly.testing.postgres_servers import postgres_server
from duly.testing.servers import etcd_cluster, url_of

NODES = 3


def node(ttl: float) -> None:
    """One node, which says when it leads."""
    scheduler = Scheduler(config=SchedulerConfig(leader_ttl=ttl))

    def say(_: LeaderElected) -> None:
        print(time.time(), flush=True)

    scheduler.subscribe(say, LeaderElected)
    scheduler.run_forever(log_level="ERROR")


class Crew:
    """Nodes, and the lines on which they say that they lead."""

    def __init__(self, ttl: float, environment: dict[str, str]) -> None:
        self._command = [sys.executable, __file__, "--node", "--ttl", str(ttl)]
        self._environment = environment
        self._elected: asyncio.Queue[tuple[asyncio.subprocess.Process, float]] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self.processes: list[asyncio.subprocess.Process] = []

    async def add(self) -> None:
        process = await asyncio.create_subprocess_exec(
            *self._command, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.processes.append(process)
        self._tasks.add(asyncio.create_task(self._listen(process)))

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            self._elected.put_nowait((process, float(line)))

    async def elected(self) -> tuple[asyncio.subprocess.Process, float]:
        async with asyncio.timeout(60):
            return await self._elected.get()

    async def close(self) -> None:
        for process in self.processes:
            if process.returncode is None:
                process.kill()
            await process.wait()
        for task in self._tasks:
            await task


async def measure(ttl: float, rounds: int, environment: dict[str, str]) -> list[float]:
    crew = Crew(ttl, environment)
    seconds = []
    try:
        for _ in range(NODES):
            await crew.add()
        leader, _ = await crew.elected()
        for number in range(rounds):
            await asyncio.sleep(ttl * (1 + (number + 1) / rounds))  # at any moment between two renewals
            killed = time.time()
            os.kill(leader.pid, signal.SIGKILL)
            leader, at = await crew.elected()
            seconds.append(at - killed)
            await crew.add()
    finally:
        await crew.close()
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ttl", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--node", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.node:
        node(given.ttl)
        return
    with postgres_server() as store, etcd_cluster(3) as members:
        environment = os.environ | {"DULY_STORE": store.url, "DULY_COORDINATOR": url_of(members)}
        seconds = asyncio.run(measure(given.ttl, given.rounds, environment))
    figures = {"median_s": statistics.median(seconds), "worst_s": max(seconds), "best_s": min(seconds)}
    print(json.dumps({"ttl_s": given.ttl, "rounds": given.rounds} | {k: round(v, 2) for k, v in figures.items()}))


if __name__ == "__main__":
    main()
