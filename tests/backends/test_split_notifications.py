"""The doorbell of the split stack: what is on the streams, who hears it, and what happens when it is not there."""

import asyncio
import itertools
import random
import subprocess
import sys
import time
import uuid
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import redis as client_library
from split_script import LEASE, RUN, STEPS
from tests.conftest import eventually
from tests.postgres_stores import emptied

from duly.backends import open_backend, open_coordinator
from duly.backends.redis.settings import parse
from duly.backends.split import SplitBackend
from duly.backends.split.priority_bands import ReadyRuns, band_of, ready_entries
from duly.backends.split.stream_notifier import StreamSettings, parse_stream_url, stream_notifier_at
from duly.errors import BackendError, BackendUnavailable, ConfigurationError
from duly.model import Ids, Lost, Run, State, Succeeded, shift
from duly.ports import Opening, SystemClock
from duly.rules.settling import settle
from duly.testing.servers import etcd_server
from duly.testing.servers import redis_server as start_redis

SCRIPT = Path(__file__).with_name("split_script.py")
LONG = 60.0
requests = itertools.count(1_000)
ids = Ids(SystemClock().now, random.Random())


class Hall:
    """Backends on one store and one doorbell, and an operator who looks at the streams."""

    def __init__(self, folder, redis_url, store=None, stream="jobs"):
        self.namespace = f"n{uuid.uuid4().hex[:30]}" if store is None else "split"
        self.store = store or f"sqlite:///{folder}/{self.namespace}.db"
        self.name = stream
        self.redis = redis_url if stream == "jobs" else f"{redis_url}?stream={stream}"
        self.operator = client_library.Redis.from_url(redis_url)

    def backend(self, options=""):
        opening = Opening(namespace=self.namespace)
        connector = stream_notifier_at(f"{self.redis}{options}", self.namespace)
        return SplitBackend(open_backend(self.store, opening), None, connector)

    def stream(self, band="low", name=None):
        return f"duly:{{{self.namespace}}}:stream:{name or self.name}:{band}"

    def entries(self, band="low"):
        return [fields for _, fields in self.operator.xrange(self.stream(band))]

    def pending(self, band="low"):
        return self.operator.xpending(self.stream(band), "workers")["pending"]


@pytest.fixture
def hall(tmp_path, redis_url):
    hall = Hall(tmp_path, redis_url)
    yield hall
    hall.operator.close()


def run(delay=-0.2, **fields):
    """Ready by the store's clock, too, unless it is for later: that may be a moment behind this machine's."""
    at = shift(SystemClock().now(), delay)
    return Run(**{"id": ids.new(), "job": "mail", "handler": "mail", "due": at, "ready_at": at} | fields)


async def claim(backend, node="n1", request=1, lease=LONG):
    return (await backend.queue.claim(node, None, None, 100, lease, request)).claims


@asynccontextmanager
async def waiting(backend, node="n1", timeout=LONG):
    """Somebody who waits, and is known to."""
    task = asyncio.create_task(backend.queue.wait(node, None, timeout))
    await eventually(lambda: _reads(backend), "it reads")
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _reads(backend):
    return backend._notifier._reading is not None


def test_bands_and_entries():
    assert [band_of(priority) for priority in range(10)] == ["low"] * 4 + ["middle"] * 3 + ["high"] * 3
    many = [run() for _ in range(20)]
    urgent, elsewhere, other = run(priority=9), run(queue="slow"), run(handler="sms")
    ids = [each.id for each in many]
    assert ready_entries([*many, urgent, elsewhere, other]) == [
        ReadyRuns("low", tuple(ids[:16]), "default", "mail"),
        ReadyRuns("low", tuple(ids[16:]), "default", "mail"),
        ReadyRuns("high", (urgent.id,), "default", "mail"),
        ReadyRuns("low", (elsewhere.id,), "slow", "mail"),
        ReadyRuns("low", (other.id,), "default", "sms"),
    ]


