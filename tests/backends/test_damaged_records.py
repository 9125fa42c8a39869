"""One record that cannot be read is served as damaged; its neighbours are claimed, taken over, listed and planned."""

import sqlite3
from datetime import timedelta

import asyncpg
import pytest
import redis
from tests.conftest import eventually

from duly import Scheduler, SchedulerConfig
from duly.backends import open_backend
from duly.model import Failed, Failure, JobStatus, RunQuery, State, Verdict
from duly.ports import Opening, Severity
from duly.rules.planning import postpone
from duly.testing.conformance.world import LEASE, LOST, World, failed

GARBLED = '{"failures": "many'


class SqliteHand:
    """Writes into the tables of a store behind its back."""

    def __init__(self, url):
        self.path = url.removeprefix("sqlite:///")

    async def _run(self, *statement):
        with sqlite3.connect(self.path, timeout=30) as connection:
            connection.execute(*statement)
        connection.close()

    async def garble_run(self, run_id):
        await self._run("UPDATE duly_runs SET extra = ? WHERE id = ?", (GARBLED, run_id))

    async def garble_claim(self, run_id):
        statement = "UPDATE duly_claims SET progress = ? WHERE seq = (SELECT seq FROM duly_runs WHERE id = ?)"
        await self._run(statement, ('{"done":null,"total":null,"note":""}', run_id))  # what 0.1.0 made of NaN

    async def garble_end(self, run_id):
        statement = "UPDATE duly_ended SET failure = ? WHERE seq = (SELECT seq FROM duly_runs WHERE id = ?)"
        await self._run(statement, (GARBLED, run_id))

    async def garble_job(self, name):
        await self._run("UPDATE duly_jobs SET record = ? WHERE name = ?", (GARBLED, name))

    async def garble_node(self, node_id):
        await self._run("UPDATE duly_nodes SET node = ? WHERE id = ?", (GARBLED, node_id))


class PostgresHand:
    def __init__(self, url):
        self.url = url

    async def _run(self, *statement):
        connection = await asyncpg.connect(self.url)
        try:
            await connection.execute(*statement)
        finally:
            await connection.close()

    async def garble_run(self, run_id):
        await self._run("UPDATE duly.runs SET extra = $1 WHERE id = $2", GARBLED, run_id)

    async def garble_claim(self, run_id):
        statement = "UPDATE duly.claims SET progress = $1 WHERE seq = (SELECT seq FROM duly.runs WHERE id = $2)"
        await self._run(statement, '{"done":null,"total":null,"note":""}', run_id)

    async def garble_end(self, run_id):
        statement = "UPDATE duly.ended SET story = $1 WHERE seq = (SELECT seq FROM duly.runs WHERE id = $2)"
        await self._run(statement, GARBLED, run_id)

    async def garble_job(self, name):
        await self._run("UPDATE duly.jobs SET record = $1 WHERE name = $2", GARBLED, name)

    async def garble_node(self, node_id):
        await self._run("UPDATE duly.nodes SET node = $1 WHERE id = $2", GARBLED, node_id)


class RedisHand:
    def __init__(self, url):
        self.url = url

    def _change(self, key, field, change):
        with redis.Redis.from_url(self.url) as client:
            key = f"duly:{{duly}}:{key}"
            client.hset(key, field, change(client.hget(key, field)))

    async def garble_run(self, run_id):
        # What scripts read of a body is left as it is; what follows is cut off in the middle.
        self._change("runs", run_id, lambda body: body[:-7] + b"\xff" * 7)

    async def garble_claim(self, run_id):
        self._change("lives", run_id, lambda life: life[:-1] + b"\x93")

    garble_end = garble_claim

    async def garble_job(self, name):
        self._change("jobs", name, lambda text: text[:-5])

    async def garble_node(self, node_id):
        self._change("nodes", node_id, lambda _: b"\xc1")


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def place(request, tmp_path):
    """The URL of an empty store, and a hand that garbles what is in it."""
    from tests import conftest, postgres_stores

    match request.param:
        case "sqlite":
            url = f"sqlite:///{tmp_path}/duly.db"
            return url, SqliteHand(url)
        case "redis":
            url = conftest.emptied(request.getfixturevalue("redis_url"))
            return url, RedisHand(url)
        case _:
            url = postgres_stores.emptied(request.getfixturevalue("postgres_url"))
            return url, PostgresHand(url)


@pytest.fixture
async def stage(place):
    url, hand = place
    async with open_backend(url, Opening()) as backend:
        await backend.store.migrate()
        yield World(backend), hand


def fuller(world, number=5):
    """Runs that have a history, so that every part of their records is used."""
    headers = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    return [world.run(headers=headers, dedupe_key=f"key-{each}") for each in range(number)]


async def test_a_claim_lends_the_neighbours_and_the_damaged_run_ends_as_failed(stage):
    world, hand = stage
    runs = fuller(world)
    await world.put(*runs)
    await hand.garble_run(runs[2].id)
    claims = {claim.run.id: claim for claim in await world.claim()}
    assert set(claims) == {run.id for run in runs}
    assert [claims[run.id].run.damage is not None for run in runs] == [False, False, True, False, False]
    for run in runs:
        assert await world.settle(claims[run.id])
    assert [await world.state(run) for run in runs].count(State.COMPLETED) == 4
    assert await world.state(runs[2]) is State.FAILED


