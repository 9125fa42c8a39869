"""What every store must do with many runs in one call: the same as with one after the other, however it treats them.

More runs than a store treats at once, of every kind in one batch: unknown, named twice, waiting, held, in groups, with
dedupe keys, running, ended.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from duly.model import CancelReply, RedriveReply, RetrySpec, Run, RunPolicy, RunQuery, State, WhenFull
from duly.rules.admission import REMOVED
from duly.testing.conformance.world import World, failed, part, scenario

MANY = 2_300
_NO_RETRY = RunPolicy(retry=RetrySpec(max_retries=0))


async def _put(world: World, number: int, **fields: Any) -> list[Run]:
    runs = [world.run(**fields) for _ in range(number)]
    await world.put(*runs)
    return runs


async def _fail(world: World, runs: list[Run]) -> None:
    """Claim all that waits, which is these runs, and fail it."""
    claims = await world.claim(len(runs))
    assert {claim.run.id for claim in claims} == {run.id for run in runs}
    assert all(await world.queue.settle([world.settlement(claim, failed()) for claim in claims]))


async def _states(world: World) -> dict[str, State]:
    """Every run's state by id."""
    page = await world.store.runs(RunQuery(), 10 * MANY, now=world.now)
    return {run.id: run.state for run in page.runs}


