"""Cluster-wide settings: a running node takes over each of them, and nothing that is stored stops it."""

import asyncio
import logging
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
from tests.conftest import eventually
from tests.postgres_stores import emptied

from duly import ConfigurationError, Context, Retention, Scheduler, SchedulerConfig
from duly.errors import PayloadTooLarge, SettingChanged
from duly.model import RunPolicy, State
from duly.model.config import CHANGEABLE
from duly.model.event import SettingsApplied
from duly.rules.cluster_settings import KEY
from duly.testing.conformance.world import World

FAST = SchedulerConfig(node_id="worker-1")


def running_config(scheduler) -> SchedulerConfig:
    return scheduler._running.client.live.config


@asynccontextmanager
async def started(url, config=FAST):
    scheduler = Scheduler(url, config)
    async with scheduler:
        yield scheduler


# --- every store


@pytest.fixture(params=["memory", "sqlite", "redis", "postgres", "etcd"])
def address(request, tmp_path):
    """Where each kind of coordinator is."""
    if request.param == "etcd":
        postgres, redis = (request.getfixturevalue(f"{name}_url") for name in ("postgres", "redis"))
        namespace = f"settings_{id(request):x}"[:32]
        parts = {"queue": redis, "coordinator": request.getfixturevalue("etcd_url")}
        return emptied(postgres), parts, SchedulerConfig(namespace=namespace)
    url = "memory://cluster" if request.param == "memory" else None
    from tests.conftest import fresh

    return url or fresh(request.param, request, tmp_path), {}, SchedulerConfig()


async def test_nodes_take_over_a_change_at_once_and_a_new_node_before_it_works(address):
    url, parts, config = address
    operator = Scheduler(url, config, **parts)
    async with operator.client(), Scheduler(url, config, **parts) as node:
        set_to = await operator.settings.set("max_concurrent", "3", by="ada")
        assert (set_to.value, set_to.origin, set_to.by, set_to.revision) == (3, "cluster", "ada", 1)
        async with asyncio.timeout(20):
            await eventually(lambda: _is(lambda: running_config(node).max_concurrent == 3))
        assert (await node.health()).slots == 3
        async with Scheduler(url, config, **parts) as late:
            assert running_config(late).max_concurrent == 3
        unset = await operator.settings.unset("max_concurrent", by="ada")
        assert (unset.value, unset.origin, unset.revision) == (10, "default", None)
        await eventually(lambda: _is(lambda: running_config(node).max_concurrent == 10))
        entries = [each.deed for each in await (await operator.opened()).audit.read(0, 10)]
        assert [(deed.actor, deed.action, deed.target, deed.before, deed.after) for deed in entries] == [
            ("ada", "set", "setting max_concurrent", None, {"value": 3}),
            ("ada", "unset", "setting max_concurrent", {"value": 3}, None),
        ]


async def _is(check):
    return check()


# --- changing


async def test_a_change_is_compared_with_the_revision():
    async with Scheduler("memory://").client() as scheduler:
        settings = scheduler.settings
        first = await settings.set("max_losses", 4, expect=0)
        await settings.set("max_concurrent", 4)
        with pytest.raises(SettingChanged, match="max_losses is at revision 1, not 0"):
            await settings.set("max_losses", 5, expect=0)
        with pytest.raises(SettingChanged, match="max_concurrent is at revision 2, not 1"):
            await settings.unset("max_concurrent", expect=1)
        second = await settings.set("max_losses", 5, expect=first.revision)
        assert (second.value, second.revision) == (5, 3)


async def test_changes_at_the_same_time_are_all_kept():
    async with Scheduler("memory://").client() as scheduler:
        names = ["max_losses", "max_concurrent", "assign_ahead", "keep_events"]
        await asyncio.gather(*[scheduler.settings.set(name, 7) for name in names])
        views = {view.name: view for view in await scheduler.settings.list()}
        assert [views[name].value for name in names] == [7] * 4
        assert sorted(views[name].revision for name in names) == [1, 2, 3, 4]


async def test_what_cannot_be_set_is_refused_and_changes_nothing():
    async with Scheduler("memory://").client() as scheduler:
        for name, value in [("lock_ttl", 5), ("max_concurent", 5), ("max_concurrent", "many")]:
            with pytest.raises(ConfigurationError):
                await scheduler.settings.set(name, value)
        with pytest.raises(ConfigurationError, match="did you mean max_losses"):
            await scheduler.settings.unset("max_loses")
        assert await (await scheduler.opened()).backend.coordinator.get(KEY) is None


