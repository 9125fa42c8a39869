"""Transactions on SQLite: blocks beside the writer, what may not be done inside, and a user's own connection."""

import asyncio
import sqlite3

import pytest

from duly.backends.sqlite import open_url
from duly.errors import BackendError, BackendUnavailable, ClaimLost
from duly.model import Delivery, RunPolicy, State
from duly.ports import Opening
from duly.testing.conformance import World

_EXACTLY_ONCE = RunPolicy(delivery=Delivery.EXACTLY_ONCE)
_ENDLESS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


@pytest.fixture
async def backend(tmp_path):
    with sqlite3.connect(tmp_path / "jobs.db") as connection:
        connection.execute("CREATE TABLE ledger (amount INTEGER)")
    connection.close()
    async with open_url(f"sqlite:///{tmp_path}/jobs.db", Opening()) as opened:
        yield opened


@pytest.fixture
def world(backend):
    return World(backend)


async def _claimed(world: World):
    await world.put(world.run(policy=_EXACTLY_ONCE))
    [claim] = await world.claim(1)
    return claim


async def _ledger(backend) -> list[int]:
    rows = await backend._session.read(lambda unit: unit.all("SELECT amount FROM ledger ORDER BY amount"))
    return [amount for (amount,) in rows]


# --- blocks


async def test_statements_take_parameters_and_return_rows(backend, world):
    async with backend.store.transaction(await _claimed(world), timeout=30) as transaction:
        assert await transaction.execute("INSERT INTO ledger VALUES (?)", (5,)) == []
        assert await transaction.execute("SELECT amount + :more FROM ledger", {"more": 2}) == [(7,)]
    assert await _ledger(backend) == [5]


async def test_an_attempt_completes_once(backend, world):
    claim = await _claimed(world)
    async with backend.store.transaction(claim, timeout=30) as transaction:
        await transaction.execute("INSERT INTO ledger VALUES (1)")
    with pytest.raises(ClaimLost):
        async with backend.store.transaction(claim, timeout=30) as transaction:
            await transaction.execute("INSERT INTO ledger VALUES (2)")
    assert await _ledger(backend) == [1]


async def test_other_writes_inside_the_block_are_refused_instead_of_waiting_for_themselves(backend, world):
    claim = await _claimed(world)
    async with backend.store.transaction(claim, timeout=30) as transaction:
        with pytest.raises(BackendError, match="transaction of this session is open in this task"):
            await world.put(world.run())
        with pytest.raises(BackendError, match="transaction of this session is open in this task"):
            await asyncio.create_task(backend.store.pause("mail"))
        with pytest.raises(BackendError, match="another transaction"):
            async with backend.store.transaction(claim, timeout=30):
                pass
        assert await world.state(claim.run) is State.RUNNING
        await transaction.execute("INSERT INTO ledger VALUES (1)")
    assert await world.state(claim.run) is State.COMPLETED
    assert await backend.store.pause("mail")


async def test_a_task_that_outlives_its_block_may_write_again(backend, world):
    over = asyncio.Event()

    async def later() -> None:
        await over.wait()
        await world.put(world.run())

    async with backend.store.transaction(await _claimed(world), timeout=30):
        task = asyncio.create_task(later())
    over.set()
    await task


async def test_writes_of_other_tasks_wait_for_the_block(backend, world):
    claim = await _claimed(world)
    entered, leave = asyncio.Event(), asyncio.Event()

    async def block() -> None:
        async with backend.store.transaction(claim, timeout=30) as transaction:
            await transaction.execute("INSERT INTO ledger VALUES (1)")
            entered.set()
            await leave.wait()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(block())
        await entered.wait()
        put = tasks.create_task(world.put(world.run()))
        done, _ = await asyncio.wait([put], timeout=0.05)
        assert not done
        leave.set()
    assert put.result()[0].created


async def test_one_block_at_a_time_per_session(backend, world):
    claims = [await _claimed(world) for _ in range(3)]
    inside = 0

    async def block(claim) -> None:
        nonlocal inside
        async with backend.store.transaction(claim, timeout=30) as transaction:
            inside += 1
            assert inside == 1
            await transaction.execute("INSERT INTO ledger VALUES (1)")
            inside -= 1

    await asyncio.gather(*map(block, claims))
    assert await _ledger(backend) == [1, 1, 1]


@pytest.mark.parametrize("statement", ["COMMIT", "ROLLBACK", "END", "BEGIN", "commit", "COMMIT -- duly"])
async def test_a_block_is_ended_by_leaving_it_only(backend, world, statement):
    claim = await _claimed(world)
    async with backend.store.transaction(claim, timeout=30) as transaction:
        await transaction.execute("INSERT INTO ledger VALUES (1)")
        with pytest.raises(BackendError, match="leave the block"):
            await transaction.execute(statement)
    assert await _ledger(backend) == [1]
    second = await _claimed(world)
    async with backend.store.transaction(second, timeout=30) as transaction:
        with pytest.raises(BackendError, match="leave the block"):
            await transaction.execute(statement)


async def test_savepoints_are_the_users(backend, world):
    async with backend.store.transaction(await _claimed(world), timeout=30) as transaction:
        await transaction.execute("INSERT INTO ledger VALUES (1)")
        await transaction.execute("SAVEPOINT half")
        await transaction.execute("INSERT INTO ledger VALUES (2)")
        await transaction.execute("ROLLBACK TO half")
    assert await _ledger(backend) == [1]


async def test_a_statement_that_takes_too_long_is_interrupted(backend, world):
    claim = await _claimed(world)
    with pytest.raises(TimeoutError, match="rolled back"):
        async with backend.store.transaction(claim, timeout=0.05) as transaction:
            await transaction.execute("INSERT INTO ledger VALUES (1)")
            await transaction.execute(_ENDLESS)
    assert await world.state(claim.run) is State.RUNNING
    assert await _ledger(backend) == []
    assert await world.settle(claim)