def test_the_names_of_stream_and_group_are_in_the_url():
    assert parse_stream_url("redis://h/1") == StreamSettings(parse("redis://h/1"))
    assert parse_stream_url("redis://h/1?stream=jobs&timeout=2&group=workers") == StreamSettings(
        parse("redis://h/1?timeout=2"), "jobs", "workers"
    )
    with pytest.raises(ConfigurationError, match="stream='a b' is not possible"):
        parse_stream_url("redis://h?stream=a%20b")
    with pytest.raises(ConfigurationError, match="unknown option"):
        parse_stream_url("redis://h?streams=x")


async def test_an_entry_carries_only_names_and_wakes_one_who_waits(hall):
    async with hall.backend() as one, hall.backend() as other:
        async with waiting(other) as task:
            added = run(payload=b'{"secret":1}', priority=0)
            await one.queue.put([added])
            assert hall.entries() == [{b"runs": added.id.encode(), b"queue": b"default", b"handler": b"mail"}]
            await asyncio.wait_for(task, LONG)
        assert [each.run.id for each in await claim(other)] == [added.id]


async def test_what_was_claimed_is_forgotten_at_the_door(hall):
    async with hall.backend() as backend:
        await backend.queue.put([run(), run(priority=5), run(priority=9)])
        assert [len(hall.entries(band)) for band in ("high", "middle", "low")] == [1, 1, 1]
        await _until_read(backend)
        assert [hall.pending(band) for band in ("high", "middle", "low")] == [1, 1, 1]
        assert len(await claim(backend)) == 3
    assert [hall.pending(band) for band in ("high", "middle", "low")] == [0, 0, 0]
    assert [hall.entries(band) for band in ("high", "middle", "low")] == [[], [], []]


# --- who gets an entry


async def able(backend, node, *, handlers=None, limit=5, queues=None, request=1):
    """Make the claim by which a node says what it can start."""
    await backend.queue.claim(node, queues, handlers, limit, LONG, request)
    return asyncio.create_task(backend.queue.wait(node, queues, LONG))


async def nobody_reads(backend):
    """Let it come to its wait; it reads nothing."""
    for _ in range(20):
        await asyncio.sleep(0.01)
    assert backend._notifier._reading is None


@asynccontextmanager
async def one_who_can(hall, queues=None):
    """A node that can start anything, and waits."""
    async with hall.backend() as backend:
        task = await able(backend, "able", queues=queues)
        await eventually(lambda: _reads(backend), "it reads")
        try:
            yield backend, task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def gets_it(hall, backend, task):
    """Put a run: the node that waits is woken and gets it, and the streams are empty then."""
    async with hall.backend() as client:
        await client.queue.put([added := run()])
        await asyncio.wait_for(task, LONG)
        while not (claims := (await backend.queue.claim("able", None, None, 5, LONG, next(requests))).claims):
            await backend.queue.wait("able", None, LONG)  # it was woken by something older
        assert [each.run.id for each in claims] == [added.id]
        await eventually(lambda: _tidied(hall, backend), "nothing is left in the streams")


async def _tidied(hall, backend):
    """A sweep may have rung for the same run: the node reads that too, as nodes do."""
    if await _emptied(hall):
        return True
    await backend.queue.wait("able", None, 0.05)
    return False


async def _emptied(hall):
    return not any(hall.entries(band) or hall.pending(band) for band in ("high", "middle", "low"))


async def test_a_node_that_only_plans_reads_no_entries(hall):
    async with hall.backend() as planner, one_who_can(hall) as (backend, task):
        planning = asyncio.create_task(planner.queue.wait("planner", [], LONG))
        await nobody_reads(planner)
        await gets_it(hall, backend, task)
        assert not planning.done()
        planning.cancel()