async def test_the_list_says_where_each_value_comes_from():
    config = SchedulerConfig(max_losses=4, max_concurrent=6, pinned=("max_concurrent",))
    async with Scheduler("memory://", config).client() as scheduler:
        await scheduler.settings.set("max_concurrent", 9)
        await scheduler.settings.set("assign_ahead", 5)
        views = {view.name: view for view in await scheduler.settings.list()}
        assert tuple(views) == CHANGEABLE
        assert (views["max_losses"].value, views["max_losses"].origin) == (4, "config")
        assert (views["assign_ahead"].value, views["assign_ahead"].origin) == (5, "cluster")
        assert (views["tick_interval"].value, views["tick_interval"].origin) == (5.0, "default")
        pinned = views["max_concurrent"]
        assert (pinned.value, pinned.origin, pinned.stored, pinned.pinned) == (6, "config", 9, True)


# --- bad values


async def test_a_bad_stored_value_stops_no_node_and_is_reported(url):
    async with Scheduler(url).client() as operator:
        coordinator = (await operator.opened()).backend.coordinator
        bad = b'{"max_concurrent": {"value": -3, "revision": 1, "by": "ada", "at": "2027-01-01T00:00:00Z"}}'
        await coordinator.put(KEY, bad)
        async with operator:
            assert running_config(operator).max_concurrent == 10
            health = await operator.health()
            assert (health.status, health.slots) == ("degraded", 10)
            assert "max_concurrent=-3: expected a whole number" in health.reasons[0]
            findings = {finding.subject: finding for finding in await operator.examine()}
            assert findings["settings"].severity == "warning"
            await coordinator.put(KEY, b"garbage")
            await operator.settings.set("max_concurrent", 4)
            await eventually(lambda: _is(lambda: running_config(operator).max_concurrent == 4))
            assert (await operator.health()).status == "healthy"


async def test_a_pin_is_told_by_the_node_and_the_doctor():
    config = SchedulerConfig(max_concurrent=6, pinned=("max_concurrent",))
    async with started("memory://", config) as scheduler:
        await scheduler.settings.set("max_concurrent", 9)
        await scheduler.settings.set("max_losses", 4)
        await eventually(lambda: _is(lambda: running_config(scheduler).max_losses == 4))
        assert running_config(scheduler).max_concurrent == 6
        await _announced(scheduler)
        messages = [finding.message for finding in await scheduler.examine() if finding.subject.startswith("node ")]
        assert messages == ["pins max_concurrent: its own configuration holds there"]


async def _announced(scheduler):
    node = scheduler._running.node
    await (await scheduler.opened()).backend.coordinator.announce(node.card_now(), 15)


async def test_the_doctor_names_a_node_that_applies_an_older_revision():
    async with started("memory://") as scheduler:
        await scheduler.settings.set("max_losses", 4)
        await eventually(lambda: _is(lambda: running_config(scheduler).max_losses == 4))
        await _announced(scheduler)
        await (await scheduler.opened()).backend.coordinator.put(KEY, b"{}")
        said = [finding.message for finding in await scheduler.examine() if finding.subject.startswith("node ")]
        assert said == ["applies revision 1 of the cluster's settings, not 2"]


async def test_a_node_starts_while_the_settings_cannot_be_read(monkeypatch):
    from duly.backends.memory.coordinator import MemoryCoordinator
    from duly.errors import BackendUnavailable

    async def away(self, key):
        raise BackendUnavailable("away")

    monkeypatch.setattr(MemoryCoordinator, "get", away)
    async with started("memory://") as scheduler:
        assert running_config(scheduler) == FAST
        monkeypatch.undo()
        await scheduler.settings.set("max_losses", 4)
        await eventually(lambda: _is(lambda: running_config(scheduler).max_losses == 4))


# --- what each setting does in a running node


class Gate:
    """Handlers that wait until they are let go."""

    def __init__(self, scheduler):
        self.running = 0
        self.open = asyncio.Event()
        self.scheduler = scheduler

        @scheduler.job
        async def wait_here():
            self.running += 1
            await self.open.wait()

        self.job = wait_here


async def applied(scheduler, name, value):
    """Set a value, and return when the running node has it."""
    events = []
    end = scheduler.subscribe(events.append, SettingsApplied)
    try:
        await scheduler.settings.set(name, value)
        await eventually(lambda: _is(lambda: events), f"{name} is applied")
    finally:
        end()
    [event] = events
    assert event.problems == ()
    return event.changes