async def test_a_cancelled_block_rolls_back(backend, world):
    claim = await _claimed(world)
    entered = asyncio.Event()

    async def block() -> None:
        async with backend.store.transaction(claim, timeout=30) as transaction:
            await transaction.execute("INSERT INTO ledger VALUES (1)")
            entered.set()
            await transaction.execute(_ENDLESS)

    task = asyncio.create_task(block())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await _ledger(backend) == []
    assert await world.settle(claim)


async def test_a_block_that_cannot_begin_leaves_nothing_behind(tmp_path, backend, world):
    async with open_url(f"sqlite:///{tmp_path}/jobs.db?busy_timeout=0.05", Opening()) as hasty:
        claim = await _claimed(world)
        other = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(BackendUnavailable, match="locked"):
            async with hasty.store.transaction(claim, timeout=30):
                pass
        other.execute("ROLLBACK")
        other.close()
        async with hasty.store.transaction(claim, timeout=30) as transaction:
            await transaction.execute("INSERT INTO ledger VALUES (1)")
    assert await _ledger(backend) == [1]


async def test_waiting_to_begin_can_be_cancelled(tmp_path, backend, world):
    claim = await _claimed(world)
    other = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    async def block() -> None:
        async with backend.store.transaction(claim, timeout=30):
            pass

    task = asyncio.create_task(block())
    done, _ = await asyncio.wait([task], timeout=0.05)
    assert not done
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    other.execute("ROLLBACK")
    other.close()
    async with backend.store.transaction(claim, timeout=30) as transaction:
        await transaction.execute("INSERT INTO ledger VALUES (1)")
    assert await _ledger(backend) == [1]


async def test_a_transaction_is_of_no_use_outside_its_block(backend, world):
    block = backend.store.transaction(await _claimed(world), timeout=30)
    with pytest.raises(BackendError, match="not open"):
        await block.execute("SELECT 1")
    async with block:
        pass
    with pytest.raises(BackendError, match="not open"):
        await block.put([])


async def test_the_end_of_a_block_wakes_those_who_wait_for_the_run(backend, world):
    claim = await _claimed(world)
    waiting = asyncio.create_task(backend.store.finished([claim.run.id], 3600))
    async with asyncio.timeout(30):
        async with backend.store.transaction(claim, timeout=30):
            pass
        [ended] = await waiting
    assert ended.state is State.COMPLETED


async def test_a_cancellation_that_meets_the_commit_keeps_nobody_waiting(backend, world):
    claim = await _claimed(world)
    waiting = asyncio.create_task(backend.store.finished([claim.run.id], 3600))
    leaving = asyncio.Event()

    async def block() -> None:
        async with backend.store.transaction(claim, timeout=30):
            await asyncio.sleep(0)
            leaving.set()

    async with asyncio.timeout(30):
        task = asyncio.create_task(block())
        await leaving.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        [ended] = await waiting
    assert ended.state is State.COMPLETED


# --- a user's own connection


@pytest.fixture
def own(tmp_path, backend):
    connection = sqlite3.connect(tmp_path / "jobs.db")
    yield connection
    connection.close()


async def test_a_submission_joins_the_users_transaction(backend, world, own):
    own.execute("INSERT INTO ledger VALUES (1)")
    joined = backend.store.within(own)
    [put] = await joined.put([run := world.run()])
    assert put.created
    assert await joined.execute("SELECT amount FROM ledger") == [(1,)]
    assert await world.state(run) is None
    own.commit()
    assert await world.state(run) is State.QUEUED
    assert await _ledger(backend) == [1]


async def test_a_rolled_back_submission_never_was(backend, world, own):
    joined = backend.store.within(own)
    await joined.put([run := world.run("new_job", queue="new_queue", dedupe_key="k")])
    own.rollback()
    assert await world.state(run) is None
    await joined.put([run])
    own.commit()
    assert [claim.run.queue for claim in await world.claim()] == ["new_queue"]


async def test_rows_of_the_users_kind_do_not_matter(backend, world, own):
    own.row_factory = sqlite3.Row
    await backend.store.within(own).put([world.run(), world.run(delay=60, dedupe_key="k")])
    own.commit()
    assert len(await world.claim()) == 1


async def test_a_connection_without_a_transaction_is_refused(backend, world, tmp_path):
    own = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
    with pytest.raises(BackendError, match="BEGIN one first"):
        await backend.store.within(own).put([world.run()])
    own.execute("BEGIN IMMEDIATE")
    await backend.store.within(own).put([run := world.run()])
    own.execute("COMMIT")
    own.close()
    assert await world.state(run) is State.QUEUED


async def test_a_connection_to_something_else_is_refused(backend, world, tmp_path):
    for elsewhere in (":memory:", tmp_path / "other.db"):
        own = sqlite3.connect(elsewhere)
        with pytest.raises(BackendError, match="not to"):
            await backend.store.within(own).put([world.run()])
        own.close()
    with pytest.raises(BackendError, match="takes a sqlite3"):
        backend.store.within(object())


async def test_the_users_commit_wakes_those_who_wait(backend, world, own):
    await backend.queue.wait("n", None, 0)
    async with backend.session() as waiter, asyncio.timeout(30):
        await waiter.queue.wait("n", None, 0)
        waiting = asyncio.create_task(waiter.queue.wait("n", None, 3600))
        await backend.store.within(own).put([world.run()])
        own.commit()
        await waiting
        assert len((await waiter.queue.claim("n", None, None, 1, 15, 1)).claims) == 1
