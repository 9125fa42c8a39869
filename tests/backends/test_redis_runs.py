"""Runs on Redis: what is particular to this store."""

import asyncio
import itertools
import random
import uuid
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import NamedTuple

import pytest
from msgspec.structs import replace
from redis_connections import operator
from tests.conftest import eventually

from duly import Scheduler, SchedulerConfig
from duly.backends.redis import open_url
from duly.model import (
    Beat,
    Cause,
    Claim,
    Failed,
    Failure,
    Ids,
    Outcome,
    Progress,
    Run,
    RunQuery,
    State,
    Succeeded,
    WhenFull,
    recurring_id,
)
from duly.model.holds import UNPLACED
from duly.ports import Opening
from duly.rules.settling import settle
from duly.testing.conformance import World
from duly.testing.servers import redis_server as start_redis

LEASE = 15.0
NUMBER = 10_000


@pytest.fixture
async def backend(redis_url):
    async with open_url(redis_url, Opening(namespace=uuid.uuid4().hex)) as opened:
        yield opened


@pytest.fixture
def world(backend):
    return World(backend)


@pytest.fixture
async def alone():
    """A backend on a server that nobody else uses."""
    with start_redis() as server:
        async with open_url(server.url, Opening(namespace="alone")) as opened:
            yield opened


def runs_of(number: int) -> list[Run]:
    ids, now = Ids(lambda: datetime.now(UTC), random.Random(7)), datetime.now(UTC)
    made = [ids.new() for _ in range(number)]
    payload = b'{"to":"ada@example.org","subject":"Hello"}'
    return [Run(run_id, "send_mail", "send_mail", now, now, payload=payload) for run_id in made]


async def finish(world: World, *, keep: int = 0) -> None:
    """Claim and settle all there is, but for some."""
    while claims := await world.claim(1000):
        await world.queue.settle([world.settlement(claim) for claim in claims[keep:]])


async def info(backend, section: str) -> dict[str, str]:
    text = (await backend.client.command("INFO", section)).decode()
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


async def calls(backend, command: str) -> int:
    told = (await info(backend, "commandstats")).get(f"cmdstat_{command}", "calls=0")
    return int(told.split(",")[0].removeprefix("calls="))


# --- names


async def test_namespaces_on_one_server_do_not_see_each_other(redis_url):
    ours, theirs = (Opening(namespace=uuid.uuid4().hex) for _ in range(2))
    async with open_url(redis_url, ours) as one, open_url(redis_url, theirs) as other:
        [run] = runs_of(1)
        await one.queue.put([run])
        assert await other.store.run(run.id) is None
        assert (await other.store.runs(RunQuery(), 10)).runs == []
        assert (await other.queue.claim("n", None, None, 10, LEASE, 1)).claims == []
        assert [put.created for put in await other.queue.put([run])] == [True]
        assert len((await one.queue.claim("n", None, None, 10, LEASE, 1)).claims) == 1


async def _live(backend) -> None:
    """A bit of everything."""
    world = World(backend)
    await world.create(record := world.record("report"))
    epoch = await world.store.install("main", 1)
    await world.store.fire([world.firing(record, [world.after(10)], world.after(20))], "main", epoch, now=world.now)
    late = world.planned(record, world.after(-90), state=State.SKIPPED, reason="misfire", until=world.after(-20))
    await world.put(
        world.run(group="g", dedupe_key="k"),
        world.run(group="g", when_full=WhenFull.QUEUE),
        world.run(queue="other", priority=7),
        held := world.run(hold="breaker:x"),
        late,
    )
    claims = await world.claim()
    await world.queue.settle([world.settlement(claims[0], Failed(Failure("ValueError", "boom")))])
    await world.queue.settle([world.settlement(claim) for claim in claims[1:]])
    await world.store.pause("other")
    await world.store.append("audit", [b"x"])
    await world.store.put("token", "a", b"1")
    await world.store.take("api", 1, rate=1, burst=2)
    await world.store.finished([held.id], 0.01)
    await world.queue.wait("n", None, 0.01)
    await world.queue.wait("n", None, 0.01)


