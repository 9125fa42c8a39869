"""A node among hostile handlers is killed: another takes over all that was innocent, and nothing is left running."""

import subprocess
import sys

import pytest

from duly import Scheduler
from duly.model import State
from tests.conftest import eventually
from tests.hostile.handlers import EVERY


@pytest.fixture
def start(tmp_path, shared_url):
    """Starts nodes, and ends them with the test."""
    nodes = []

    def start(name):
        with (tmp_path / f"{name}.log").open("wb") as log:
            words = [sys.executable, "-m", "tests.hostile.node", shared_url, name, str(tmp_path)]
            nodes.append(subprocess.Popen(words, stdout=log, stderr=log))
        return nodes[-1]

    yield start
    for node in nodes:
        node.kill()
        node.wait()


async def test_what_a_killed_node_had_is_taken_over(shared_url, start, tmp_path):
    client = Scheduler(shared_url)
    async with client.client():
        first = start("first")

        async def alive():
            return [node.id for node in await client.nodes()]

        await eventually(alive, "a node is up")
        innocent = [await client.submit("long", {"number": number}) for number in range(4)]
        hostile = [await client.submit(name) for name in EVERY for _ in range(2)]

        async def begun():
            return len(list(tmp_path.glob("began-*-first"))) == len(innocent)

        async def hostile_ended():
            return all([(await client.get_run(handle.id)).final for handle in hostile])

        await eventually(begun, "the innocent runs have begun")
        await eventually(hostile_ended, "the hostile ones have ended beside them", 60)
        first.kill()
        first.wait()
        second = start("second")
        (tmp_path / "go").touch()
        for handle in innocent:
            assert await handle.result(timeout=60) == "second"
            run = await client.get_run(handle.id)
            assert (run.state, run.losses) == (State.COMPLETED, 1)
        second.terminate()
        assert second.wait(30) == 0
        counts = (await client.counts()).states
        assert not counts[State.RUNNING]
        assert not counts[State.QUEUED]