@part
class BulkSuite:
    """Cancelling, redriving and removing many."""

    @scenario
    async def test_a_large_mixed_batch_is_cancelled_as_one_by_one(self, world: World) -> None:
        running = await _put(world, 50)
        assert len(await world.claim(50)) == 50
        ended = await _put(world, 50, policy=_NO_RETRY)
        await _fail(world, ended)
        waiting = await _put(world, MANY, delay=60)
        keyed = [world.run(dedupe_key=f"k{number}", delay=60) for number in range(50)]
        await world.put(*keyed)
        held = await _put(world, 50, delay=60, hold="breaker:x")
        line = await _put(world, 50, group="g", when_full=WhenFull.QUEUE)
        await world.queue.promote(1000, now=world.now)
        assert await world.queue.holds() == {"breaker:x": 50, "group:g": 49}
        stays = line[-1]

        named = [*running, *ended, *waiting, *keyed, *held, *line[:-1]]
        ids = [run.id for run in named] + ["0none", waiting[0].id, running[0].id, ended[0].id, "0none"]
        replies = await world.store.cancel(ids, "by ada", now=world.now)

        expected = [CancelReply.REQUESTED] * 50 + [CancelReply.TOO_LATE] * 50 + [CancelReply.DONE] * (MANY + 149)
        again = [CancelReply.TOO_LATE, CancelReply.REQUESTED, CancelReply.TOO_LATE, CancelReply.UNKNOWN]
        assert replies == [*expected, CancelReply.UNKNOWN, *again]
        states = await _states(world)
        assert {states[run.id] for run in running} == {State.RUNNING}
        assert {states[run.id] for run in ended} == {State.FAILED}
        assert {states[run.id] for run in [*waiting, *keyed, *held, *line[:-1]]} == {State.CANCELLED}
        assert await world.queue.holds() == {}  # the last in line was let in: no member is left to release it
        assert [claim.run.id for claim in await world.claim()] == [stays.id]
        assert all(put.created for put in await world.put(*[world.run(dedupe_key=f"k{n}") for n in range(50)]))
        counts = await world.store.counts(now=world.now)
        assert (counts.states[State.CANCELLED], counts.states[State.FAILED]) == (MANY + 149, 50)

    @scenario
    async def test_a_large_mixed_batch_is_redriven_as_one_by_one(self, world: World) -> None:
        unwell = await _put(world, MANY, policy=_NO_RETRY)
        keyed = [world.run(dedupe_key=f"k{number}", policy=_NO_RETRY) for number in range(50)]
        await world.put(*keyed)
        await _fail(world, [*unwell, *keyed])
        twins = [world.run(dedupe_key=f"k{number}") for number in range(50)]
        await world.put(*twins)
        await world.store.cancel([run.id for run in twins], now=world.now)
        owned = [world.run(dedupe_key=f"taken{number}") for number in range(50)]
        await world.put(*owned)
        await world.store.cancel([run.id for run in owned], now=world.now)
        owners = [world.run(dedupe_key=f"taken{number}", delay=60) for number in range(50)]
        await world.put(*owners)
        grouped = await _put(world, 50, group="g", when_full=WhenFull.QUEUE)
        await world.store.cancel([run.id for run in grouped], now=world.now)
        world.advance(5)

        named = [*unwell, *keyed, *twins, *owned, *grouped, *owners]
        ids = [run.id for run in named] + ["0none", unwell[0].id, keyed[0].id]
        replies = await world.store.redrive(ids, now=world.now)

        done = [RedriveReply.DONE] * (MANY + 50)
        others = [RedriveReply.DUPLICATE] * 100 + [RedriveReply.DONE] * 50 + [RedriveReply.NOT_ENDED] * 50
        assert replies == [*done, *others, RedriveReply.UNKNOWN, RedriveReply.NOT_ENDED, RedriveReply.NOT_ENDED]
        begun = {run.id for run in [*unwell, *keyed, grouped[0]]}
        claims = await world.claim(2 * MANY)
        assert {claim.run.id for claim in claims} == begun
        assert {claim.run.failures for claim in claims} == {0}
        assert await world.queue.holds() == {"group:g": 49}
        counts = await world.store.counts(now=world.now)
        assert counts.states[State.RUNNING] == MANY + 51

    @scenario
    async def test_a_job_is_removed_with_all_its_waiting_runs(self, world: World) -> None:
        await world.create(world.record("mail", every=None))
        other = await _put(world, 10, job="sms", delay=60)
        [running] = await _put(world, 1)
        await world.claim()
        waiting = await _put(world, MANY, delay=60)
        grouped = await _put(world, 100, group="mail", when_full=WhenFull.QUEUE)
        await world.queue.promote(1000, now=world.now)
        assert await world.queue.holds() == {"group:mail": 99}
        assert await world.store.remove("mail", 7, now=world.now) is False
        states = await _states(world)
        assert {states[run.id] for run in waiting} == {State.PENDING}

        assert await world.store.remove("mail", 1, now=world.now)
        states = await _states(world)
        assert {states[run.id] for run in [*waiting, *grouped]} == {State.CANCELLED}
        assert {states[run.id] for run in other} == {State.PENDING}
        assert states[running.id] is State.RUNNING
        assert await world.queue.holds() == {}
        stored = await world.stored(waiting[-1])
        assert (stored.reason, stored.finished_at) == (REMOVED, world.now)

    @scenario
    async def test_a_claim_that_is_settled_twice_in_one_batch_ends_once(self, world: World) -> None:
        await world.put(*[world.run() for _ in range(3)])
        first, second, third = [world.settlement(claim) for claim in await world.claim()]
        assert await world.queue.settle([second, first, second, third]) == [True] * 4
        assert (await world.store.statistics())["mail"].run_count == 3
        assert (await world.store.counts()).states[State.COMPLETED] == 3

    @scenario
    async def test_a_batch_frees_the_keys_of_those_that_ended_only(self, world: World) -> None:
        keyed = [world.run(dedupe_key=f"key-{number}") for number in range(3)]
        await world.put(*keyed, world.run())
        ended, wished, stale, plain = await world.claim()
        assert await world.store.cancel([wished.run.id])
        settlements = [world.settlement(claim) for claim in (ended, wished, stale, plain)]
        settlements[2] = replace(settlements[2], fence=stale.fence - 1000)
        assert await world.queue.settle(settlements) == [True, True, False, True]
        again = await world.put(*[world.run(dedupe_key=f"key-{number}") for number in range(3)])
        assert [put.created for put in again] == [True, True, False]