async def test_a_full_node_reads_no_entries_until_it_has_room_again(hall):
    async with hall.backend() as full:
        await full._main.queue.put([run()])
        task = await able(full, "full", limit=1)
        await nobody_reads(full)
        await full.queue.claim("full", None, None, 1, LONG, 2)  # a slot is free, and there is nothing to claim
        await eventually(lambda: _reads(full), "it reads")
        task.cancel()


async def test_a_word_that_comes_during_the_claim_of_a_full_node_leads_to_another_claim(hall):
    async with hall.backend() as full, hall.backend() as client:
        await full._main.queue.put([run()])
        task = await able(full, "full", limit=1)
        await nobody_reads(full)
        answered = asyncio.Event()
        full.queue._queue = Slow(full._main.queue, answered)
        claiming = asyncio.create_task(full.queue.claim("full", None, None, 1, LONG, 2))
        await eventually(full.queue._queue.claimed, "the store has answered the claim")
        await client._main.queue.put([run()])
        await client.queue._notifier.stream.publish([], b'[["default","mail"]]')  # by a node that could not take it
        await asyncio.wait_for(task, LONG)
        answered.set()
        assert (await claiming).claims == []
        assert len((await full.queue.claim("full", None, None, 1, LONG, 3)).claims) == 1


class Slow:
    """A queue whose claims are answered late."""

    def __init__(self, inner, answered):
        self._inner = inner
        self._answered = answered
        self._claimed = False

    def __getattr__(self, verb):
        return getattr(self._inner, verb)

    async def claimed(self):
        return self._claimed

    async def claim(self, *arguments, **named):
        answer = await self._inner.claim(*arguments, **named)
        self._claimed = True
        await self._answered.wait()
        return answer


async def test_a_node_that_reads_and_does_not_claim_leaves_its_entries_to_others(hall):
    async with hall.backend() as stuck, hall.backend() as client:
        reading = await able(stuck, "stuck")
        await eventually(lambda: _reads(stuck), "it reads")
        async with client.queue._notifier.stream._client.listen("connector") as ear:
            await client.queue.put([run()])
            await asyncio.wait_for(reading, LONG)  # the entry is for its next claim, which does not come
            [word] = [word for word in await ear.wait(LONG) if word]
        assert word == b'[["default","mail"]]'
        await eventually(lambda: _emptied(hall), "the entry is gone")


async def test_a_session_that_closes_leaves_its_entries_to_others(hall):
    async with hall.backend() as client, hall.backend() as closing:
        await client.queue.put([run()])
        await _until_read(closing)
        await closing.close()
        assert await _emptied(hall)


async def test_a_planner_that_takes_over_the_entries_of_a_dead_reader_passes_them_on(hall):
    async with hall.backend() as planner, one_who_can(hall) as (backend, task):
        with hall.operator.pipeline() as together:  # so that nobody else reads it
            together.xadd(hall.stream(), {"runs": ids.new(), "queue": "default", "handler": "mail"})
            together.xreadgroup("workers", "dead", {hall.stream(): ">"})
            together.execute()
        backend._notifier._sweep_at = asyncio.get_running_loop().time() + LONG  # the other one has the turns
        await eventually(lambda: _planned(planner, task), "it is passed on")
        await eventually(lambda: _emptied(hall), "the entry is gone")


async def _planned(planner, task):
    await planner.queue.wait("planner", [], 0.1)
    return task.done()


@pytest.mark.parametrize(
    ("able_to", "asked"),
    [({"queues": ["elsewhere"]}, {}), ({"handlers": {"sms"}}, {}), ({"queues": ["default"]}, {"queue": "other"})],
    ids=["serves another queue", "lacks the handler", "serves some queues"],
)
async def test_a_node_that_cannot_start_a_run_passes_it_on_at_once(hall, able_to, asked):
    async with hall.backend() as unable:
        task = await able(unable, "unable", **able_to)
        await eventually(lambda: _reads(unable), "it reads")
        async with hall.backend() as client:
            async with client.queue._notifier.stream._client.listen("connector") as ear:
                await client.queue.put([run(**asked)])  # the only reader is the one that cannot
                [word] = [word for word in await ear.wait(LONG) if word]
            assert word == msgspec.json.encode([(asked.get("queue", "default"), "mail")])
            await eventually(lambda: _emptied(hall), "the entry is gone")
        assert not task.done()
        task.cancel()