async def test_a_takeover_brings_the_neighbours_and_the_damaged_run(stage):
    world, hand = stage
    runs = fuller(world)
    await world.put(*runs)
    await world.claim()
    await hand.garble_run(runs[1].id)
    await hand.garble_claim(runs[3].id)
    world.advance(LEASE + 1)
    taken = {claim.run.id: claim for claim in await world.queue.reap(10, LEASE, now=world.now)}
    assert set(taken) == {run.id for run in runs}
    assert [taken[run.id].run.damage is not None for run in runs] == [False, True, False, True, False]
    assert all([await world.settle(claim, LOST) for claim in taken.values()])
    states = [await world.state(run) for run in runs]
    assert states == [State.QUEUED, State.FAILED, State.QUEUED, State.FAILED, State.QUEUED]


async def test_a_retried_run_whose_record_was_damaged_does_not_run_again(stage):
    world, hand = stage
    await world.put(run := world.run(), other := world.run())
    for claim in await world.claim():
        assert await world.settle(claim, failed())
    await hand.garble_run(run.id)
    world.advance(60)
    damaged = {claim.run.id: claim.run.damage for claim in await world.claim()}
    assert damaged[run.id] is not None
    assert damaged[other.id] is None


async def test_listings_have_the_damaged_run_beside_its_neighbours(stage):
    world, hand = stage
    waiting, running, ended = fuller(world, 3)
    await world.put(running, ended)
    claims = {claim.run.id: claim for claim in await world.claim()}
    never = Failed(Failure("ValueError", "no"), Verdict.NEVER)
    assert await world.settle(claims[ended.id], never)
    await world.put(waiting)
    await hand.garble_run(waiting.id)
    await hand.garble_claim(running.id)
    await hand.garble_end(ended.id)
    await world.put(fine := world.run())
    page = await world.store.runs(RunQuery(), 10, now=world.now)
    assert {run.id: run.damage is not None for run in page.runs} == {
        waiting.id: True,
        running.id: True,
        ended.id: True,
        fine.id: False,
    }
    assert (await world.stored(ended)).state is State.FAILED
    assert (await world.stored(running)).state is State.RUNNING
    assert len(await world.store.upcoming(10, now=world.now)) == 2
    assert set(await world.store.next_runs(now=world.now)) == {"mail"}
    assert (await world.store.attempts(ended.id))[-1:] != []


async def test_a_damaged_definition_is_named_and_the_others_are_planned(stage):
    world, hand = stage
    records = [world.record(name, plan_at=world.after(-5)) for name in ("a", "b", "c")]
    await world.create(*records)
    await hand.garble_job("b")
    jobs = {job.name: job for job in await world.store.jobs()}
    assert {name: job.status for name, job in jobs.items()} == {
        "a": JobStatus.ACTIVE,
        "b": JobStatus.UNREADABLE,
        "c": JobStatus.ACTIVE,
    }
    assert jobs["b"].revision == records[1].revision
    due, _ = await world.store.due("main", 10, now=world.now)
    assert [job.name for job in due] == ["a", "b", "c"]
    epoch = await world.store.install("main", 1)
    fired = await world.store.fire([postpone(job, world.now) for job in due], "main", epoch, now=world.now)
    assert {each.value for each in fired} == {"applied"}
    assert (await world.store.due("main", 10, now=world.now))[0] == []
    assert await world.store.remove("b", jobs["b"].revision, now=world.now)
    assert [job.name for job in await world.store.jobs()] == ["a", "c"]


async def test_a_node_whose_card_cannot_be_read_is_left_out(stage):
    from duly.model import Node

    world, hand = stage
    for name in ("one", "two"):
        await world.coordinator.announce(Node(name, "host", 1, world.now), 3600.0)
    await hand.garble_node("one")
    assert [node.id for node in await world.coordinator.nodes()] == ["two"]
    if await world.coordinator.beat("one", 3600.0, {"running": 1.0}) is False:
        await world.coordinator.announce(Node("one", "host", 1, world.now), 3600.0)
        assert {node.id for node in await world.coordinator.nodes()} == {"one", "two"}


async def test_a_node_goes_on_and_says_what_it_met(place):
    url, hand = place
    scheduler = Scheduler(url, SchedulerConfig(lock_ttl=2.0))

    @scheduler.job
    async def mail() -> str:
        return "sent"

    events = []
    scheduler.subscribe(events.append)
    async with scheduler.client():
        later = [await mail.options(delay=3600, dedupe_key=f"k{number}").submit() for number in range(3)]
        await scheduler.get_run(later[0].id)
    await hand.garble_run(later[1].id)
    async with scheduler:
        assert await (await mail.submit()).result(timeout=30) == "sent"
        assert [run.damage is not None for run in (await scheduler.runs()).runs].count(True) == 1
        findings = {finding.subject: finding for finding in await scheduler.examine()}
        assert findings["records"].severity is Severity.WARNING
        assert later[1].id in findings["records"].message


async def test_an_unreadable_job_can_be_defined_again(place):
    url, hand = place
    from duly import Every
    from duly.errors import ConfigurationError

    def made():
        scheduler = Scheduler(url)
        scheduler.job(Every(timedelta(hours=1)), name="report")(lambda: None)
        return scheduler

    scheduler = made()
    async with scheduler:
        assert (await scheduler.get_job("report")).status is JobStatus.ACTIVE
    await hand.garble_job("report")
    async with scheduler.client():
        assert (await scheduler.get_job("report")).status is JobStatus.UNREADABLE
        assert [job.status for job in await scheduler.jobs()] == [JobStatus.UNREADABLE]
        with pytest.raises(ConfigurationError, match="define it again"):
            await scheduler.pause("report")
        await scheduler.remove("report")
    again = made()
    async with again:

        async def planned():
            return (await again.get_job("report")).status is JobStatus.ACTIVE

        await eventually(planned)
