"""Jobs on Redis: the index of names and handlers, also where a process of 0.1.0 writes, which does not keep it."""

import pytest
from msgspec.structs import replace

from duly.backends.redis import open_url
from duly.backends.redis.codec import encode_job
from duly.model import JobChange, Pause
from duly.ports import Opening
from duly.testing.conformance.world import World
from duly.testing.servers import redis_server as start_redis

NAMESPACE = "indexed"


@pytest.fixture
async def world(redis_url):
    async with open_url(redis_url, Opening(NAMESPACE)) as backend:
        yield World(backend)
        keys = await backend.client.command("KEYS", f"duly:{{{NAMESPACE}}}:*")
        await backend.client.command("DEL", *keys)


@pytest.fixture
async def alone():
    """A backend on a server that nobody else uses."""
    with start_redis() as server:
        async with open_url(server.url, Opening(NAMESPACE)) as opened:
            yield opened


class Earlier:
    """Writes records as 0.1.0 does: into the hash of jobs only."""

    def __init__(self, world):
        self._client = world.backend.client

    async def save(self, *records):
        for record in records:
            await self._client.on_key("HSET", "jobs", record.name, encode_job(record))

    async def remove(self, *names):
        await self._client.on_key("HDEL", "jobs", *names)


async def names(world, **options):
    return [record.name for record in await world.store.jobs(**options)]


async def reindexed(world):
    cursor = await world.store.reindex()
    while cursor is not None:
        cursor = await world.store.reindex(cursor)


async def test_jobs_of_an_earlier_version_are_listed_at_once(world):
    old = [world.record(f"old{number:03d}") for number in range(250)]
    await Earlier(world).save(*old)
    await world.create(world.record("new"))
    assert await names(world, after="old247", limit=5) == ["old248", "old249"]
    assert len(await names(world)) == 251
    assert await world.store.handlers(retired=False) == {"new", *(record.name for record in old)}
    assert await world.store.jobs_of("old007", retired=False, limit=5) == [old[7]]


async def test_jobs_that_an_earlier_version_removes_are_gone(world):
    await world.create(*[world.record(f"job{number:03d}") for number in range(250)])
    await Earlier(world).remove("job100", "job249")
    assert len(await names(world)) == 248
    assert await world.store.jobs_of("job100", retired=False, limit=5) == []
    await reindexed(world)
    assert await names(world, after="job247") == ["job248"]


async def test_what_an_earlier_version_changes_is_in_the_index_after_it_was_compared(world):
    await world.create(a := world.record("a"), b := world.record("b"), c := world.record("c"))
    handled = replace(a, revision=2, spec=replace(a.spec, handler="mail"))
    retired = replace(b, revision=2, retired_at=world.now, paused=Pause(world.now))
    await Earlier(world).save(handled, retired)
    assert await world.store.jobs_of("a", retired=False, limit=5) == []  # the record decides
    await reindexed(world)
    assert await world.store.handlers(retired=False) == {"mail", "c"}
    assert await world.store.handlers(retired=True) == {"b"}
    assert await world.store.jobs_of("mail", retired=False, limit=5) == [handled]
    assert await world.store.jobs_of("b", retired=True, limit=5) == [retired]
    assert await world.store.jobs_of("c", retired=False, limit=5) == [c]


async def test_a_comparison_leaves_alone_what_has_changed_meanwhile(world):
    await world.create(record := world.record("a"))
    changed = replace(record, revision=2, spec=replace(record.spec, handler="mail"))
    await world.store.save([JobChange(changed, 1)], now=world.now)
    await world.backend.client.call("index_jobs", "a", 1, "aa", "")  # of the record as it was read before
    assert await world.store.handlers(retired=False) == {"mail"}


async def test_no_call_reads_all_jobs_at_once(alone):
    world = World(alone)
    await world.create(*[world.record(f"job{number:04d}") for number in range(2500)])
    command = world.backend.client.command
    await command("CONFIG", "RESETSTAT")
    assert len(await names(world)) == 2500
    assert await names(world, after="job2400", limit=3) == ["job2401", "job2402", "job2403"]
    await world.store.statistics()
    await reindexed(world)
    used = {line.partition(":")[0] for line in (await command("INFO", "commandstats")).decode().splitlines()}
    assert not used & {"cmdstat_hkeys", "cmdstat_hgetall", "cmdstat_hvals", "cmdstat_keys"}