async def test_what_was_passed_on_reaches_one_who_can(hall):
    async with hall.backend() as unable, hall.backend() as backend:
        others = await able(unable, "unable", queues=["elsewhere"])
        await eventually(lambda: _reads(unable), "it reads")
        for _ in range(10):  # whichever of the two reads it
            task = await able(backend, "able", request=next(requests))
            await eventually(lambda: _reads(backend), "it reads")
            await gets_it(hall, backend, task)
        others.cancel()


async def test_a_claim_that_fills_its_node_leaves_the_rest_to_others(hall):
    async with hall.backend() as small:
        task = await able(small, "small", limit=1)
        await eventually(lambda: _reads(small), "it reads")
        async with hall.backend() as client, client.queue._notifier.stream._client.listen("connector") as ear:
            await client.queue.put([run(), run()])  # in one entry, of which there is room for one
            await asyncio.wait_for(task, LONG)
            assert len((await small.queue.claim("small", None, None, 1, LONG, 2)).claims) == 1
            assert b'[["default","mail"]]' in await ear.wait(LONG)
        await eventually(lambda: _emptied(hall), "the entry is gone")


async def test_a_node_that_stops_takes_no_more_entries(hall):
    async with hall.backend() as leaving, one_who_can(hall) as (backend, task):
        stopping = await able(leaving, "leaving")
        await eventually(lambda: _reads(leaving), "it reads")
        assert await leaving.queue.unassign("leaving", 100) == 0
        await gets_it(hall, backend, task)
        assert not stopping.done()
        await leaving.queue._notifier.notify_all()
        await asyncio.wait_for(stopping, LONG)  # it still hears what concerns everybody
        stopping = asyncio.create_task(leaving.queue.wait("leaving", None, LONG))
        await eventually(lambda: _reads_no_more(leaving), "it waits without reading")
        stopping.cancel()


async def _reads_no_more(backend):
    """Its last reading has ended with an entry that it passed on, and no other begins."""
    if backend._notifier._reading is not None:
        await backend.queue._notifier.stream.publish(ready_entries([run()]))
        return False
    return backend._notifier._wake is not None


async def test_entries_of_an_earlier_version_are_read(hall):
    async with one_who_can(hall) as (backend, task):
        async with hall.backend() as client:
            await client._main.queue.put([added := run()])
        hall.operator.xadd(hall.stream(), {"runs": added.id})
        await asyncio.wait_for(task, LONG)
        assert len(await claim(backend, "able", 5)) == 1


async def test_other_names_of_stream_and_group_are_used(hall):
    async with hall.backend("?stream=jobs&group=workers") as backend:
        await backend.queue.put([run()])
        assert hall.operator.xlen(hall.stream(name="jobs")) == 1
        assert hall.operator.xinfo_groups(hall.stream(name="jobs"))[0]["name"] == b"workers"


async def test_entries_of_a_reader_that_died_go_to_another(hall):
    async with hall.backend() as backend:
        await backend.queue.put([run()])
        read = hall.operator.xreadgroup("workers", "dead", {hall.stream(): ">"})
        assert len(read) == 1
        await eventually(lambda: _collected(backend, hall), "they are taken over")
        assert len(await claim(backend)) == 1
    assert hall.pending() == 0


async def _collected(backend, hall):
    await backend.queue.wait("n1", None, 0.1)
    readers = {each["name"]: each["pending"] for each in hall.operator.xinfo_consumers(hall.stream(), "workers")}
    return readers.get(b"n1")


