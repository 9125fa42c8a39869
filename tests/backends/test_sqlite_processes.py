"""Several processes on one file: opening, claiming, waking each other, dying, forking. Real processes, real signals.

This file is also the program that those processes run: `python test_sqlite_processes.py ROLE FOLDER`. They answer one
line of JSON at a time and wait for a line before they begin, so that nothing depends on how fast they are.
"""

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from duly.backends.sqlite import SqliteBackend, open_url
from duly.backends.sqlite.session import steps
from duly.errors import BackendError
from duly.model import RunQuery, State
from duly.ports import Opening
from duly.testing.conformance import World

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="uses signals and forks")


def _backend(folder) -> SqliteBackend:
    return open_url(f"sqlite:///{folder}/jobs.db", Opening())


# --- what the processes do


def _say(value) -> None:
    print(json.dumps(value), flush=True)  # noqa: T201 - this is how they answer


async def _listen() -> str:
    return await asyncio.to_thread(sys.stdin.readline)


async def _open(folder) -> None:
    """Open a file that others open at the same moment."""
    _say("ready")
    await _listen()
    async with _backend(folder) as backend:
        world = World(backend, seed=os.getpid())
        await world.put(world.run())
    _say("done")


async def _put(folder) -> None:
    """Put runs until killed, telling which were acknowledged."""
    async with _backend(folder) as backend:
        world = World(backend, seed=os.getpid())
        while True:
            runs = [world.run(payload=b"x" * 500) for _ in range(50)]
            await world.put(*runs)
            _say([run.id for run in runs])


async def _work(folder) -> None:
    """Claim and settle until killed, telling what was acknowledged."""
    async with _backend(folder) as backend:
        world = World(backend, seed=os.getpid())
        while True:
            claims = await world.claim(20, node=f"node-{os.getpid()}")
            await backend.queue.settle([world.settlement(claim) for claim in claims])
            _say([claim.run.id for claim in claims])


async def _claim(folder) -> None:
    """Claim until there is nothing left."""
    async with _backend(folder) as backend:
        world = World(backend, seed=os.getpid())
        _say("ready")
        await _listen()
        claimed = []
        while claims := await world.claim(7, node=f"node-{os.getpid()}"):
            claimed += [(claim.run.id, claim.fence) for claim in claims]
            settlements = [world.settlement(claim) for claim in claims]
            assert all(await backend.queue.settle(settlements))
        _say(claimed)


async def _wait(folder) -> None:
    """Wait for work, then for the end of a run, from another process."""
    async with _backend(folder) as backend:
        await backend.queue.wait("n", None, 0)
        _say("waiting")
        while True:
            await backend.queue.wait("n", None, 3600)
            if (await backend.store.counts()).states[State.QUEUED]:
                break
        [run] = (await backend.store.runs(RunQuery(), 10)).runs
        _say("woke")
        [ended] = await backend.store.finished([run.id], 3600)
        _say(ended.state)


# --- the tests


class Process:
    """A process in one of these roles."""

    def __init__(self, role: str, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, role, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )

    def hear(self):
        line = self._process.stdout.readline()
        assert line, "the process has died"
        return json.loads(line)

    def go(self) -> None:
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def kill(self) -> list:
        """Kill it at once; what it had said before."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        return [json.loads(line) for line in self._process.stdout if line.endswith("\n")]

    def __enter__(self):
        return self

    def __exit__(self, *exc) -> None:
        self._process.stdin.close()
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()


@pytest.fixture
def processes(tmp_path):
    with contextlib.ExitStack() as stack:
        yield lambda role, number=1: [stack.enter_context(Process(role, tmp_path)) for _ in range(number)]


def test_many_may_open_a_new_file_at_once(processes, tmp_path):
    opening = processes("open", 4)
    assert [process.hear() for process in opening] == ["ready"] * 4
    for process in opening:
        process.go()
    assert [process.hear() for process in opening] == ["done"] * 4
    with sqlite3.connect(tmp_path / "jobs.db") as connection:
        assert connection.execute("SELECT version FROM duly_schema").fetchall() == [(step.version,) for step in steps()]
        assert connection.execute("SELECT count(*) FROM duly_runs").fetchall() == [(4,)]


@pytest.mark.parametrize("moments", [3, 20])
def test_nothing_acknowledged_is_lost_when_a_producer_is_killed(processes, tmp_path, moments):
    [producer] = processes("put")
    acknowledged = [producer.hear() for _ in range(moments)]
    acknowledged += producer.kill()
    stored = asyncio.run(_all_ids(tmp_path))
    assert {run_id for batch in acknowledged for run_id in batch} <= stored
    assert len(stored) % 50 == 0, "a batch is put whole or not at all"


def test_nothing_acknowledged_is_lost_when_a_worker_is_killed(processes, tmp_path):
    ids = asyncio.run(_fill(tmp_path, 20_000))
    [worker] = processes("work")
    settled = [worker.hear() for _ in range(10)]
    settled += worker.kill()
    asyncio.run(_check_after_a_death(tmp_path, ids, {run_id for batch in settled for run_id in batch}))


async def _check_after_a_death(folder: Path, ids: set[str], settled: set[str]) -> None:
    """Settled means completed; the others wait or run, the dead one's lock is gone, and its claims expire."""
    async with _backend(folder) as backend:
        counts = (await backend.store.counts()).states
        assert counts[State.COMPLETED] >= len(settled)
        assert counts[State.COMPLETED] + counts[State.RUNNING] + counts[State.QUEUED] == len(ids)
        for run_id in list(settled)[:100]:
            run = await backend.store.run(run_id)
            assert run is not None
            assert run.state is State.COMPLETED
        world = World(backend, seed=1)
        world.advance(100)
        taken = await backend.queue.reap(1000, 15, now=world.now)
        assert len(taken) == counts[State.RUNNING]
        assert len(await world.claim(5)) == 5
        assert [finding.message for finding in await backend.examine() if finding.subject == "integrity"] == [
            "quick_check found nothing"
        ]


