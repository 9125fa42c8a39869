"""What every store must do with dedupe keys: one run has one, while it is unfinished or for as long as it asked."""

from __future__ import annotations

from typing import Any

from duly.model import Put, RedriveReply, RetrySpec, Run, RunPolicy, State
from duly.testing.conformance.world import World, failed, part, scenario

_HOUR = 3600.0
_NO_RETRY = RunPolicy(retry=RetrySpec(max_retries=0))


def _keyed(world: World, unique_for: float | None = _HOUR, **fields: Any) -> Run:
    wanted: dict[str, Any] = {"dedupe_key": "k", "policy": _NO_RETRY, "unique_for": unique_for}
    return world.run(**wanted | fields)


async def _complete(world: World) -> None:
    [claim] = await world.claim()
    assert await world.settle(claim)


@part
class UniqueSuite:
    """Keys that outlast their runs, what ends them, and what answers say about the first run."""

    @scenario
    async def test_an_answer_tells_when_the_run_was_accepted(self, world: World) -> None:
        plain, keyed = world.run(), _keyed(world, None)
        first = world.now
        assert await world.put(plain, keyed) == [Put(plain.id, True, first), Put(keyed.id, True, first)]
        world.advance(5)
        new, twin = world.run(), _keyed(world, None)
        assert await world.put(plain, new, keyed, twin) == [
            Put(plain.id, False, first),
            Put(new.id, True, world.now),
            Put(keyed.id, False, first),
            Put(keyed.id, False, first),
        ]
        assert (await world.stored(plain)).created_at == first
        later = [world.run(), world.run()]
        assert [put.created_at for put in await world.put(later[0], later[1], later[0])] == [world.now] * 3

    @scenario
    async def test_without_a_time_only_an_unfinished_run_has_its_key(self, world: World) -> None:
        await world.put(first := _keyed(world, None))
        await _complete(world)
        [put] = await world.put(second := _keyed(world, None))
        assert put == Put(second.id, True, world.now)
        assert first.id != second.id

    @scenario
    async def test_within_its_time_a_key_answers_with_the_first_run_whatever_its_state(self, world: World) -> None:
        await world.put(first := _keyed(world))
        accepted = world.now
        again = Put(first.id, False, accepted)
        world.advance(10)
        assert await world.put(_keyed(world)) == [again]  # it waits
        [claim] = await world.claim()
        assert await world.put(_keyed(world, None)) == [again]  # it runs
        assert await world.settle(claim, failed())
        assert await world.put(_keyed(world), _keyed(world, 5.0)) == [again, again]  # it has failed
        assert (await world.stored(first)).created_at == accepted
        assert (await world.stored(first)).unique_for is None
        world.advance(_HOUR - 10.001)
        assert await world.put(_keyed(world)) == [again]
        world.advance(0.001)
        [put] = await world.put(second := _keyed(world))
        assert put == Put(second.id, True, world.now)

    @scenario
    async def test_an_unfinished_run_has_its_key_beyond_its_time(self, world: World) -> None:
        await world.put(first := _keyed(world, 5.0))
        accepted = world.now
        world.advance(10)
        assert await world.put(_keyed(world)) == [Put(first.id, False, accepted)]
        await _complete(world)
        assert (await world.put(_keyed(world)))[0].created

    @scenario
    async def test_a_key_belongs_to_its_handler(self, world: World) -> None:
        await world.put(_keyed(world, job="mail"))
        assert (await world.put(_keyed(world, job="sms"), _keyed(world, dedupe_key="other")))[0].created
        assert not (await world.put(_keyed(world, job="mail")))[0].created

    @scenario
    async def test_neither_cancelling_nor_redriving_nor_purging_frees_a_key_early(self, world: World) -> None:
        await world.put(first := _keyed(world))
        again = Put(first.id, False, world.now)
        await world.store.cancel([first.id], now=world.now)
        assert await world.put(_keyed(world)) == [again]
        assert await world.store.redrive([first.id], now=world.now) == [RedriveReply.DONE]
        assert await world.put(_keyed(world)) == [again]
        await _complete(world)
        assert await world.put(_keyed(world)) == [again]
        world.advance(60)
        assert await world.store.purge(State.COMPLETED, world.now, None, 10) == 1
        assert await world.state(first) is None
        assert await world.put(_keyed(world)) == [again]

    @scenario
    async def test_removing_a_job_does_not_free_the_keys_of_its_runs(self, world: World) -> None:
        await world.create(world.record("mail", every=None))
        await world.put(first := _keyed(world))
        again = Put(first.id, False, world.now)
        assert await world.store.remove("mail", 1, now=world.now)
        assert await world.state(first) is State.CANCELLED
        assert await world.put(_keyed(world)) == [again]

    @scenario
    async def test_a_run_is_not_redriven_while_another_is_unique_under_its_key(self, world: World) -> None:
        await world.put(first := _keyed(world, 5.0))
        await world.store.cancel([first.id], now=world.now)
        world.advance(5)
        await world.put(second := _keyed(world))
        await _complete(world)
        assert await world.store.redrive([first.id], now=world.now) == [RedriveReply.DUPLICATE]
        world.advance(_HOUR)
        assert await world.store.redrive([first.id], now=world.now) == [RedriveReply.DONE]
        assert (await world.put(_keyed(world)))[0].id == first.id
        assert second.id != first.id

    @scenario
    async def test_one_batch_knows_its_own_keys(self, world: World) -> None:
        first, second, other = _keyed(world), _keyed(world, None), _keyed(world, dedupe_key="other")
        assert [(put.id, put.created) for put in await world.put(first, second, other, first)] == [
            (first.id, True),
            (first.id, False),
            (other.id, True),
            (first.id, False),
        ]

    @scenario
    async def test_a_repeated_put_finds_its_own_run(self, world: World) -> None:
        """The answer to the first call was lost: the repeat must neither add a run nor name one that does not exist."""
        first = _keyed(world)
        accepted = world.now
        await world.put(first)
        world.advance(1)
        assert await world.put(first) == [Put(first.id, False, accepted)]
        await _complete(world)
        assert await world.put(first) == [Put(first.id, False, accepted)]

    @scenario
    async def test_keys_whose_time_has_passed_are_deleted_in_slices(self, world: World) -> None:
        runs = [_keyed(world, 10.0 + number % 3, dedupe_key=f"k{number}") for number in range(30)]
        await world.put(*runs, lasting := _keyed(world))
        for claim in await world.claim():
            assert await world.settle(claim)
        assert await world.store.expire(100, now=world.now) == 0
        world.advance(11)
        assert await world.store.expire(15, now=world.now) == 15
        assert await world.store.expire(15, now=world.now) == 5
        world.advance(10)
        assert (await world.put(_keyed(world, dedupe_key="k2")))[0].created  # takes the place of one that has passed
        assert await world.store.expire(100, now=world.now) == 9
        assert await world.store.expire(100, now=world.now) == 0
        assert await world.put(_keyed(world)) == [Put(lasting.id, False, world.after(-21))]

    @scenario
    async def test_a_time_that_has_passed_is_deleted_though_a_later_run_has_the_key(self, world: World) -> None:
        await world.put(_keyed(world, 5.0))
        await _complete(world)
        world.advance(10)
        await world.put(second := _keyed(world, None))
        accepted = world.now
        assert await world.store.expire(100, now=world.now) == 1
        assert await world.put(_keyed(world)) == [Put(second.id, False, accepted)]

    @scenario
    async def test_an_unfinished_run_keeps_its_key_when_its_time_is_deleted(self, world: World) -> None:
        await world.put(first := _keyed(world, 5.0))
        accepted = world.now
        world.advance(10)
        assert await world.store.expire(100, now=world.now) == 1
        assert await world.put(_keyed(world)) == [Put(first.id, False, accepted)]