async def test_what_nobody_announced_is_announced_by_a_sweep(hall):
    async with hall.backend() as backend:
        silent = run(-5)
        await backend._main.queue.put([silent])
        assert hall.entries() == []
        await asyncio.wait_for(_until_read(backend), LONG)
        assert [each.run.id for each in await claim(backend)] == [silent.id]


async def _until_read(backend):
    while not backend._notifier._unclaimed:
        await backend.queue.wait("n1", None, 1.0)


async def test_streams_are_bounded(hall):
    async with hall.backend() as backend:
        await backend.queue.put([run() for _ in range(9_000)])
        assert 0 < hall.operator.xlen(hall.stream()) <= 500


async def test_an_earlier_due_time_is_heard_and_a_later_one_is_not(hall):
    async with hall.backend() as one, hall.backend() as other:
        await one.queue.put([run(100)])
        assert await claim(other) == []  # and so learns what is due next
        async with waiting(other) as task:
            await one.queue.put([run(200)])
            await one.queue.put([run(50)])
            await asyncio.wait_for(task, LONG)
        [first, *_] = await other.store.upcoming(1)
        assert first.ready_at < shift(SystemClock().now(), 60)


async def test_whoever_waits_hears_of_a_wish_to_cancel_and_of_a_free_right(hall):
    async with hall.backend() as one, hall.backend() as other:
        await one.queue.put([run()])
        await other.queue.wait("n1", None, LONG)
        [held] = await claim(other)
        async with waiting(other) as task:
            await one.store.cancel([held.run.id])
            await asyncio.wait_for(task, LONG)
        lease = await one.coordinator.acquire("main", "n2", 30)
        async with waiting(other) as task:
            await one.coordinator.release([lease])
            await asyncio.wait_for(task, LONG)


async def test_a_run_that_is_given_back_is_rung_for(hall):
    from duly.model import Interrupted

    async with hall.backend() as backend:
        await backend.queue.put([run()])
        await backend.queue.wait("n1", None, LONG)
        [held] = await claim(backend)
        now = await backend.store.time()
        assert all(await backend.queue.settle([settle(held.run, held.fence, Interrupted(), now, dice=0.5)]))
        assert hall.entries("middle") == [{b"runs": held.run.id.encode(), b"queue": b"default", b"handler": b""}]


# --- without a doorbell


async def test_an_emptied_server_loses_nothing(hall):
    async with hall.backend() as one, hall.backend() as other:
        added = [run() for _ in range(20)]
        async with waiting(other) as task:
            for key in hall.operator.keys(f"duly:{{{hall.namespace}}}:*"):
                hall.operator.delete(key)
            await one.queue.put(added)
            await asyncio.wait_for(task, LONG)
        assert {each.run.id for each in await claim(other)} == {each.id for each in added}
        more = run()
        async with waiting(other) as task:
            await one.queue.put([more])
            await asyncio.wait_for(task, LONG)
        assert [each.run.id for each in await claim(other, request=2)] == [more.id]


@pytest.mark.parametrize("fault", ["kill", "pause"])
async def test_without_a_doorbell_work_is_found_by_looking(tmp_path, fault):
    with start_redis() as server:
        hall = Hall(tmp_path, server.url)
        async with hall.backend("?timeout=1") as one, hall.backend("?timeout=1") as other:
            assert (await one.parts())["queue"] == "reachable"
            getattr(server, fault)()
            added = run()
            await one.queue.put([added])
            parts = await one.parts()
            assert parts["queue"].startswith("away: ")
            assert f"127.0.0.1:{server.port}" in parts["queue"]
            assert parts["store"] == "reachable"
            await other.queue.wait("n1", None, 5.0)
            assert [each.run.id for each in await claim(other)] == [added.id]
            server.resume() if fault == "pause" else server.restart()
            await eventually(lambda: _back(one), "the doorbell is back")
            await eventually(lambda: _rung(one, other), "it is heard again")
        hall.operator.close()