@pytest.mark.parametrize("number", [2, 4])
def test_claimants_share_the_runs_and_no_fence_comes_twice(processes, tmp_path, number):
    ids = asyncio.run(_fill(tmp_path, 400))
    claimants = processes("claim", number)
    for claimant in claimants:
        assert claimant.hear() == "ready"
    for claimant in claimants:
        claimant.go()
    lent = [claimant.hear() for claimant in claimants]
    everything = [claim for each in lent for claim in each]
    assert {run_id for run_id, _ in everything} == ids
    assert len(everything) == len(ids)
    assert len({fence for _, fence in everything}) == len(ids)
    for each in lent:
        assert [fence for _, fence in each] == sorted(fence for _, fence in each)


def test_another_process_is_woken_for_work_and_for_an_end(processes, tmp_path):
    async def scenario() -> None:
        async with _backend(tmp_path) as backend:
            world = World(backend)
            [waiter] = processes("wait")
            assert await asyncio.to_thread(waiter.hear) == "waiting"
            await world.put(world.run())
            assert await asyncio.to_thread(waiter.hear) == "woke"
            [claim] = await world.claim()
            await world.settle(claim)
            assert await asyncio.to_thread(waiter.hear) == "completed"

    asyncio.run(scenario())


async def _fill(folder: Path, number: int) -> set[str]:
    async with _backend(folder) as backend:
        world = World(backend)
        runs = [world.run() for _ in range(number)]
        await world.put(*runs)
        return {run.id for run in runs}


async def _all_ids(folder: Path) -> set[str]:
    async with _backend(folder) as backend:
        return {run.id for run in (await backend.store.runs(RunQuery(), 1_000_000)).runs}


# --- forks


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_after_a_fork_the_child_must_open_anew(tmp_path):
    with asyncio.Runner() as runner:
        backend = _backend(tmp_path)
        runner.run(backend.open())
        world = World(backend)
        runner.run(world.put(world.run()))
        child = os.fork()
        if child == 0:
            os._exit(_in_the_child(backend, tmp_path))
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        world.advance(60)
        assert len(runner.run(world.claim())) == 2
        runner.run(backend.close())


def _in_the_child(backend: SqliteBackend, folder: Path) -> int:
    """The number of the first thing that went wrong."""

    async def scenario() -> int:
        for wrong, call in enumerate((_put_one, _look, _watch), start=1):
            try:
                await call(backend)
            except BackendError as refusal:
                if "forked" not in str(refusal):
                    return 10 + wrong
            else:
                return wrong
        await backend.close()
        async with _backend(folder) as fresh:
            await _put_one(fresh)
        await backend.open()
        await _look(backend)
        await backend.close()
        return 0

    return asyncio.run(scenario())


async def _put_one(backend: SqliteBackend) -> None:
    world = World(backend, seed=os.getpid())
    await world.put(world.run())


async def _look(backend: SqliteBackend) -> None:
    await backend.store.jobs()


async def _watch(backend: SqliteBackend) -> None:
    await backend.queue.wait("n", None, 0)


if __name__ == "__main__":
    roles = {"open": _open, "put": _put, "work": _work, "claim": _claim, "wait": _wait}
    asyncio.run(roles[sys.argv[1]](sys.argv[2]))