async def test_every_key_is_under_one_hash_tag(alone):
    await _live(alone)
    keys = await alone.client.command("KEYS", "*")
    assert len(keys) > 20
    assert all(key.startswith(b"duly:{alone}:") for key in keys), keys


async def test_every_script_says_what_it_does():
    folder = files("duly.backends.redis") / "scripts"
    for entry in (*folder.iterdir(), *(folder / "lib").iterdir()):
        if entry.name.endswith(".lua"):
            lines = entry.read_text("utf-8").splitlines()
            first = next(line for line in lines if not line.startswith("--!"))
            assert first.startswith("-- "), entry.name


# --- memory


class Content(NamedTuple):
    """What lies in a server: elements of hashes, sets, lists and sorted sets, texts, and the bytes of all of them.

    It does not depend on the server's version or allocator, as `used_memory` does.
    """

    elements: int
    bytes: int


async def _parts(backend) -> dict[bytes, tuple[bytes, list[bytes]]]:
    """All keys with their types and what is in them."""
    readers = {
        b"hash": ("HGETALL",),
        b"set": ("SMEMBERS",),
        b"list": ("LRANGE", 0, -1),
        b"zset": ("ZRANGE", 0, -1, "WITHSCORES"),
        b"string": ("GET",),
    }
    found = {}
    for key in await backend.client.command("KEYS", "*"):
        kind = await backend.client.command("TYPE", key)
        name, *words = readers[kind]
        content = await backend.client.command(name, key, *words)
        found[key] = kind, [content] if kind == b"string" else content
    return found


async def _content(backend) -> Content:
    elements = size = 0
    for kind, content in (await _parts(backend)).values():
        elements += len(content) // (2 if kind in {b"hash", b"zset"} else 1)
        size += sum(map(len, content))
    return Content(elements, size)


async def _memory(backend) -> int:
    return int((await info(backend, "memory"))["used_memory"])


async def _plain_copy(backend) -> int:
    """The memory that the same elements take on such a server, put there by the plainest commands."""
    parts = await _parts(backend)
    writers = {b"hash": "HSET", b"set": "SADD", b"list": "RPUSH", b"zset": "ZADD", b"string": "SET"}
    with start_redis() as server, operator(server) as client:
        before = client.info("memory")["used_memory"]
        for key, (kind, content) in parts.items():
            for start in range(0, len(content), 2000):
                words = content[start : start + 2000]
                if kind == b"zset":
                    words = [word for pair in zip(words[1::2], words[::2], strict=True) for word in pair]
                client.execute_command(writers[kind], key, *words)
        return client.info("memory")["used_memory"] - before


