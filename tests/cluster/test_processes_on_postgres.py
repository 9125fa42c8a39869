"""Several processes on one database: what a run writes and its completion are one, whoever dies or sleeps meanwhile."""

import asyncio
import signal
from collections import Counter
from itertools import cycle

import asyncpg
import pytest
from tests.cluster.processes import Cluster
from tests.postgres_stores import emptied

RUNS = 2_000
# Effects that were committed under the very fence under which a run was completed.
_BY_THEIR_COMPLETION = """
SELECT count(*) FROM charges INNER JOIN duly.ended ON ended.fence = charges.fence WHERE ended.state = 'completed'
"""


@pytest.fixture
async def ledger(postgres_url):
    """A connection to the database, in which there is a table of the user's."""
    connection = await asyncpg.connect(postgres_url)
    await connection.execute("DROP TABLE IF EXISTS charges; CREATE TABLE charges (number INTEGER, fence BIGINT)")
    yield connection
    await connection.execute("DROP TABLE charges")
    await connection.close()


@pytest.fixture
async def postgres_cluster(tmp_path, postgres_url):
    cluster = Cluster(tmp_path, emptied(postgres_url))
    async with cluster.client.client():
        yield cluster
        cluster.close()


async def test_effects_are_as_many_as_completed_runs_though_workers_are_killed_and_stopped(postgres_cluster, ledger):
    cluster = postgres_cluster
    names = (f"n{number}" for number in range(100))
    await cluster.up(next(names), next(names), next(names))
    await cluster.client.submit_many("charge", [{"number": number} for number in range(RUNS)])

    async def all_completed():
        return (await cluster.client.get_job("charge")).run_count >= RUNS

    asleep = []
    for worse in cycle((signal.SIGKILL, signal.SIGSTOP, signal.SIGSTOP)):
        before = await ledger.fetchval("SELECT count(*) FROM charges")
        if before >= RUNS * 0.9 or len(asleep) == 4:
            break
        victim = next(name for name in cluster.nodes if name not in asleep)
        if worse is signal.SIGKILL:
            cluster.kill(victim)
        else:
            cluster.signal(victim, signal.SIGSTOP)
            asleep.append(victim)
        cluster.start(next(names))
        enough = min(RUNS * 0.9, before + RUNS / 10)
        await cluster.until(lambda: _at_least(ledger, enough), "work goes on")  # noqa: B023  # awaited at once
    for name in asleep:  # they wake up in the middle of what they had begun, and offer it
        cluster.signal(name, signal.SIGCONT)
    await cluster.until(all_completed, "every run is completed", 90)
    for name in list(cluster.nodes):
        cluster.stop(name)
    charged = Counter(row["number"] for row in await ledger.fetch("SELECT number FROM charges"))
    assert charged == Counter(range(RUNS))
    assert (await cluster.client.get_job("charge")).run_count == RUNS
    assert await ledger.fetchval(_BY_THEIR_COMPLETION) == RUNS
    began = Counter(words[1] for words in cluster.notes("charge"))
    assert max(began.values()) > 1, "nobody was disturbed"


async def _at_least(ledger, number):
    return await ledger.fetchval("SELECT count(*) FROM charges") >= number


async def test_a_submission_in_the_users_transaction_is_there_only_if_that_commits(postgres_cluster, ledger):
    cluster = postgres_cluster
    await cluster.up("a")
    with pytest.raises(ZeroDivisionError):
        async with ledger.transaction():
            await cluster.client.within(ledger).submit("count", {"number": 1})
            raise ZeroDivisionError
    async with ledger.transaction():
        await ledger.execute("INSERT INTO charges VALUES (7, 0)")
        await cluster.client.within(ledger).submit("count", {"number": 2})
        await asyncio.sleep(0)
        assert cluster.notes("count") == []
    await cluster.until(lambda: cluster.notes("count", "2"), "it has run")
    assert cluster.notes("count") == [["count", "2"]]
