"""A handler that ends its process again and again fails; the runs that were beside it complete."""

import asyncio
import subprocess
import sys

import pytest

from duly import RunFailed, Scheduler
from duly.model import State

INNOCENT = 20
POLL = 0.05


@pytest.fixture
def start(tmp_path, shared_url):
    """Starts nodes, and ends them with the test."""
    nodes = []

    def start():
        name = f"life-{len(nodes)}"
        with (tmp_path / f"{name}.log").open("wb") as log:
            words = [sys.executable, "-m", "tests.hostile.poison_node", shared_url, name, str(tmp_path), str(INNOCENT)]
            nodes.append(subprocess.Popen(words, stdout=log, stderr=log))
        return nodes[-1]

    yield start
    for node in nodes:
        node.kill()
        node.wait()


async def keep_alive(start, lives):
    """What a service manager does."""
    while True:
        lives.append(start())
        while lives[-1].poll() is None:  # noqa: ASYNC110  # a process tells nobody that it has ended
            await asyncio.sleep(POLL)


async def test_only_the_poisonous_run_fails(shared_url, start, tmp_path):
    client, lives = Scheduler(shared_url), []
    async with client.client():
        innocent = [await client.submit("innocent") for _ in range(INNOCENT)]
        culprit = await client.submit("poison")
        supervising = asyncio.create_task(keep_alive(start, lives))
        try:
            for handle in innocent:
                await handle.result(timeout=120)
            with pytest.raises(RunFailed, match="WorkerVanished"):
                await culprit.result(timeout=120)
        finally:
            supervising.cancel()
        run = await client.get_run(culprit.id)
        assert (run.state, run.losses) == (State.FAILED, 3)
        assert run.reason == "its worker vanished 3 times, the last time with no other run on it"
        told = await client.explain(culprit.id)
        assert (told.reasons[-1], told.setting) == (f"It failed for good: {run.reason}.", "max_losses")
        ended = [await client.get_run(handle.id) for handle in innocent]
        assert {each.state for each in ended} == {State.COMPLETED}
        assert max(each.losses for each in ended) <= 2
        beside = [int(path.read_text()) for path in sorted(tmp_path.glob("killed-*"))]
        assert beside[0] == INNOCENT
        assert beside[-1] == 0
        lives[-1].terminate()
        assert lives[-1].wait(30) == 0