async def _back(backend):
    return (await backend.parts())["queue"] == "reachable"


async def _rung(one, other):
    """Ring until the other one has read an entry."""
    await one.queue.put([run()])
    await other.queue.wait("n1", None, 0.5)
    return other._notifier._unclaimed


async def test_a_doorbell_that_is_away_at_the_start_is_no_obstacle(tmp_path):
    with start_redis() as server:
        hall = Hall(tmp_path, server.url)
        server.kill()
        async with hall.backend() as backend:
            added = run()
            await backend.queue.put([added])
            assert [each.run.id for each in await claim(backend)] == [added.id]
            server.restart()
            await eventually(lambda: _back(backend), "the doorbell is back")
        hall.operator.close()


# --- killed between two steps


@pytest.fixture
def great_hall(tmp_path, redis_url, postgres_url):
    """The same on PostgreSQL, with streams of its own."""
    hall = Hall(tmp_path, redis_url, emptied(postgres_url, "split"), uuid.uuid4().hex)
    yield hall
    hall.operator.close()


@pytest.mark.parametrize("step", STEPS)
async def test_a_process_killed_after_any_step_loses_and_doubles_nothing(great_hall, step):
    hall = great_hall
    dead = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, str(SCRIPT), hall.store, hall.redis, hall.namespace, step],
        capture_output=True,
        timeout=LONG,
        check=False,
    )
    assert dead.returncode == -9, dead.stderr.decode()
    async with hall.backend() as survivor:
        completed = await asyncio.wait_for(_finish(survivor), LONG)
        assert completed == (0 if step == "settle" else 1)
        found = await survivor.store.run(RUN)
        assert found.state is State.COMPLETED
        assert len((await survivor.store.runs(_everything(), 10)).runs) == 1
        await eventually(lambda: _drained(survivor, hall), "the streams are empty")


def _everything():
    from duly.model import RunQuery

    return RunQuery()


async def _finish(backend):
    """Do as a node does until the run is final; how often it was completed here."""
    completed, request = 0, 0
    while True:
        found = await backend.store.run(RUN)
        if found is not None and found.final:
            return completed
        await backend.queue.wait("survivor", None, 0.2)
        for lost in await backend.queue.reap(10, LEASE):
            now = await backend.store.time()
            await backend.queue.settle([settle(lost.run, lost.fence, Lost(), now, dice=0.0)])
        request += 1
        for held in await claim(backend, "survivor", request):
            now = await backend.store.time()
            assert all(await backend.queue.settle([settle(held.run, held.fence, Succeeded(), now, dice=0.5)]))
            completed += 1


async def _drained(backend, hall):
    await backend.queue.wait("survivor", None, 0.2)
    await claim(backend, "survivor", int(time.monotonic() * 1000))
    return not any(hall.entries(band) for band in ("high", "middle", "low"))


async def test_without_a_coordinator_at_the_start_it_is_opened_when_it_is_there(hall):
    with etcd_server() as server:
        server.kill()
        opening = Opening(namespace=hall.namespace)
        seat = open_coordinator(server.url, opening)
        async with SplitBackend(open_backend(hall.store, opening), seat) as backend:
            await backend.queue.put([run()])
            assert len(await claim(backend)) == 1
            assert (await backend.parts())["coordinator"].startswith("away: no member of etcd://127.0.0.1")
            with pytest.raises(BackendUnavailable):
                await backend.coordinator.acquire("main", "a", 30)
            server.restart()
            await eventually(lambda: _coordinated(backend), "it is there")
            assert (await backend.coordinator.acquire("main", "a", 30)).fence == 1
        with pytest.raises(BackendError, match="is not open"):
            await backend.coordinator.holder("main")


async def _coordinated(backend):
    return (await backend.parts())["coordinator"] == "reachable"
