"""A rolling deploy from 0.1.0: nodes and clients of both versions work on one store, and nothing is lost or doubled."""

import asyncio
import itertools
import json
import time
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import pytest
import redis

from duly import Scheduler, SchedulerConfig, State
from duly.backends import open_backend
from duly.backends.sqlite.session import steps
from duly.model import Cause, OutcomeKind, RetrySpec, RunPolicy, recurring_id
from duly.ports import Opening
from duly.scheduler.audit import Audit
from duly.testing.conformance.world import World, failed
from tests.stores.rolling import Deploy

WHEEL = Path(__file__).parent / "v0_1_0" / "duly-0.1.0-py3-none-any.whl"
NAMESPACE = "rolling"
PERIODS = {"tick": 0.1, "solo": 0.4, "turns": 0.4}


@pytest.fixture(scope="session")
def code(tmp_path_factory):
    """The code of 0.1.0 in a folder, where it is compiled once for all processes."""
    folder = tmp_path_factory.mktemp("v0_1_0")
    with zipfile.ZipFile(WHEEL) as wheel:
        wheel.extractall(folder)
    return folder


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def store(request, tmp_path):
    """The URL of a store that has nothing in the namespace of these tests."""
    match request.param:
        case "sqlite":
            yield f"sqlite:///{tmp_path}/duly.db"
        case "redis":
            url = request.getfixturevalue("redis_url")
            yield url
            _emptied(url)
        case _:
            url = request.getfixturevalue("postgres_url")
            yield url
            asyncio.run(_dropped(url))


def _emptied(url):
    with redis.Redis.from_url(url) as client:
        client.delete(*client.scan_iter(f"duly:{{{NAMESPACE}}}:*", count=1000))


async def _dropped(url):
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(f"DROP SCHEMA {NAMESPACE} CASCADE")
    finally:
        await connection.close()


@pytest.fixture
def deploy(tmp_path, store, code):
    folder = tmp_path / "deploy"
    folder.mkdir()
    deploy = Deploy(folder, store, NAMESPACE, code)
    yield deploy
    deploy.close()


def numbers(handler="count"):
    return handler, [{"number": number} for number in range(10)]


async def test_nodes_of_both_versions_work_until_only_new_ones_are_left(deploy):
    runs = []  # all that are submitted, each of which has to complete
    old = await _two_old_nodes_work(deploy, runs)
    new = await _a_new_node_joins(deploy, old, runs)
    await _dedupe_keys_count_for_both(deploy, old, new, runs)
    since = await _the_old_leader_is_killed(deploy, old, new, runs)
    cancelled = await _a_new_node_leads_an_old_one(deploy, old, new, runs, since)
    await _an_old_node_is_started_again(deploy, new, runs)
    await _only_new_nodes_are_left(deploy, old, new, runs)
    due = await _due_until(deploy, time.time())
    assert [await deploy.stop(name) for name in ("new-1", "new-2")] == [0, 0]
    await _nothing_was_lost_or_doubled(deploy, runs, cancelled, due)
    assert "BackendError" not in "".join(deploy.log(name) for name in ("old-1", "old-2", "new-1", "new-2"))


async def test_an_old_node_executes_and_lists_what_is_backfilled(deploy):
    deploy.start("old-1", earlier=True)
    old = await deploy.client("old-client", earlier=True)
    await deploy.up(old, "old-1")
    await deploy.completed(old, await old.call("submit_many", *numbers()))
    new = Scheduler(deploy.url, SchedulerConfig(namespace=NAMESPACE))
    start = datetime(2026, 1, 1, tzinfo=UTC)
    async with new.client():
        found = await new.backfill("tick", start, start + timedelta(seconds=1), by="ada")
        assert (found.created, found.missing) == (10, 10)
        uid = (await (await new.opened()).backend.store.job("tick")).uid
        runs = [recurring_id(uid, start + timedelta(milliseconds=100 * number)) for number in range(10)]
        await deploy.completed(old, runs)
        assert {(await new.get_run(run)).cause for run in runs} == {Cause.BACKFILL}
        await new.pause("tick")  # an old node leads and reads a record that says where its definition comes from
        await new.resume("tick")
        [version] = await new.history("tick")
        assert version.words() in {("created",), ("earlier versions are not kept",)}
    assert {node for run, _, node in deploy.noted("done") if run in runs} == {"old-1"}
    assert await deploy.stop("old-1") == 0
    assert "Traceback" not in deploy.log("old-1")


