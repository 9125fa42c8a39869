"""The toy scheduler in a storm: every promise is kept; break it on purpose, and the checker says which."""

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace

from duly.backends.memory import MemoryBackend
from duly.backends.memory.queue import MemoryQueue
from duly.model import Delivery, EverySpec, JobRecord, JobSpec, Origin, RunPolicy, State, shift
from duly.testing.sim import FaultPlan, SimCluster, check, no_silent_miss, nothing_left_behind, read

from .hand import every
from .stage import Stage
from .toy import LEASE, Operator, ToyNode

STORM, QUIET, PATIENCE = 30.0, 60.0, 25.0


def _job(stage, name, interval, delivery=Delivery.AT_LEAST_ONCE):
    now = stage.clock.now()
    return JobRecord(
        uid=stage.ids.new(),
        spec=JobSpec(
            name=name,
            handler=name,
            schedule=EverySpec(timedelta(seconds=interval)),
            policy=RunPolicy(delivery=delivery),
        ),
        revision=1,
        origin=Origin.CODE,
        created_at=now,
        updated_at=now,
        cursor=shift(now, interval),
        plan_at=now,
    )


def played(seed, *, node=ToyNode, backend=MemoryBackend, storm=None):
    """The stage after a storm and a quiet time."""
    stage = Stage(seed, backend=backend, max_steps=3_000_000)

    async def serve(node_id, session):
        await node(stage.history, node_id, session, session.clock, seed).serve()

    async def main():
        cluster, operator = SimCluster(stage.network, serve), Operator(stage)
        for name in ("n1", "n2", "n3"):
            cluster.start(name)
        await operator.register(_job(stage, "report", 4), _job(stage, "digest", 7, Delivery.AT_MOST_ONCE))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(operator.work(STORM))
            tasks.create_task((storm or FaultPlan()).rage(cluster, stage.clock, STORM))
        await asyncio.sleep(QUIET)

    stage.play(main())
    return stage


def violations(stage):
    facts = read(stage.history)
    until = shift(stage.clock.now(), -PATIENCE)
    return [
        *check(facts, every),
        *no_silent_miss(facts, every, until),
        *nothing_left_behind(stage.history, facts, patience=PATIENCE),
    ]


def _report(seed, found):
    return f"seed {seed}: {len(found)} violations\n\n" + "\n\n".join(map(str, found[:3]))


@pytest.mark.parametrize("block", range(12))
def test_every_promise_is_kept(block):
    for seed in range(block * 9, block * 9 + 9):
        found = violations(played(seed))
        assert not found, _report(seed, found)


@pytest.mark.parametrize("seed", range(6))
def test_a_store_whose_clock_steps_breaks_no_promise(seed):
    found = [each for each in violations(played(seed, storm=FaultPlan(steps=6))) if each.invariant != "L1"]
    assert not found, _report(seed, found)


def test_the_storm_is_one():
    """What a checker says about fair weather is worth little: see that there was none."""
    facts = [fact for seed in range(10) for fact in read(played(seed).history)]
    told = "\n".join(fact.tell() for fact in facts)
    for word in ("lapsed", "refused", "accepted as a repeat", "(again)", "skipped", "lost", "joined group", "killed"):
        assert word in told, word


def test_the_same_seed_gives_the_same_history():
    assert played(5).history.events == played(5).history.events


# --- broken on purpose


class FencelessQueue(MemoryQueue):
    """Settles whatever it is told to settle."""

    async def settle(self, settlements):
        present = [self._runs.by_id.get(settlement.run_id) for settlement in settlements]
        return await super().settle(
            [replace(s, fence=run.fence) if run else s for s, run in zip(settlements, present, strict=True)]
        )


class FencelessBackend(MemoryBackend):
    def __init__(self, contents, url="memory://"):
        super().__init__(contents, url)
        self.queue = FencelessQueue(contents)


class Redelivering(ToyNode):
    """Takes at most once for at least once."""

    def lost(self, claim):
        return replace(super().lost(claim), state=State.PENDING)


class Impatient(ToyNode):
    """Begins a claim again when the store is slow to hear of its end."""

    async def _settle(self, settlements):
        self.history.begin(settlements[0].job, settlements[0].run_id, settlements[0].fence)
        await super()._settle(settlements)


class Forgetful(ToyNode):
    """Never reaps."""

    async def _reap(self):
        await asyncio.Event().wait()


def _found(**options):
    return {violation.invariant for seed in range(8) for violation in violations(played(seed, **options))}


def test_a_store_without_fences_is_found_out():
    assert "I4" in _found(backend=FencelessBackend)


def test_a_second_delivery_of_an_at_most_once_run_is_found_out():
    assert {"I11", "I12"} <= _found(node=Redelivering)


def test_a_claim_begun_twice_is_found_out():
    assert "I7" in _found(node=Impatient)


def test_runs_of_dead_nodes_that_nobody_takes_over_are_found_out():
    assert {"L4"} <= _found(node=Forgetful)


def test_the_lease_is_shorter_than_the_patience():
    assert LEASE < PATIENCE
