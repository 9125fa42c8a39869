"""One trial of failovers: load on a group of servers, faults of its master, and a count of what came of it.

What began is read from the file that handlers append to, not from Duly.
"""

import asyncio
import itertools
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from msgspec import Struct

from duly import BackendUnavailable, Scheduler
from duly.model import State
from duly.ports import Store
from duly.scheduler.losses import losses_of
from tests.faults import failover_node
from tests.faults.redis_groups import Group

FAULTS = ("kill", "cut off and kill", "pause", "orderly")
BATCH = 10
PERIOD = 0.05
PAUSED = 4.0
UNFINISHED = [State.PENDING, State.QUEUED, State.RUNNING]


class Result(Struct):
    """What a trial has counted.

    Of `forgotten` runs that were acknowledged the store has no record; `vanished` ones did not begin either.
    `reported` is how many lost runs the store's own record of losses names. `pauses` are the seconds from each fault to
    the start of a run that was submitted after it.
    """

    faults: int = 0
    acknowledged: int = 0
    forgotten: int = 0
    vanished: int = 0
    reported: int = 0
    losses: int = 0
    repeated: int = 0
    begun_twice: int = 0
    never_begun: int = 0
    pauses: tuple[float, ...] = ()

    def __str__(self) -> str:
        pauses = ", ".join(f"{pause:.1f}" for pause in self.pauses)
        return (
            f"{self.faults} failovers, {self.acknowledged} runs acknowledged, {self.forgotten} forgotten,"
            f" {self.vanished} of them never begun ({self.losses} losses noticed, up to {self.reported} runs reported),"
            f" {self.repeated} begun again,"
            f" at most once: {self.begun_twice} begun twice, {self.never_begun} never begun;"
            f" pauses of {pauses} s"
        )


class Trial:
    """Two nodes and a client on one group."""

    def __init__(self, group: Group, url: str, namespace: str, folder: Path, seed: int) -> None:
        self.group = group
        self.folder = folder
        self.client: Scheduler = failover_node.make(url, namespace, None, folder)
        self._words = (url, namespace)
        self._dice = random.Random(seed)
        self._nodes: list[subprocess.Popen[bytes]] = []
        self._numbers = itertools.count()
        self._submitted: dict[int, float] = {}  # when the call began, by the numbers that were acknowledged
        self._run_ids: dict[int, str] = {}
        self._once: set[int] = set()
        self._faults: list[float] = []

    async def run(self, faults: list[str]) -> Result:
        for name in ("one", "two"):
            self._start(name)
        try:
            async with self.client.client():
                await self._until(self._nodes_alive, "both nodes are alive")
                load = asyncio.create_task(self._load())
                try:
                    await asyncio.sleep(1.0)
                    for fault in faults:
                        await self._fault(fault)
                finally:
                    load.cancel()
                    await asyncio.wait([load])
                await self._until(self._all_ended, "all runs have ended")
                return await self._result()
        finally:
            for node in self._nodes:
                node.kill()
                node.wait()

    def _start(self, name: str) -> None:
        words = [sys.executable, "-m", "tests.faults.failover_node", *self._words, name, str(self.folder)]
        with (self.folder / f"{name}.log").open("ab") as log:
            self._nodes.append(subprocess.Popen(words, stdout=log, stderr=log))

    # --- load

    async def _load(self) -> None:
        while True:
            await self._submit("work", BATCH)
            await self._submit("once", 2)
            await asyncio.sleep(PERIOD)

    async def _submit(self, job: str, count: int) -> None:
        numbers = [next(self._numbers) for _ in range(count)]
        began = time.time()
        try:
            runs = await self.client.submit_many(job, [{"number": number} for number in numbers])
        except BackendUnavailable:
            return  # nobody was told that these are stored
        for number, run in zip(numbers, runs, strict=True):
            self._submitted[number], self._run_ids[number] = began, run.id
        if job == "once":
            self._once.update(numbers)

    # --- faults

    async def _fault(self, kind: str) -> None:
        """Let the master fail, bring it back, and wait until the group is whole and work goes on."""
        master = await asyncio.to_thread(self.group.master)
        self._faults.append(time.time())
        match kind:
            case "kill" | "cut off and kill":
                if kind != "kill":
                    await asyncio.to_thread(self.group.cut_off, master)
                    await asyncio.sleep(self._dice.uniform(0.1, 0.4))
                await asyncio.to_thread(master.kill)
                self._faults[-1] = time.time()  # what was submitted before it is dead may have begun
                await self._until(lambda: self._changed(master), f"another server has taken over after: {kind}")
                await asyncio.to_thread(master.start)
            case "pause":
                master.pause()
                await asyncio.sleep(PAUSED)
                master.resume()
            case _:
                await asyncio.to_thread(self.group.failover)
        await self._until(lambda: self._changed(master), f"another server has taken over after: {kind}")
        await asyncio.to_thread(self.group.until_whole)
        await self._until(self._works, "work goes on")
        await asyncio.sleep(self._dice.uniform(0.2, 1.0))

    async def _changed(self, before: object) -> bool:
        try:
            return await asyncio.to_thread(self.group.master) is not before
        except (LookupError, OSError):
            return False

    async def _works(self) -> bool:
        return self._pause_after(self._faults[-1]) is not None

    # --- what came of it

    def _starts(self) -> list[tuple[str, int, float]]:
        path = self.folder / failover_node.STARTS
        lines = path.read_text().splitlines() if path.exists() else []
        return [(job, int(number), float(at)) for job, number, _, _, at in map(str.split, lines)]

    def _pause_after(self, fault: float) -> float | None:
        """Seconds from a fault to the first start of a run that was submitted after it."""
        began = [at for _, number, at in self._starts() if self._submitted.get(number, 0.0) > fault]
        return min(began) - fault if began else None

    async def _result(self) -> Result:
        starts = self._starts()
        times = Counter(number for _, number, _ in starts)
        absent = {number for number in self._submitted if not times[number]}
        gone = await self._forgotten()
        losses = await losses_of(await self._store())
        return Result(
            faults=len(self._faults),
            acknowledged=len(self._submitted),
            forgotten=len(gone),
            vanished=len(gone & absent),
            reported=sum(loss.report.added for loss in losses),
            losses=len(losses),
            repeated=sum(times[number] - 1 for number in {n for job, n, _ in starts if job == "work"}),
            begun_twice=sum(times[number] > 1 for number in {n for job, n, _ in starts if job == "once"}),
            never_begun=len((absent & self._once) - gone),
            pauses=tuple(self._pause_after(fault) or 0.0 for fault in self._faults),
        )

    async def _forgotten(self) -> set[int]:
        """The acknowledged runs of which the store has no record."""
        store = await self._store()
        return {number for number, run_id in self._run_ids.items() if await store.run(run_id) is None}

    async def _store(self) -> Store:
        return (await self.client._client()).backend.store

    async def _nodes_alive(self) -> bool:
        return len(await self.client.nodes()) >= 2

    async def _all_ended(self) -> bool:
        page = await self.client.runs(state=UNFINISHED)
        return not page.runs

    async def _until(self, check, what: str, seconds: float = 90.0) -> None:
        deadline = time.monotonic() + seconds
        while True:
            try:
                if await check():
                    return
            except BackendUnavailable:
                pass
            assert time.monotonic() < deadline, f"it never came true: {what}"
            await asyncio.sleep(0.1)