async def _two_old_nodes_work(deploy, runs):
    """One of them leads, the other never does."""
    deploy.start("old-1", earlier=True)
    deploy.start("old-2", earlier=True, roles="worker")
    old = await deploy.client("old-client", earlier=True)
    await deploy.up(old, "old-1", "old-2")
    runs += await old.call("submit_many", *numbers())
    runs += await old.call("submit_many", *numbers("flaky"))
    await deploy.completed(old, runs)
    return old


async def _a_new_node_joins(deploy, old, runs):
    """The old one still leads while clients of both versions submit."""
    deploy.start("new-1", queues="default")
    await deploy.up(old, "new-1")
    new = await deploy.client("new-client")
    assert await new.call("leader") == "old-1"
    runs += await new.call("submit_many", *numbers())
    runs += await new.call("submit_many", *numbers("flaky"))
    runs += await old.call("submit_many", *numbers())
    await deploy.completed(new, runs)
    assert [await client.call("record", "here") for client in (old, new, old, new)] == [1, 2, 3, 4]
    return new


async def _dedupe_keys_count_for_both(deploy, old, new, runs):
    for number, (first, second) in enumerate([(old, new), (new, old)]):
        key = f"key-{number}"
        run = await first.call("submit", "slow", {"name": "keyed"}, dedupe_key=key)
        assert await second.call("submit", "slow", {"name": "keyed"}, dedupe_key=key) == run
        runs.append(run)
    deploy.let_go("keyed")
    await deploy.completed(new, runs)


async def _the_old_leader_is_killed(deploy, old, new, runs):
    """In the middle of runs, which start again elsewhere; the new node leads. Returns since when."""
    begun = []

    def on(nodes):
        return {run for run, _, node in deploy.noted("begin") if node in nodes and run in begun}

    while not on({"old-1"}):
        begun.append(await old.call("submit", "slow", {"name": "killed"}))
        await deploy.until(lambda: begun[-1] in on({"old-1", "old-2", "new-1"}), "a slow run has begun")
    runs += begun
    deploy.kill("old-1")
    await deploy.until(lambda: on({"old-2", "new-1"}) >= on({"old-1"}), "what was killed has begun again")
    deploy.let_go("killed")
    await deploy.leads(new, "new-1")
    return time.time()


async def _a_new_node_leads_an_old_one(deploy, old, new, runs, since):
    """The old one executes ticks that the new one plans; clients of both cancel runs. Returns the cancelled ones."""
    runs += await old.call("submit_many", *numbers())
    runs += await old.call("submit_many", *numbers("flaky"))
    runs += await new.call("submit_many", *numbers())
    later = [await client.call("submit", "count", {"number": -1}, delay=3600.0) for client in (old, new)]
    assert [await client.call("cancel", run) for client, run in zip((new, old), later, strict=True)] == ["done"] * 2
    planned = await deploy.until(lambda: new.call("planned", "tick", since), "the new leader has planned")
    planned = [run for run, _ in planned[:45]]
    cancelled = planned.pop(40)
    assert await old.call("cancel", cancelled) == "done"
    await deploy.completed(new, [*runs, *planned])
    assert {node for run, _, node in deploy.noted("done") if run in planned} == {"old-2"}
    return [*later, cancelled]


async def _an_old_node_is_started_again(deploy, new, runs):
    """It joins in; on SQLite it refuses the file and says why."""
    deploy.start("old-3", earlier=True)
    if deploy.url.startswith("sqlite:"):
        assert await deploy.ended("old-3") != 0
        said = f"has schema version {steps()[-1].version} in namespace 'rolling', but this Duly knows only version 1"
        assert said in deploy.log("old-3")
        return
    await deploy.up(new, "old-3")
    runs += await new.call("submit_many", *numbers())
    await deploy.completed(new, runs)
    assert await deploy.stop("old-3") == 0
    assert "BackendError" not in deploy.log("old-3")


async def _only_new_nodes_are_left(deploy, old, new, runs):
    """The last old node stops. An old client still submits."""
    deploy.start("new-2")
    await deploy.up(new, "new-2")
    assert await deploy.stop("old-2") == 0
    runs += await old.call("submit_many", *numbers())
    runs += await new.call("submit_many", *numbers("flaky"))
    await deploy.completed(new, runs)


# --- what became of it, as the new version reads it


def _config():
    return SchedulerConfig(namespace=NAMESPACE)


async def _all_runs(scheduler, **wanted):
    found, cursor = [], None
    while True:
        page = await scheduler.runs(limit=1000, cursor=cursor, **wanted)
        found += page.runs
        cursor = page.next
        if cursor is None:
            return found


