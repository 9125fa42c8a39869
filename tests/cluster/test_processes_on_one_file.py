"""Several processes on one SQLite file: one leads, all work, and any of them may die at any moment."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from duly import Scheduler, State
from duly.model import OutcomeKind

APP = Path(__file__).with_name("app.py")


class Cluster:
    """Nodes as real processes, and a client that looks on."""

    def __init__(self, folder):
        self.folder = folder
        self.url = f"sqlite:///{folder}/duly.db"
        self.client = Scheduler(self.url)
        self.nodes = {}

    def start(self, name):
        environment = os.environ | {
            "CLUSTER_FOLDER": str(self.folder),
            "CLUSTER_NODE": name,
            "CLUSTER_URL": self.url,
        }
        with (self.folder / f"{name}.log").open("ab") as log:
            self.nodes[name] = subprocess.Popen([sys.executable, str(APP)], env=environment, stderr=log)

    def signal(self, name, number):
        self.nodes[name].send_signal(number)

    def kill(self, name):
        self.signal(name, signal.SIGKILL)
        self.nodes.pop(name).wait()

    def stop(self, name):
        self.signal(name, signal.SIGTERM)
        return self.nodes.pop(name).wait(30)

    def close(self):
        for process in self.nodes.values():
            process.kill()
            process.wait()

    def notes(self, *first):
        path = self.folder / "notes"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line.split() for line in lines if line.split()[: len(first)] == list(first)]

    def let_go(self, name):
        (self.folder / f"go-{name}").touch()

    def logs(self):
        return "\n".join(f"== {path.name}\n{path.read_text()}" for path in sorted(self.folder.glob("*.log")))

    async def until(self, check, what, seconds=40):
        deadline = time.monotonic() + seconds
        while True:
            value = check()
            if asyncio.iscoroutine(value):
                value = await value
            if value:
                return value
            if time.monotonic() > deadline:
                pytest.fail(f"never came true: {what}\n{self.logs()}")
            await asyncio.sleep(0.01)

    async def leader(self):
        health = await self.client.health()
        return health.leader

    async def up(self, *names):
        for name in names:
            self.start(name)
        await self.until(self._all_announced(names), f"{names} are up")

    def _all_announced(self, names):
        async def check():
            return set(names) <= {node.id for node in await self.client.nodes()}

        return check


@pytest.fixture
async def cluster(tmp_path):
    cluster = Cluster(tmp_path)
    async with cluster.client.client():
        yield cluster
        cluster.close()


def beats_are_complete(cluster, first, last):
    """Every instant from first to last was run exactly once."""
    within = [beat for beat in sorted(_beats(cluster)) if first <= beat <= last]
    assert within == list(range(first, last + 1)), cluster.logs()


async def test_every_instant_is_run_once_by_one_of_three(cluster):
    await cluster.up("a", "b", "c")
    start = await cluster.until(lambda: len(cluster.notes("beat")) > 3, "it beats") and time.time()
    await cluster.until(lambda: len(cluster.notes("beat")) > 30, "it goes on beating")
    end = time.time()
    codes = [cluster.stop(name) for name in ("a", "b", "c")]
    assert codes == [0, 0, 0]
    beats_are_complete(cluster, round(start * 5), round(end * 5) - 2)


async def test_a_killed_leader_is_replaced_and_nothing_is_missed_or_doubled(cluster):
    await cluster.up("a", "b")
    leader = await cluster.until(cluster.leader, "somebody leads")
    await cluster.until(lambda: len(cluster.notes("beat")) > 5, "it beats")
    first = round(time.time() * 5)
    cluster.kill(leader)
    killed_at = len(cluster.notes("beat"))
    other = next(iter(cluster.nodes))
    assert await cluster.until(lambda: _is_leader(cluster, other), "the other leads") is True
    await cluster.until(lambda: len(cluster.notes("beat")) > killed_at + 20, "it goes on beating")
    end = round(time.time() * 5) - 3
    # What the killed node had claimed runs again once its lease has lapsed; nothing else may be missing or double.
    await cluster.until(lambda: set(range(first, end)) <= set(_beats(cluster)), "every instant has run")
    again = [beat for beat in range(first, end) if _beats(cluster).count(beat) > 1]
    assert len(again) <= 4


def _beats(cluster):
    return [round(float(at) * 5) for _, at, _ in cluster.notes("beat")]


async def _is_leader(cluster, name):
    return await cluster.leader() == name


async def test_a_killed_workers_run_starts_again_elsewhere_without_using_up_a_retry(cluster):
    await cluster.up("a", "b")
    run = await cluster.client.submit("slow", {"name": "x"})
    [[_, _, first, _, _]] = await cluster.until(lambda: cluster.notes("begin", "x"), "it has begun")
    cluster.kill(first)
    await cluster.until(lambda: len(cluster.notes("begin", "x")) == 2, "it has begun again")
    cluster.let_go("x")
    result = await run.result(timeout=40)
    assert result != first
    stored = await run.get()
    assert (stored.state, stored.failures, stored.losses) == (State.COMPLETED, 0, 1)
    attempts = await cluster.client.attempts(run.id)
    assert [(attempt.node, attempt.outcome) for attempt in attempts] == [
        (first, OutcomeKind.LOST),
        (result, OutcomeKind.SUCCEEDED),
    ]
    fences = [int(words[4]) for words in cluster.notes("begin", "x")]
    assert fences == sorted(set(fences))


async def test_a_stopped_process_that_comes_back_can_settle_nothing(cluster):
    await cluster.up("a", "b")
    run = await cluster.client.submit("slow", {"name": "x"})
    [[_, _, first, _, _]] = await cluster.until(lambda: cluster.notes("begin", "x"), "it has begun")
    cluster.signal(first, signal.SIGSTOP)
    await cluster.until(lambda: len(cluster.notes("begin", "x")) == 2, "it has begun again elsewhere")
    cluster.let_go("x")
    result = await run.result(timeout=40)
    settled = await run.get()
    cluster.signal(first, signal.SIGCONT)
    await cluster.until(lambda: any(words[2] == first for words in cluster.notes("end", "x")), "the late one ended")
    assert cluster.stop(first) == 0
    assert result != first
    assert await run.get() == settled
    assert len(await cluster.client.attempts(run.id)) == 2


async def test_at_most_once_is_lost_with_its_worker(cluster):
    await cluster.up("a", "b")
    run = await cluster.client.submit("once", {"name": "x"})
    [[_, _, first, _, _]] = await cluster.until(lambda: cluster.notes("begin", "x"), "it has begun")
    cluster.kill(first)
    await cluster.until(lambda: _in_state(run, State.LOST), "it is lost")
    cluster.let_go("x")
    assert len(cluster.notes("begin", "x")) == 1


async def _in_state(run, state):
    return (await run.get()).state is state


async def test_a_graceful_stop_hands_leadership_over_at_once(cluster):
    await cluster.up("a", "b")
    leader = await cluster.until(cluster.leader, "somebody leads")
    other = "b" if leader == "a" else "a"
    assert cluster.stop(leader) == 0
    assert await cluster.until(lambda: _is_leader(cluster, other), "the other leads")
    log = (cluster.folder / f"{leader}.log").read_text()
    assert "resigned from main" in log
    assert "lost main" not in cluster.logs()


async def test_effects_and_completions_are_the_same_number_through_kills(cluster):
    names = [f"n{number}" for number in range(3)]
    await cluster.up(*names)
    runs = await cluster.client.submit_many("pay", [{"number": number} for number in range(200)])
    for number in range(4):
        await cluster.until(lambda number=number: _paid(cluster) > 20 * (number + 1), "payments are made")
        victim = names[number % 3]
        cluster.kill(victim)
        await cluster.up(victim)
    for run in runs:
        await run.result(timeout=60)
    with sqlite3.connect(cluster.folder / "duly.db") as connection:
        payments = connection.execute("SELECT number, fence FROM payments ORDER BY number").fetchall()
    connection.close()
    assert [number for number, _ in payments] == list(range(200))
    fences = {run.id: (await run.get()).fence for run in runs}
    assert sorted(fence for _, fence in payments) == sorted(fences.values())


def _paid(cluster):
    connection = sqlite3.connect(cluster.folder / "duly.db")
    try:
        return connection.execute("SELECT count(*) FROM payments").fetchone()[0]
    except sqlite3.OperationalError:
        return 0
    finally:
        connection.close()
