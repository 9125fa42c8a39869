"""What the stores of this folder contain: one of everything that a store can keep, written through the ports."""

from datetime import UTC, datetime, timedelta
from random import Random

import msgspec

from duly.model import (
    Beat,
    Cancelled,
    CommandSpec,
    CronSpec,
    CustomSpec,
    Delivery,
    EverySpec,
    Failed,
    Failure,
    Ids,
    Interrupted,
    JobChange,
    JobSpec,
    Lost,
    Misfire,
    Node,
    OnceSpec,
    Origin,
    Overlap,
    Pause,
    Progress,
    RetrySpec,
    RunPolicy,
    RunQuery,
    State,
    StoreLoss,
    Succeeded,
    TimedOut,
    Waiting,
    WhenFull,
)
from duly.ports import Backend
from duly.rules.misfires import MISFIRE
from duly.rules.planning import skipped
from duly.scheduler.audit import Audit
from duly.testing.conformance.world import World

NOW = datetime(2026, 11, 16, 8, 0, tzinfo=UTC)
_POLICY = RunPolicy(
    timeout=90.5,
    retry=RetrySpec(max_retries=1, initial_interval=2.5, jitter=0.25, strategy="linear"),
    delivery=Delivery.AT_LEAST_ONCE,
    on_store_loss=StoreLoss.STOP,
)
_TOKEN = {
    "id": "1f7bd4e7f10a",
    "name": "shop",
    "role": "submitter",
    "digest": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",  # of the secret "test"
    "created_at": "2026-11-16T08:00:00Z",
    "queues": ["mail"],
}


async def fill(backend: Backend) -> None:
    """Write one of everything into an empty store."""
    world = World(backend)
    world.now = NOW
    world.ids = Ids(lambda: world.now, Random(7))
    await _jobs(world)
    await _ended(world)
    await _waiting(world)
    await _running(world)
    await _small_things(world)


async def _jobs(world: World) -> None:
    nightly = JobSpec(
        name="nightly",
        handler="nightly",
        schedule=CronSpec("30 2 * * *", "Europe/Berlin", jitter=timedelta(seconds=5)),
        payload=b'{"day": "heute \xc3\xbc"}',
        queue="reports",
        priority=4,
        policy=_POLICY,
        overlap=Overlap.QUEUE,
        misfire=Misfire.ALL,
        description="Zählt den Tag",
        tags=("money", "night"),
    )
    once = JobSpec(name="once", handler="nightly", schedule=OnceSpec(world.after(3600)), max_runs=1)
    in_code = JobSpec(name="tides", handler="tides", schedule=CustomSpec("Tides"))
    files = JobSpec(
        name="backup",
        handler="duly:command",
        schedule=CronSpec("0 3 * * *", "UTC"),
        command=CommandSpec(argv=("pg_dump", "shop"), cwd="/tmp", environment={"A": "b"}),
    )
    selective = JobSpec(
        name="render", handler="render", schedule=EverySpec(timedelta(hours=1)), selector={"gpu": "yes"}
    )
    due = world.after(60)
    await world.create(
        world.record("beat", every=10.0, code_since=world.now),
        world.record("nightly", spec=nightly, cursor=due, plan_at=due, code_since=world.now),
        world.record("once", spec=once, origin=Origin.API, cursor=world.after(3600), plan_at=due),
        world.record("tides", spec=in_code, cursor=due, plan_at=due, code_since=world.now),
        world.record("backup", spec=files, origin=Origin.FILE, job_file="shop", cursor=due, plan_at=due),
        world.record("render", spec=selective, cursor=due, plan_at=due, code_since=world.now),
        world.record("paused", every=10.0, code_since=world.now),
        world.record("gone", every=10.0, code_since=world.now),
        world.record("retired", every=10.0, code_since=world.now),
        world.record("mail", every=None, code_since=world.now),
    )
    await _change(world, "paused", paused=Pause(world.now, "während des Umzugs"))
    await _change(world, "gone", waiting=Waiting.CANCEL, removed_at=world.now)
    await _change(world, "retired", retired_at=world.now)


async def _change(world: World, name: str, waiting: Waiting = Waiting.KEEP, **fields: object) -> None:
    record = await world.store.job(name)
    assert record is not None
    changed = msgspec.structs.replace(record, revision=record.revision + 1, **fields)
    [saved] = await world.store.save([JobChange(changed, record.revision, waiting)], now=world.now)
    assert saved is not None