async def test_a_run_takes_few_elements_and_bytes_and_little_memory_beside_them(alone):
    """Payload 42 bytes, result 4. The bounds are the figures in docs/redis.md with a little air.

    What memory that is differs from server to server by half and more, so it is compared with a plain copy of the same
    elements on the same server.
    """
    world = World(alone)
    # The list of the newest ended runs of the job is full then, and grows no more.
    await world.put(*[world.run("send_mail") for _ in range(200)])
    await finish(world)
    empty, used = await _content(alone), await _memory(alone)

    async def taken() -> tuple[float, float, float]:
        content = await _content(alone)
        elements, size = content.elements - empty.elements, content.bytes - empty.bytes
        beside = (await _memory(alone) - used) / await _plain_copy(alone)
        return elements / NUMBER, size / NUMBER, beside

    def within(found: tuple[float, float, float], size: int) -> None:
        assert [each <= bound for each, bound in zip(found, (3.01, size, 1.25), strict=True)] == [True] * 3, found

    await alone.queue.put(runs_of(NUMBER))
    within(await taken(), 235)
    claims: list[Claim] = []
    for request in range(1, NUMBER // 1000 + 1):
        claims += (await alone.queue.claim("node", None, None, 1000, LEASE, request)).claims
    assert len(claims) == NUMBER
    within(await taken(), 304)
    now = datetime.now(UTC)
    await alone.queue.settle([settle(claim.run, claim.fence, Succeeded(b'"ok"'), now, 0.5) for claim in claims])
    within(await taken(), 309)


async def test_what_is_purged_leaves_nothing(alone):
    await _live(alone)
    world = World(alone)
    world.advance(3600)
    await alone.store.resume("other")
    await alone.queue.unhold("breaker:x", 10)
    [record] = await alone.store.jobs()
    assert await alone.store.remove("report", record.revision, now=world.now)
    for _ in range(5):
        await finish(world)
        world.advance(60)
    for state in (State.COMPLETED, State.FAILED, State.CANCELLED, State.SKIPPED, State.LOST):
        await alone.store.purge(state, None, 0, 1000)
    assert (await alone.store.runs(RunQuery(), 10)).runs == []
    left = {key.removeprefix(b"duly:{alone}:").decode() for key in await alone.client.command("KEYS", "*")}
    counters = {"meta", "totals", "statistics", "depths", "bell", "incarnation", "epochs"}
    small = {"request:node-1", "log:audit", "kind:token", "bucket:api"}
    assert left <= counters | small | {"running", "groups"}, left
    keels = [
        await alone.client.command(*words)
        for words in (("ZCARD", "duly:{alone}:running"), ("HLEN", "duly:{alone}:groups"))
    ]
    assert max(keels) <= 1


async def test_a_token_bucket_expires_when_it_is_full_again(alone):
    assert await alone.store.take("api", 1, rate=1, burst=2) == 0
    assert 0 < await alone.client.command("TTL", alone.client.prefix + b"bucket:api") <= 62


# --- batches


async def test_thousands_of_runs_travel_in_slices(backend):
    runs = runs_of(3_500)
    again = [*runs[:10], *runs]
    puts = await backend.queue.put(again)
    assert [put.id for put in puts] == [run.id for run in again]
    assert [put.created for put in puts] == [True] * 10 + [False] * 10 + [True] * 3_490
    claimed = await backend.queue.claim("n", None, None, 3_000, LEASE, 1)
    assert [claim.run.id for claim in claimed.claims] == [run.id for run in runs[:3_000]]
    fences = [claim.fence for claim in claimed.claims]
    assert fences == sorted(set(fences))
    now = datetime.now(UTC)
    settlements = [settle(claim.run, claim.fence, Succeeded(), now, 0.5) for claim in claimed.claims]
    assert all(await backend.queue.settle(settlements))
    assert (await backend.store.counts()).states[State.COMPLETED] == 3_000


async def test_concurrent_submissions_share_calls(alone):
    scheduler = Scheduler(alone.url, SchedulerConfig(namespace="alone"))

    @scheduler.job
    async def send_mail() -> None: ...

    async with scheduler.client():
        await send_mail.submit()
        before = await calls(alone, "evalsha")
        handles = await asyncio.gather(*(send_mail.submit() for _ in range(200)))
        assert await calls(alone, "evalsha") - before < 20
    assert len({handle.id for handle in handles if not handle.deduplicated}) == 200
    assert (await alone.store.counts()).states[State.QUEUED] == 201


async def test_a_burst_of_planned_runs_is_started_in_slices(world):
    due = world.after(5)
    uids = [f"0{number:025x}" for number in range(5_000)]
    planned = [
        Run(recurring_id(uid, due), f"job-{uid}", "report", due, due, uid=uid, cause=Cause.SCHEDULE, group=uid)
        for uid in uids
    ]
    await world.put(*planned)
    world.advance(5)
    started: list[str] = []
    while claims := await world.claim(1_000):
        started += [claim.run.id for claim in claims]
        await world.queue.settle([world.settlement(claim) for claim in claims])
    assert started == [run.id for run in planned]


# --- runs that become ready


async def lanes(world: World) -> list[bytes]:
    """Where runs are queued."""
    return await world.backend.client.command("SMEMBERS", world.backend.client.prefix + b"lanes")


async def claimed(world: World, limit: int = 100, **options) -> list[str]:
    return [claim.run.id for claim in await world.claim(limit, **options)]


async def test_what_is_ready_in_one_priority_alone_starts_without_being_queued(world):
    runs = [world.run(group=f"g{number}", delay=5) for number in range(50)]
    await world.put(*runs, world.run(delay=60, priority=9))
    world.advance(5)
    assert await claimed(world, 10) == [run.id for run in runs[:10]]
    assert await lanes(world) == []
    assert await claimed(world) == [run.id for run in runs[10:]]


async def test_ready_runs_of_several_priorities_start_in_order(world):
    runs = [world.run(group=f"g{number}", delay=5, priority=number % 3) for number in range(30)]
    await world.put(*runs)
    world.advance(5)
    started = [run_id for _ in range(10) for run_id in await claimed(world, 4)]
    assert started == [run.id for run in sorted(runs, key=lambda run: (-run.priority, run.id))]


async def test_what_is_queued_is_not_overtaken_by_what_became_ready_later(world):
    planned = [world.run(group=f"g{number}", delay=5) for number in range(3)]
    await world.put(first := world.run(), *planned)
    world.advance(6)
    await world.put(last := world.run())
    assert await claimed(world, 2) == [first.id, planned[0].id]
    assert await claimed(world) == [planned[1].id, planned[2].id, last.id]


async def test_ready_runs_for_others_do_not_stand_in_the_way(world):
    runs = [world.run(group=f"g{number}", delay=5, queue="ab"[number % 2]) for number in range(20)]
    await world.put(*runs)
    world.advance(5)
    assert await claimed(world, 3, queues=["b"]) == [run.id for run in runs[1:6:2]]
    assert await claimed(world, queues=["a"]) == [run.id for run in runs[::2]]
    assert await claimed(world) == [run.id for run in runs[7::2]]


@pytest.mark.parametrize(
    ("when_full", "then"),
    [(WhenFull.SKIP, State.SKIPPED), (WhenFull.QUEUE, State.PENDING), (WhenFull.REPLACE, State.CANCELLED)],
)
async def test_of_one_group_one_starts_though_all_are_ready(world, when_full, then):
    """Replaced are those that stand before the newest, else it is the newest that does not start."""
    old, new = (world.run(group="g", delay=delay, when_full=when_full) for delay in (4, 5))
    await world.put(old, world.run(delay=3), new)
    world.advance(5)
    replaced = when_full is WhenFull.REPLACE
    assert (await claimed(world))[1:] == [new.id if replaced else old.id]
    assert await world.state(old if replaced else new) is then


# --- handlers and plans


async def test_many_handlers_are_told_once(backend):
    handlers = frozenset({"send_mail", *(f"handler_{number}" for number in range(500))})
    stranger = Run("0stranger", "stranger", "stranger", *[datetime.now(UTC)] * 2)
    await backend.queue.put([*runs_of(3), stranger])
    claimed = await backend.queue.claim("n", None, handlers, 10, LEASE, 1)
    assert len(claimed.claims) == 3
    assert await backend.queue.holds() == {"handler:stranger": 1}
    [staff] = await backend.client.command("KEYS", backend.client.prefix + b"staff:*")
    assert await backend.client.command("TTL", staff) > 0
    await backend.client.command("DEL", staff)
    claimed = await backend.queue.claim("n", None, handlers | {"stranger"}, 10, LEASE, 2)
    assert [claim.run.id for claim in claimed.claims] == [stranger.id]


async def test_the_roster_of_a_schedule_does_not_grow_without_end(world):
    await world.create(record := world.record("report"))
    epoch = await world.store.install("main", 1)
    for _ in range(60):
        assert record.cursor is not None
        firing = world.firing(record, [record.cursor], cursor=record.cursor + timedelta(seconds=10))
        await world.store.fire([firing], "main", epoch, now=world.now)
        world.advance(10)
        await finish(world)
        [record] = await world.store.jobs()
    roster = await world.backend.client.command("HGET", world.backend.client.prefix + b"plans", "report")
    assert len(roster) < 1_200
    assert record.planned == 60


# --- one run


async def test_a_run_that_is_put_alone_needs_one_call_whether_it_is_ready_or_not(alone):
    world = World(alone)
    await world.put(world.run(), world.run(delay=60))
    await world.put(world.run())
    for delay in (0, 60):
        before = await calls(alone, "evalsha")
        [put] = await world.put(world.run(delay=delay))
        assert put.created
        assert await calls(alone, "evalsha") - before == 1
    assert (await alone.store.counts(now=world.now)).queues["default"].queued == 3


async def test_a_run_that_is_put_alone_again_is_found(world):
    run = world.run()
    [first] = await world.put(run)
    world.advance(1)
    assert await world.put(run) == [replace(first, created=False)]
    [claim] = await world.claim()
    assert await world.put(run) == [replace(first, created=False)]
    assert await world.settle(claim)
    assert (await world.store.counts(now=world.now)).states[State.QUEUED] == 0


async def test_runs_that_are_put_one_by_one_are_listed_in_order_over_many_pages(world):
    runs = [world.run() for _ in range(400)]
    for run in runs:
        await world.put(run)
    found = await world.store.runs(RunQuery(), 1000, now=world.now)
    assert [run.id for run in found.runs] == [run.id for run in reversed(runs)]


# --- counters


async def ran(world: World, jobs: int, outcome: Outcome | None = None) -> None:
    """One run of each of so many jobs, settled in one call."""
    await world.put(*(world.run(f"job_{number}") for number in range(jobs)))
    await world.queue.settle([world.settlement(claim, outcome) for claim in await world.claim(1000)])


async def noted(world: World) -> int:
    """How many settlements are noted and not yet added up; each is three texts."""
    return await world.backend.client.command("LLEN", world.backend.client.prefix + b"tallies") // 3


async def test_what_is_settled_for_many_jobs_is_counted_when_somebody_asks(world):
    await ran(world, 20)
    await ran(world, 20, Failed(Failure("ValueError", "boom")))
    await ran(world, 5)
    assert await noted(world) == 2
    counted = await world.store.statistics()
    assert await noted(world) == 0
    numbers = {job: (each.completed, each.failed + each.retried) for job, each in counted.items()}
    assert numbers == {f"job_{number}": (2 if number < 5 else 1, 1) for number in range(20)}


async def test_a_settlement_that_is_repeated_is_counted_once(world):
    await world.put(*(world.run(f"job_{number}") for number in range(20)))
    settlements = [world.settlement(claim) for claim in await world.claim(1000)]
    for _ in range(3):
        assert all(await world.queue.settle(settlements))
    assert {each.completed for each in (await world.store.statistics()).values()} == {1}


async def test_planning_adds_up_what_was_noted(world):
    await world.create(record := world.record("report"))
    epoch = await world.store.install("main", 1)
    await ran(world, 20)
    assert record.cursor is not None
    firing = world.firing(record, [record.cursor], cursor=record.cursor + timedelta(seconds=10))
    await world.store.fire([firing], "main", epoch, now=world.now)
    assert await noted(world) == 0
    assert (await world.store.statistics(["job_7"]))["job_7"].completed == 1


async def test_notes_do_not_gather_without_end(world):
    for _ in range(60):
        await ran(world, 400)
    assert await noted(world) * 400 <= 20_000 + 400  # a call that exceeds the bound counts as many as it adds
    assert {each.completed for each in (await world.store.statistics()).values()} == {60}


async def test_a_run_that_is_settled_twice_in_one_call_is_counted_once(world):
    await world.put(world.run())
    [claim] = await world.claim()
    assert await world.queue.settle([world.settlement(claim)] * 3) == [True] * 3
    assert (await world.store.statistics())["mail"].completed == 1
    assert (await world.store.counts()).states[State.COMPLETED] == 1


async def test_completions_that_are_not_plain_after_all_are_settled_in_the_same_call(world):
    """Progress, a wish to cancel and a newer fence are known to the store alone; the others are not affected."""
    await world.put(*(world.run() for _ in range(5)))
    with_progress, cancelled, stale, *plain = await world.claim()
    await world.queue.renew([Beat(with_progress.run.id, with_progress.fence, Progress(3))], LEASE, now=world.now)
    await world.store.cancel([cancelled.run.id], now=world.now)
    offered = [world.settlement(claim) for claim in (with_progress, cancelled, stale, *plain)]
    offered[2] = replace(offered[2], fence=stale.fence - 1)
    fresh = await world.queue.settle(offered)
    assert fresh == [True, True, False, True, True]
    assert (await world.stored(with_progress.run)).progress == Progress(3)
    assert await world.state(stale.run) is State.RUNNING
    assert (await world.store.statistics())["mail"].completed == 4


# --- fences


async def test_no_fence_is_given_twice_though_the_server_forgot_everything():
    with start_redis() as server:
        given: list[int] = []
        for _ in range(3):
            async with open_url(server.url, Opening(namespace="fences")) as backend:
                await backend.queue.put(runs_of(300))
                claimed = await backend.queue.claim("n", None, None, 300, LEASE, 1)
                given += [claim.fence for claim in claimed.claims]
                await backend.client.command("FLUSHALL")
        server.kill()
        server.restart()
        async with open_url(server.url, Opening(namespace="fences")) as backend:
            await backend.queue.put(runs_of(300))
            claimed = await backend.queue.claim("n", None, None, 300, LEASE, 1)
            given += [claim.fence for claim in claimed.claims]
    assert len(given) == 1_200
    assert given == sorted(set(given))
    assert max(given) < 2**53


# --- time


async def test_a_queued_run_is_not_early_when_the_clock_steps_back(world):
    await world.put(run := world.run(delay=5), world.run())
    world.advance(5)
    await world.queue.promote(10, now=world.now)
    world.advance(-1)
    early = await world.claim()
    assert run.id not in [claim.run.id for claim in early]
    world.advance(1)
    assert [claim.run.id for claim in await world.claim()] == [run.id]


async def test_runs_of_several_queues_keep_one_order(world):
    runs = [world.run(queue=f"q{number % 3}", delay=-number, priority=number % 2) for number in range(60)]
    await world.put(*runs)
    claimed = []
    for _ in range(9):
        claimed += [claim.run.id for claim in await world.claim(7)]
    expected = sorted(runs, key=lambda run: (-run.priority, run.ready_at, run.id))
    assert claimed == [run.id for run in expected]


# --- groups


async def test_a_run_that_is_replaced_in_the_same_moment_ends_once(world):
    """A member that waits for its retry and its successor are ready in one slice of promotion."""
    await world.put(old := world.run(group="g", when_full=WhenFull.REPLACE))
    [claim] = await world.claim()
    await world.settle(claim, Failed(Failure("ValueError", "boom"), delay=10.0))
    await world.put(new := world.run(group="g", when_full=WhenFull.REPLACE, delay=5))
    world.advance(20)
    assert [claim.run.id for claim in await world.claim()] == [new.id]
    assert await world.state(old) is State.CANCELLED
    counts = await world.store.counts(now=world.now)
    assert (counts.states[State.CANCELLED], counts.states[State.PENDING], counts.states[State.QUEUED]) == (1, 0, 0)


async def test_a_redriven_run_keeps_its_time_through_a_hold(world):
    await world.put(run := world.run(hold=UNPLACED, assignable=True))
    await world.store.cancel([run.id], now=world.now)
    world.advance(30)
    await world.store.redrive([run.id], now=world.now)
    assert await world.queue.unhold(UNPLACED, 10) == 1
    assert (await world.stored(run)).ready_at == world.now


# --- listing


async def test_a_listing_goes_on_where_it_was_though_runs_are_purged(world):
    for _ in range(4):
        await world.put(*[world.run() for _ in range(10)])
        world.advance(1)
    first = await world.store.runs(RunQuery(), 15, now=world.now)
    await finish(world)
    assert await world.store.purge(State.COMPLETED, None, 30, 100) == 10
    rest: list[Run] = []
    cursor = first.next
    while cursor is not None:
        page = await world.store.runs(RunQuery(), 4, cursor, now=world.now)
        rest, cursor = rest + page.runs, page.next
    seen = [run.id for run in first.runs + rest]
    assert len(seen) == len(set(seen)) == 30


async def test_runs_put_after_a_purge_are_newer_than_those_before(world):
    await world.put(*[world.run() for _ in range(5)])
    await finish(world)
    await world.store.purge(State.COMPLETED, None, 2, 100)
    await world.put(new := world.run())
    listed = (await world.store.runs(RunQuery(), 10, now=world.now)).runs
    assert len(listed) == 3
    assert listed[0].id == new.id


async def test_the_next_run_of_every_job_is_found_among_thousands(world):
    await world.put(*[world.run(f"job-{number % 50}", delay=60 + number) for number in range(4_500)])
    first = await world.store.next_runs(now=world.now)
    assert first == {f"job-{number}": world.after(60 + number) for number in range(50)}
    upcoming = await world.store.upcoming(3, "job-7", now=world.now)
    assert [run.ready_at for run in upcoming] == [world.after(60 + 7 + 50 * number) for number in range(3)]


# --- wake-ups


async def asleep(backend, number: int) -> bool:
    """Whether so many have gone to sleep since the counters were reset, and nobody has rung."""
    bell = int(await backend.client.command("GET", backend.client.prefix + b"bell") or 0)
    return bell % 2 == 1 and await calls(backend, "evalsha") >= number


async def test_a_node_that_waits_sends_one_command_for_each_wait(alone):
    await alone.queue.wait("n", None, 0.01)
    await alone.queue.wait("n", None, 0.01)
    before = int((await info(alone, "stats"))["total_commands_processed"])
    await alone.queue.wait("n", None, 0.5)
    after = int((await info(alone, "stats"))["total_commands_processed"])
    own, doze = 1, 3  # INFO; the script and the two commands in it
    assert after - before <= own + doze


async def test_nothing_is_published_to_those_who_are_awake(alone):
    await alone.queue.put(runs_of(50))
    assert await calls(alone, "publish") == 0


async def test_everybody_who_sleeps_is_woken_by_one_word(alone):
    async with alone.session() as second:
        for backend in (alone, second):
            await backend.queue.wait("n", None, 0.01)
        await alone.client.command("CONFIG", "RESETSTAT")
        async with asyncio.timeout(30):
            sleepers = [asyncio.create_task(backend.queue.wait("n", None, 60)) for backend in (alone, second)]
            await eventually(lambda: asleep(alone, 2))
            await alone.queue.put(runs_of(1))
            await asyncio.gather(*sleepers)
        assert await calls(alone, "publish") == 1


async def test_a_ring_before_the_sleep_is_not_lost(alone):
    await alone.queue.wait("n", None, 0.01)
    await alone.queue.put(runs_of(1))
    async with asyncio.timeout(30):
        await alone.queue.wait("n", None, 60)


async def test_a_claim_that_finds_no_more_goes_to_sleep_along_the_way(alone):
    await alone.queue.wait("n", None, 0.01)
    await alone.queue.claim("n", None, None, 10, LEASE, 1)
    await alone.client.command("CONFIG", "RESETSTAT")
    await alone.queue.claim("n", None, None, 10, LEASE, 2)
    await alone.queue.wait("n", None, 0.01)
    assert await calls(alone, "evalsha") == 1
    async with asyncio.timeout(30):
        sleeper = asyncio.create_task(alone.queue.wait("n", None, 60))
        await eventually(lambda: asleep(alone, 2))
        await alone.queue.put(runs_of(1))
        await sleeper


async def test_a_claim_that_finds_as_much_as_it_wants_does_not_go_to_sleep(alone):
    await alone.queue.wait("n", None, 0.01)
    await alone.queue.put(runs_of(3))
    await alone.queue.claim("n", None, None, 2, LEASE, 1)
    assert not await asleep(alone, 0)
    async with asyncio.timeout(30):
        await alone.queue.wait("n", None, 60)  # there was a ring


async def test_whoever_wants_to_sleep_waits_for_the_claim_under_way(alone):
    await alone.queue.wait("n", None, 0.01)
    await alone.queue.claim("n", None, None, 10, LEASE, 1)
    await alone.queue.wait("n", None, 0.01)
    await alone.client.command("CONFIG", "RESETSTAT")
    claim = asyncio.create_task(alone.queue.claim("n", None, None, 10, LEASE, 2))
    await asyncio.sleep(0)
    await asyncio.gather(claim, alone.queue.wait("n", None, 0.01))
    assert await calls(alone, "evalsha") == 1


async def test_claims_without_a_pause_between_them_do_not_keep_a_ring_from_being_heard(alone):
    async def claim_on_and_on():
        for request in itertools.count(1):
            await alone.queue.claim("n", None, None, 1, LEASE, request)

    await alone.queue.wait("n", None, 0.01)
    await alone.queue.put(runs_of(50))
    claiming = asyncio.create_task(claim_on_and_on())
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await alone.queue.wait("n", None, 60)
    claiming.cancel()


async def test_a_ring_that_a_claim_tells_of_wakes_for_other_reasons_too(world):
    await world.put(run := world.run())
    await world.claim()
    await world.queue.wait("n", None, 0.01)
    await world.store.cancel([run.id], now=world.now)
    await world.queue.claim("n", None, None, 10, LEASE, 99)
    async with asyncio.timeout(30):
        await world.queue.wait("n", None, 60)


async def test_a_wish_to_cancel_wakes(world):
    await world.put(run := world.run())
    await world.claim()
    await world.queue.wait("n", None, 0.01)
    await world.store.cancel([run.id], now=world.now)
    async with asyncio.timeout(30):
        await world.queue.wait("n", None, 60)


async def test_the_end_of_a_run_is_told_to_other_sessions(backend):
    [run] = runs_of(1)
    await backend.queue.put([run])
    [claim] = (await backend.queue.claim("n", None, None, 1, LEASE, 1)).claims
    async with backend.session() as other, asyncio.timeout(30):
        waiting = asyncio.create_task(other.store.finished([run.id], 60))
        await eventually(lambda: backend.client.command("EXISTS", backend.client.prefix + b"awaited"))
        await backend.queue.settle([settle(claim.run, claim.fence, Succeeded(), datetime.now(UTC), 0.5)])
        [ended] = await waiting
    assert ended.state is State.COMPLETED
    assert not await backend.client.command("EXISTS", backend.client.prefix + b"awaited")


async def test_instants_beyond_the_horizon_are_exact(world):
    due = world.now.replace(year=2200, microsecond=999_999)
    await world.put(run := world.run(due=due, ready_at=due + timedelta(microseconds=1)))
    stored = await world.stored(run)
    assert (stored.due, stored.ready_at) == (run.due, run.ready_at)
    [first] = await world.store.upcoming(1, now=world.now)
    assert first.ready_at == run.ready_at


# --- clusters


async def test_everything_works_on_a_shard_of_a_cluster():
    with start_redis(config={"cluster-enabled": "yes"}) as server:
        with operator(server) as client:
            client.execute_command("CLUSTER", "ADDSLOTS", *range(16_384))

            async def formed() -> bool:
                return b"cluster_state:ok" in client.execute_command("CLUSTER", "INFO")

            await eventually(formed)
        async with open_url(server.url, Opening(namespace="shard")) as backend:
            await _live(backend)
            assert (await backend.store.counts()).states[State.SKIPPED] == 1