async def test_max_concurrent_gives_more_slots_and_fewer():
    scheduler = Scheduler("memory://", SchedulerConfig(max_concurrent=1))
    gate = Gate(scheduler)
    async with scheduler:
        for _ in range(5):
            await scheduler.submit(gate.job)
        await eventually(lambda: _is(lambda: gate.running == 1))
        assert await applied(scheduler, "max_concurrent", 3) == ("max_concurrent 1 → 3",)
        await eventually(lambda: _is(lambda: gate.running == 3))
        assert scheduler._running.node.card_now().capacity == 3
        await applied(scheduler, "max_concurrent", 2)
        assert scheduler._running.node.worker.room == -1  # what runs may end
        gate.open.set()
        await eventually(lambda: _is(lambda: gate.running == 5))


@pytest.mark.parametrize(("only", "both"), [("default", "default,mail"), ("default=1", "default=1,mail=3")])
async def test_queues_are_those_that_a_node_takes_runs_from(url, only, both):
    scheduler = Scheduler(url, FAST)

    @scheduler.job(queue="mail")
    async def send() -> str:
        return "sent"

    @scheduler.job
    async def work() -> str:
        return "done"

    async with scheduler:
        await scheduler.settings.set("queues", only)
        await eventually(lambda: _is(lambda: running_config(scheduler).queue_names == ("default",)))
        run = await send.submit()
        assert await (await work.submit()).result(20) == "done"
        assert (await run.get()).state is State.QUEUED
        await scheduler.settings.set("queues", both)
        assert await run.result(20) == "sent"

        async def announced():
            return (await scheduler.nodes())[0].queues == ("default", "mail")

        await eventually(announced)
        await scheduler.settings.unset("queues")
        await eventually(lambda: _is(lambda: running_config(scheduler).queues is None))


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("default, mail", "default,mail"),
        (["default", "mail"], "default,mail"),
        ({"mail": 3, "default": 0.5}, "mail=3,default=0.5"),
        ("none", None),
        (None, None),
    ],
)
async def test_queues_are_written_in_several_ways(given, stored):
    async with Scheduler("memory://").client() as scheduler:
        view = await scheduler.settings.set("queues", given)
        assert (view.value, view.origin) == (stored, "cluster")


@pytest.mark.parametrize(
    "wrong", ["", " , ", "mail=x", "mail=", "mail=0", "mail=nan", [1], {"mail": "x"}, 7, True, b"x"]
)
async def test_what_is_no_queue_is_refused(wrong):
    async with Scheduler("memory://").client() as scheduler:
        with pytest.raises(ConfigurationError, match="queues"):
            await scheduler.settings.set("queues", wrong)


async def test_tick_interval_is_how_long_services_sleep():
    async with started("memory://", SchedulerConfig(tick_interval=3600)) as scheduler:
        node = scheduler._running.node
        assert await node.dispatcher.tick() == 3600
        await applied(scheduler, "tick_interval", "250ms")
        assert await node.dispatcher.tick() == 0.25
        assert await node.worker.tick() == 0.25


async def test_misfire_grace_holds_for_runs_that_are_planned_from_then_on():
    from duly.testing import Harness

    async with started("memory://") as scheduler:
        node = scheduler._running.node
        assert node._env.config.grace == timedelta(seconds=60)
        await applied(scheduler, "misfire_grace", "5m")
        assert node._env.config.grace == timedelta(minutes=5)
    assert Harness  # planning with a grace is tested in tests/rules/test_planning.py


async def test_max_losses_is_how_often_a_worker_may_vanish():
    async with started("memory://") as scheduler:
        node = scheduler._running.node
        await applied(scheduler, "max_losses", 5)
        world = World((await scheduler.opened()).backend)
        run = world.run(losses=2, policy=RunPolicy())
        await world.put(run)
        [claim] = await world.claim(node="other")
        node.reaper._settle(claim, 0.0, "")
        await node.settler.flush()
        stored = await world.stored(run)
        assert (stored.losses, stored.hold) == (3, None)  # with 3 it would be tried alone by now