async def _due_until(deploy, end):
    """The ids of all scheduled runs that were due by then, as soon as all of them have ended."""
    async with Scheduler(deploy.url, _config()).client() as scheduler:

        async def ended():
            due = [run for run in await _all_runs(scheduler, cause="schedule") if run.due.timestamp() <= end]
            return {run.id for run in due} if all(run.final for run in due) else None

        return await deploy.until(ended, "what was due has ended")


async def _nothing_was_lost_or_doubled(deploy, submitted, cancelled, due):
    async with Scheduler(deploy.url, _config()).client() as scheduler:
        found = {run.id: run for run in await _all_runs(scheduler)}
        assert not [run for run in found.values() if run.damage]
        assert {found[run].state for run in cancelled} == {State.CANCELLED}
        assert not {run for run, _, _ in deploy.noted("done")} & set(cancelled)
        for job, period in PERIODS.items():
            instants = sorted(run.due.timestamp() for run in found.values() if run.id in due and run.job == job)
            steps = {round((later - earlier) / period, 3) for earlier, later in itertools.pairwise(instants)}
            assert steps == {1.0}, job
        for run_id in {*submitted, *due} - set(cancelled):
            await _ended_once(deploy, scheduler, found[run_id])
        listed = json.loads(deploy.command("runs", "--limit", "10000", "--json"))
        assert {*submitted, *due} <= {run["id"] for run in listed}
        report = await Audit((await scheduler.opened()).backend.store).verify()
        assert (report.entries, report.findings, report.known) == (4, (), ())
    for job in ("solo", "turns"):
        _never_two_at_a_time(deploy, {run.id for run in found.values() if run.job == job})


async def _ended_once(deploy, scheduler, run):
    """A handler noted one success under the fence that the store has; any other belongs to an attempt that was lost."""
    done = [(fence, node) for noted, fence, node in deploy.noted("done") if noted == run.id]
    if run.state is State.SKIPPED:
        assert (run.job, run.reason, done) == ("solo", "overlap", [])
        return
    assert run.state is State.COMPLETED, run
    assert done.count((run.fence, run.node)) == 1, (run, done)
    lost = [(each.fence, each.node) for each in await scheduler.attempts(run.id) if each.outcome is OutcomeKind.LOST]
    assert all(each in lost for each in done if each != (run.fence, run.node)), (run, done, lost)


def _never_two_at_a_time(deploy, runs):
    """No run began while another one ran, but for those that were killed."""
    ended = {(run, fence) for run, fence, _ in deploy.noted("done")}
    running = set()
    for word, run, fence, _ in (line.split() for line in (deploy.folder / "notes").read_text().splitlines()):
        if run in runs and (run, int(fence)) in ended:
            if word == "begin":
                assert running == set(), (run, running)
                running.add(run)
            else:
                running.remove(run)


# --- how runs are kept while nodes of 0.1.0 are alive


async def test_a_run_that_old_nodes_may_have_to_start_waits_among_the_others(store):
    """At every station of its life. 0.1.0 fails on another place on Redis, and elsewhere takes it before all others."""
    once = RunPolicy(retry=RetrySpec(max_retries=0))
    twice = RunPolicy(retry=RetrySpec(max_retries=1, initial_interval=1.0))
    async with open_backend(store, Opening(namespace=NAMESPACE)) as backend:
        world = World(backend)
        legacy = {"cause": Cause.SCHEDULE, "legacy": True}
        held, retried = world.run("report", **legacy, hold="breaker:x"), world.run("report", **legacy, policy=twice)
        redriven, early = world.run("report", **legacy, policy=once), world.run("report", **legacy, delay=5)
        await world.put(held, retried, redriven, early)
        assert not (await world.stored(early)).legacy
        for claim in await world.claim():
            await world.settle(claim, failed())
        backlog = [world.run("mail", delay=place - 1000) for place in range(8)]
        await world.put(*backlog)
        world.advance(10)
        assert await world.queue.unhold("breaker:x", 5) == 1
        await world.store.redrive([redriven.id], now=world.now)
        if store.startswith("redis:"):
            with redis.Redis.from_url(store) as client:
                sets = [client.smembers(f"duly:{{{NAMESPACE}}}:{name}") for name in ("levels", "lanes")]
            assert not [name for name in set().union(*sets) if name.startswith(b"!")]
        assert [claim.run.id for claim in await world.claim(8)] == [run.id for run in backlog]
        assert {claim.run.id for claim in await world.claim(8)} == {run.id for run in (held, retried, redriven, early)}
