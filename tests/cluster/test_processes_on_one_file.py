"""Several processes on one SQLite file: effects in the same file are counted with the runs that made them."""

import sqlite3

import pytest
from tests.cluster.processes import Cluster


@pytest.fixture
async def cluster(tmp_path):
    cluster = Cluster(tmp_path, f"sqlite:///{tmp_path}/duly.db")
    async with cluster.client.client():
        yield cluster
        cluster.close()


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