async def test_assign_ahead_is_how_many_upcoming_runs_a_node_gets():
    config = SchedulerConfig(placement="assign", assign_ahead=1)
    scheduler = Scheduler("memory://", config)
    gate = Gate(scheduler)

    async def given():
        shares = await (await scheduler.opened()).backend.queue.assigned()
        return sum(share.upcoming for share in shares.values())

    async with scheduler:
        for _ in range(5):
            await scheduler.submit(gate.job, delay=20)
        await eventually(lambda: _holds(given, 1))
        await applied(scheduler, "assign_ahead", 3)
        await eventually(lambda: _holds(given, 3))


async def _holds(ask, wanted):
    return await ask() == wanted


async def test_shutdown_timeout_is_how_long_a_stop_waits():
    async with started("memory://") as scheduler:
        assert scheduler.patience == 30
        await applied(scheduler, "shutdown_timeout", "none")
        assert scheduler.patience is None
        await applied(scheduler, "shutdown_timeout", "1s")
        assert scheduler.patience == 1


async def test_transaction_timeout_is_how_long_a_transaction_may_take(tmp_path):
    scheduler = Scheduler(f"sqlite:///{tmp_path}/t.db", SchedulerConfig(transaction_timeout=5))
    ended = []

    @scheduler.job(delivery="exactly_once", retry=None)
    async def slow(ctx: Context):
        try:
            async with ctx.transaction():
                await asyncio.sleep(60)
        finally:
            ended.append(True)

    async with scheduler:
        await applied(scheduler, "transaction_timeout", "50ms")
        run = await scheduler.submit(slow)
        await eventually(lambda: _is(lambda: ended))
        await eventually(lambda: _is_failed(run))


async def _is_failed(run):
    return (await run.get()).state is State.FAILED


async def test_max_payload_bytes_bounds_submissions():
    scheduler = Scheduler("memory://")

    @scheduler.job
    async def greet(name: str) -> None: ...

    async with scheduler:
        await scheduler.submit(greet, {"name": "x" * 1000})
        await applied(scheduler, "max_payload_bytes", 100)
        with pytest.raises(PayloadTooLarge):
            await scheduler.submit(greet, {"name": "x" * 1000})


async def test_keep_events_is_how_many_events_stay():
    scheduler = Scheduler("memory://", SchedulerConfig(publish_events=True))

    @scheduler.job
    async def greet() -> None: ...

    async with scheduler:
        await applied(scheduler, "keep_events", 3)
        for _ in range(5):
            await (await scheduler.submit(greet)).result(timeout=30)
        store = (await scheduler.opened()).backend.store
        await eventually(lambda: _at_most(store, 3))


async def _at_most(store, number):
    entries = await store.read("events", 0, 100)
    return entries and entries[-1].sequence > 5 and len(entries) <= number


@pytest.mark.parametrize(
    ("name", "value", "state"),
    [
        ("retention.completed", 0, State.COMPLETED),
        ("retention.failed", 0, State.FAILED),
        ("retention.cancelled", 0, State.CANCELLED),
        ("retention.lost", 0, State.LOST),
        ("retention.skipped", 0, State.SKIPPED),
        ("retention.max_completed", 0, State.COMPLETED),
    ],
)
async def test_retention_deletes_what_is_older_at_once(name, value, state):
    scheduler = Scheduler("memory://", SchedulerConfig(retention=Retention()))
    async with scheduler:
        await eventually(lambda: _is(lambda: scheduler._running.node.elector.leads))
        backend = (await scheduler.opened()).backend
        long_ago = datetime.now(UTC) - timedelta(seconds=5)
        run = World(backend).run(state=state, finished_at=long_ago)
        backend.contents.runs.save(run)
        await scheduler._running.node.janitor.tick()
        assert await backend.store.run(run.id) is not None
        await applied(scheduler, name, value)
        await eventually(lambda: _gone(backend.store, run.id))


async def _gone(store, run_id):
    return await store.run(run_id) is None


async def test_log_level_is_that_of_the_loggers_of_duly():
    logger = logging.getLogger("duly")
    before = logger.level
    async with started("memory://") as scheduler:
        await applied(scheduler, "log_level", "ERROR")
        assert (logger.level, logging.getLogger("duly.run").getEffectiveLevel()) == (logging.ERROR, logging.ERROR)
        await applied(scheduler, "log_level", "debug")
        assert logger.level == logging.DEBUG
        await scheduler.settings.unset("log_level")
        await eventually(lambda: _is(lambda: logger.level == before))
        await applied(scheduler, "log_level", "ERROR")
    assert logger.level == before
