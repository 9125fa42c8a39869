"""What a store with transactions must do: effects and completion commit together, or neither."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from duly.errors import BackendError, ClaimLost
from duly.model import Claim, Delivery, RunPolicy, State
from duly.testing.conformance.world import LEASE, World, part, scenario

_EXACTLY_ONCE = RunPolicy(delivery=Delivery.EXACTLY_ONCE)


async def _claimed(world: World) -> Claim:
    await world.put(world.run(policy=_EXACTLY_ONCE))
    [claim] = await world.claim()
    return claim


@part
class TransactionSuite:
    """Without the capability each scenario checks that the store says so instead."""

    async def _refused(self, world: World) -> bool:
        if world.backend.capabilities.transactions:
            claim = await _claimed(world)
            async with world.store.transaction(claim, timeout=5) as transaction:
                await transaction.execute("CREATE TABLE ledger (amount INTEGER)")
            return False
        claim = await _claimed(world)
        with pytest.raises(BackendError, match="transaction"):
            world.store.transaction(claim, timeout=5)
        with pytest.raises(BackendError, match="transaction"):
            world.store.within(object())
        return True

    async def _ledger(self, world: World) -> list[int]:
        """What is in the user's table, read through a transaction that is rolled back."""
        claim = await _claimed(world)
        rows: list[tuple[int]] = []
        with pytest.raises(LookupError):
            async with world.store.transaction(claim, timeout=5) as transaction:
                rows = await transaction.execute("SELECT amount FROM ledger ORDER BY amount")
                raise LookupError
        await world.settle(claim)
        return [amount for (amount,) in rows]

    @scenario
    async def test_effects_and_completion_commit_together(self, world: World) -> None:
        if await self._refused(world):
            return
        claim = await _claimed(world)
        async with world.store.transaction(claim, timeout=5) as transaction:
            await transaction.execute("INSERT INTO ledger VALUES (1)")
            await transaction.execute("INSERT INTO ledger VALUES (2)")
        stored = await world.stored(claim.run)
        assert (stored.state, stored.fence) == (State.COMPLETED, claim.fence)
        assert await self._ledger(world) == [1, 2]
        assert (await world.store.statistics())["mail"].completed >= 1

    @scenario
    async def test_a_result_may_follow_the_commit(self, world: World) -> None:
        if await self._refused(world):
            return
        claim = await _claimed(world)
        async with world.store.transaction(claim, timeout=5) as transaction:
            await transaction.execute("INSERT INTO ledger VALUES (1)")
        with_result = replace(world.settlement(claim), result=b"42")
        assert all(await world.queue.settle([with_result]))
        assert (await world.stored(claim.run)).result == b"42"

    @scenario
    async def test_an_exception_rolls_back_both(self, world: World) -> None:
        if await self._refused(world):
            return
        claim = await _claimed(world)
        with pytest.raises(ZeroDivisionError):
            async with world.store.transaction(claim, timeout=5) as transaction:
                await transaction.execute("INSERT INTO ledger VALUES (1)")
                _ = 1 / 0
        assert await world.state(claim.run) is State.RUNNING
        assert await self._ledger(world) == []

    @scenario
    async def test_a_stale_attempt_cannot_commit(self, world: World) -> None:
        if await self._refused(world):
            return
        claim = await _claimed(world)
        world.advance(LEASE)
        [taken] = await world.queue.reap(10, LEASE, now=world.now)
        with pytest.raises(ClaimLost):
            async with world.store.transaction(claim, timeout=5) as transaction:
                await transaction.execute("INSERT INTO ledger VALUES (1)")
        assert await world.state(claim.run) is State.RUNNING
        assert await self._ledger(world) == []
        async with world.store.transaction(taken, timeout=5) as transaction:
            await transaction.execute("INSERT INTO ledger VALUES (2)")
        assert await self._ledger(world) == [2]

    @scenario
    async def test_submissions_inside_join_the_transaction(self, world: World) -> None:
        if await self._refused(world):
            return
        claim, run = await _claimed(world), world.run("follow-up")
        with pytest.raises(ZeroDivisionError):
            async with world.store.transaction(claim, timeout=5) as transaction:
                await transaction.put([run])
                _ = 1 / 0
        assert await world.state(run) is None
        async with world.store.transaction(claim, timeout=5) as transaction:
            [put] = await transaction.put([run])
            assert put.created
        assert await world.state(run) is State.QUEUED

    @scenario
    async def test_a_transaction_that_takes_too_long_is_rolled_back(self, world: World) -> None:
        if await self._refused(world):
            return
        claim = await _claimed(world)
        with pytest.raises(TimeoutError):
            async with world.store.transaction(claim, timeout=0.05) as transaction:
                await transaction.execute("INSERT INTO ledger VALUES (1)")
                await asyncio.sleep(30)
        assert await world.state(claim.run) is State.RUNNING
        assert await self._ledger(world) == []

    @scenario
    async def test_a_broken_statement_is_the_users_to_handle(self, world: World) -> None:
        if await self._refused(world):
            return
        claim = await _claimed(world)
        with pytest.raises(Exception, match="nonsense"):
            async with world.store.transaction(claim, timeout=5) as transaction:
                await transaction.execute("SELECT nonsense FROM ledger")
        assert await world.state(claim.run) is State.RUNNING
        assert await world.settle(claim)