async def _ended(world: World) -> None:
    """Runs of every final state, with their attempts."""
    traced = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    await world.put(
        world.run(payload=b'{"to": "ada@example.org"}', headers=traced),
        world.run(policy=_POLICY),
        world.run(policy=_POLICY),
        world.run(policy=RunPolicy(delivery=Delivery.AT_MOST_ONCE)),
        world.run(dedupe_key="welcome-ada"),
        world.run(),
    )
    claims = await world.claim(6)
    world.advance(1.5)
    boom = Failure("ValueError", "Gerät kaputt", "Traceback (most recent call last):\n  …")
    for claim, outcome in zip(
        claims,
        (
            Succeeded(b'{"sent": true}'),
            Failed(boom),
            TimedOut(Failure("TimeoutError", "too slow")),
            Lost(),
            Cancelled(),
            Succeeded(note="result not kept: 70000 bytes are more than max_result_bytes=65536"),
        ),
        strict=True,
    ):
        assert await world.settle(claim, outcome)
    world.advance(10)
    for claim in await world.claim(6, node="node-2"):  # the two that had a retry left
        world.advance(0.25)
        assert await world.settle(claim, Failed(boom))
    record = await world.store.job("beat")
    assert record is not None
    assert record.cursor is not None
    epoch = await world.store.install("main", 1)
    first = record.cursor
    instants = [first + timedelta(seconds=10 * step) for step in range(4)]
    firing = world.firing(record, instants[3:], instants[3] + timedelta(seconds=10))
    missed = skipped(record, instants[0], instants[2], MISFIRE)
    firing = msgspec.structs.replace(firing, runs=(missed, *firing.runs))
    await world.store.fire([firing], "main", epoch, now=world.now)


async def _waiting(world: World) -> None:
    """Runs that wait: for their time, for a worker, and under every kind of hold."""
    alone = {"group": "solo", "when_full": WhenFull.QUEUE}
    await world.put(
        world.run("later", delay=7200.0, priority=9),
        world.run("keyed", delay=7200.0, dedupe_key="order-17", queue="orders"),
        world.run("solo", **alone),
        world.run("solo", **alone),
        world.run("solo", group="skips", when_full=WhenFull.SKIP),
        world.run("solo", group="skips", when_full=WhenFull.SKIP),
        world.run("paused"),
        world.run("rare", handler="nobody_has_it"),
        world.run("render", hold="place", assignable=True),
    )
    known = {"solo", "mail", "beat"}
    for claim in await world.claim(10, handlers=known):
        assert await world.settle(claim, Interrupted(began=False))
    await world.queue.promote(100, now=world.now)
    await world.store.pause("orders")


async def _running(world: World) -> None:
    await world.put(world.run("long", queue="long"), world.run("longer", queue="long"), world.run("stop", queue="long"))
    first, second, third = await world.claim(3, node="node-3", queues=["long"], handlers={"long", "longer", "stop"})
    beats = [
        Beat(first.run.id, first.fence, Progress(3, 10, "drei von zehn")),
        Beat(second.run.id, second.fence, Progress(0.5)),
        Beat(third.run.id, third.fence),
    ]
    await world.queue.renew(beats, 15.0, now=world.now)
    await world.store.cancel([third.run.id], "by hand", now=world.now)


async def _small_things(world: World) -> None:
    store = world.store
    await store.put("token", "1f7bd4e7f10a", msgspec.json.encode(_TOKEN))
    audit = Audit(store)
    await audit.record("cli", "pause", "job paused", world.now, before={"paused": False}, after={"paused": True})
    await audit.record("shop (1f7bd4e7f10a)", "cancel", "run 1", world.now)
    await store.append("events", [b"one", b"two", b"three"], keep=2)
    node = Node("node-3", "host", 1, world.now, handlers=frozenset({"long", "longer"}), labels={"gpu": "yes"})
    await world.coordinator.announce(node, 15.0, now=world.now)
    await world.coordinator.put("setting", b"value")


async def found(backend: Backend) -> bytes:
    """All that a store says it has, as JSON text."""
    store, now = backend.store, NOW + timedelta(minutes=10)
    runs = (await store.runs(RunQuery(), 1000, now=now)).runs
    said = {
        "jobs": await store.jobs(),
        "runs": runs,
        "attempts": {run.id: await store.attempts(run.id) for run in runs},
        "statistics": await store.statistics(),
        "counts": {state: count for state, count in (await store.counts(now=now)).states.items() if count},
        "queues": (await store.counts(now=now)).queues,
        "holds": await backend.queue.holds(),
        "tokens": await store.items("token"),
        "audit": [entry.value for entry in await store.read("audit")],
        "events": [(entry.sequence, entry.value) for entry in await store.read("events")],
        "paused": sorted(await store.paused()),
        "setting": await backend.coordinator.get("setting"),
        "completed": [run.id for run in runs if run.state is State.COMPLETED],
    }
    return msgspec.json.format(msgspec.json.encode(said, order="sorted"), indent=1) + b"\n"
