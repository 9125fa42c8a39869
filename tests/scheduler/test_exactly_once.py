"""Exactly once on SQLite: what a handler writes and the completion of its run are one transaction, or neither."""

import asyncio
import sqlite3
import threading

import pytest
from tests.conftest import eventually

from duly import Context, RetryPolicy, RunFailed, Scheduler, SchedulerConfig, State
from duly.errors import BackendError, ClaimLost, DulyError, RunNotFound
from duly.model import OutcomeKind
from duly.model.event import AfterCommitFailed, ClaimsLost

FAST = RetryPolicy.fixed(2, 0.01)


class Shop:
    """A scheduler on a file that also holds a table of ours."""

    def __init__(self, path, **settings):
        self.path = path
        self.scheduler = Scheduler(f"sqlite:///{path}", SchedulerConfig(**{"transaction_timeout": 30} | settings))
        with sqlite3.connect(path) as own:
            own.execute("CREATE TABLE ledger (amount INTEGER)")
        own.close()

    def ledger(self):
        own = sqlite3.connect(self.path)
        try:
            return [amount for (amount,) in own.execute("SELECT amount FROM ledger ORDER BY amount")]
        finally:
            own.close()

    async def outcomes(self, run):
        return [attempt.outcome for attempt in await self.scheduler.attempts(run.id)]


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path / "shop.db")


async def test_the_effect_and_the_completion_are_seen_together(shop):
    inside, leave = asyncio.Event(), asyncio.Event()

    @shop.scheduler.job(delivery="exactly_once")
    async def pay(ctx: Context, amount: int) -> None:
        async with ctx.transaction() as tx:
            await tx.execute("INSERT INTO ledger VALUES (?)", (amount,))
            inside.set()
            await leave.wait()

    async with shop.scheduler:
        run = await pay.submit(5)
        await inside.wait()
        assert shop.ledger() == []
        assert (await run.get()).state is State.RUNNING
        leave.set()
        await run.result(timeout=30)
        assert shop.ledger() == [5]
        assert await shop.outcomes(run) == [OutcomeKind.SUCCEEDED]


async def test_a_handler_without_a_transaction_has_failed_for_good(shop):
    calls = []

    @shop.scheduler.job(delivery="exactly_once", retry=FAST)
    async def forgetful(ctx: Context) -> None:
        calls.append(ctx.attempt)

    async with shop.scheduler:
        run = await forgetful.submit()
        with pytest.raises(RunFailed, match=r"returned without ctx\.transaction"):
            await run.result(timeout=30)
    assert calls == [1]


async def test_a_second_block_in_one_attempt_is_refused_and_the_first_stands(shop):
    events = []
    shop.scheduler.subscribe(events.append, AfterCommitFailed)

    @shop.scheduler.job(delivery="exactly_once", retry=FAST)
    async def greedy(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute("INSERT INTO ledger VALUES (1)")
        async with ctx.transaction() as tx:
            await tx.execute("INSERT INTO ledger VALUES (2)")

    async with shop.scheduler:
        run = await greedy.submit()
        await run.result(timeout=30)
        assert (await run.get()).state is State.COMPLETED
    assert shop.ledger() == [1]
    [event] = events
    assert "one ctx.transaction() per attempt" in event.failure.message


async def test_an_exception_inside_the_block_rolls_back_and_is_retried(shop):
    @shop.scheduler.job(delivery="exactly_once", retry=FAST)
    async def flaky(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute("INSERT INTO ledger VALUES (?)", (ctx.attempt,))
            if ctx.attempt < 3:
                raise ConnectionError("not yet")

    async with shop.scheduler:
        run = await flaky.submit()
        await run.result(timeout=30)
        assert await shop.outcomes(run) == [OutcomeKind.FAILED, OutcomeKind.FAILED, OutcomeKind.SUCCEEDED]
    assert shop.ledger() == [3]


async def test_an_exception_after_the_commit_is_told_and_undoes_nothing(shop):
    events, failures = [], []
    shop.scheduler.subscribe(events.append, AfterCommitFailed)

    @shop.scheduler.job(delivery="exactly_once", retry=FAST, on_failure=lambda run, job, exc: failures.append(exc))
    async def late(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute("INSERT INTO ledger VALUES (1)")
        raise LookupError("after the fact")

    async with shop.scheduler:
        run = await late.submit()
        await run.result(timeout=30)
    assert shop.ledger() == [1]
    assert failures == []
    [event] = events
    assert (event.run_id, event.failure.type, event.failure.message) == (run.id, "LookupError", "after the fact")


@pytest.mark.parametrize("sort", ["async", "sync"])
async def test_a_handler_that_goes_on_after_its_commit_is_left_alone(tmp_path, sort):
    shop = Shop(tmp_path / "shop.db", lock_ttl=0.3)
    events, go_on, ended = [], threading.Event(), []
    shop.scheduler.subscribe(events.append, ClaimsLost, AfterCommitFailed)

    @shop.scheduler.job(delivery="exactly_once")
    async def pay(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute("INSERT INTO ledger VALUES (1)")
        await asyncio.to_thread(go_on.wait, 30)
        ended.append(ctx.cancelled)

    @shop.scheduler.job(delivery="exactly_once")
    def pay_sync(ctx: Context) -> None:
        with ctx.transaction() as tx:
            tx.execute("INSERT INTO ledger VALUES (1)")
        go_on.wait(30)
        ended.append(ctx.cancelled)

    @shop.scheduler.job()
    async def beacon(ctx: Context) -> None:
        ctx.progress(1)
        await asyncio.to_thread(go_on.wait, 30)

    async def beaten():
        return (await light.get()).progress

    async with shop.scheduler:
        run = await (pay if sort == "async" else pay_sync).submit()
        await run.result(timeout=30)
        light = await beacon.submit()
        await eventually(beaten)  # a heartbeat has looked at both
        go_on.set()
    assert ended == [False]
    assert events == []


async def test_a_cancellation_that_meets_the_commit_comes_after_it(shop):
    failures, leaving, told = [], asyncio.Event(), []

    @shop.scheduler.job(delivery="exactly_once", retry=None, on_failure=lambda run, job, exc: failures.append(exc))
    async def pay(ctx: Context) -> None:
        try:
            async with ctx.transaction() as tx:
                await tx.execute("INSERT INTO ledger VALUES (1)")
                leaving.set()
            await asyncio.sleep(3600)
        finally:
            told.append(ctx.cancelled)

    async with shop.scheduler:
        run = await pay.submit()
        await leaving.wait()
        shop.scheduler._running.node.cancel([run.id])
        await run.result(timeout=30)
        assert (await run.get()).state is State.COMPLETED
    assert shop.ledger() == [1]
    assert (failures, told) == ([], [True])


@pytest.mark.parametrize("sort", ["async", "sync"])
async def test_a_block_that_takes_too_long_is_rolled_back(tmp_path, sort):
    shop = Shop(tmp_path / "shop.db", transaction_timeout=0.02)
    never = asyncio.Event()

    @shop.scheduler.job(delivery="exactly_once", retry=None, name="slow")
    async def slow(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute("INSERT INTO ledger VALUES (1)")
            await never.wait()

    @shop.scheduler.job(delivery="exactly_once", retry=None)
    def slow_sync(ctx: Context) -> None:
        with ctx.transaction() as tx:
            tx.execute("INSERT INTO ledger VALUES (1)")
            while True:
                tx.execute("SELECT 1")

    async with shop.scheduler:
        run = await (slow if sort == "async" else slow_sync).submit()
        with pytest.raises(RunFailed, match="took longer than") as caught:
            await run.result(timeout=30)
        assert caught.value.error_type == "TimeoutError"
    assert shop.ledger() == []


async def test_other_writes_inside_the_block_are_refused(shop):
    refused = []

    @shop.scheduler.job()
    async def mail() -> None: ...

    @shop.scheduler.job(delivery="exactly_once")
    async def pay(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            for write in (mail.submit, lambda: shop.scheduler.pause("mail"), lambda: shop.scheduler.trigger("mail")):
                try:
                    await write()
                except BackendError as exc:
                    refused.append(str(exc))
            await tx.execute("INSERT INTO ledger VALUES (1)")

    async with shop.scheduler:
        await (await pay.submit()).result(timeout=30)
        assert not (await shop.scheduler.runs("mail")).runs
        assert (await shop.scheduler.get_job("mail")).status.value == "active"
    assert len(refused) == 3
    assert all("transaction" in text for text in refused)
    assert shop.ledger() == [1]


async def test_other_writes_inside_the_block_of_a_thread_are_refused_too(shop):
    refused = []

    @shop.scheduler.job()
    async def mail() -> None: ...

    @shop.scheduler.job(delivery="exactly_once", retry=None)
    def pay(ctx: Context) -> None:
        with ctx.transaction() as tx:
            with pytest.raises(BackendError, match="open in this task") as caught:
                mail.sync.submit()
            refused.append(caught.value)
            tx.execute("INSERT INTO ledger VALUES (1)")
        mail.sync.submit()

    async with shop.scheduler:
        await (await pay.submit()).result(timeout=30)
    async with shop.scheduler.client():
        assert len((await shop.scheduler.runs("mail")).runs) == 1
    assert len(refused) == 1
    assert shop.ledger() == [1]


@pytest.mark.parametrize("sort", ["async", "sync"])
async def test_a_submission_of_the_block_exists_only_if_it_commits(shop, sort):
    seen = []

    @shop.scheduler.job()
    async def mail(to: str) -> None:
        seen.append(to)

    @shop.scheduler.job(delivery="exactly_once", retry=FAST)
    async def order(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            put = await tx.submit(mail, {"to": f"attempt {ctx.attempt}"})
            with pytest.raises(RunNotFound):
                await shop.scheduler.get_run(put.id)
            if ctx.attempt == 1:
                raise ConnectionError

    @shop.scheduler.job(delivery="exactly_once", retry=FAST)
    def order_sync(ctx: Context) -> None:
        with ctx.transaction() as tx:
            put = tx.submit("mail", {"to": f"attempt {ctx.attempt}"})
            with pytest.raises(RunNotFound):
                shop.scheduler.sync.get_run(put.id)
            if ctx.attempt == 1:
                raise ConnectionError

    async with shop.scheduler:
        await (await (order if sort == "async" else order_sync).submit()).result(timeout=30)
        [run] = (await shop.scheduler.runs("mail")).runs
        await shop.scheduler._result(run.id, 30)
    assert seen == ["attempt 2"]


async def test_a_wrong_submission_inside_the_block_is_the_handlers_to_see(shop):
    @shop.scheduler.job()
    async def mail(to: str) -> None: ...

    @shop.scheduler.job(delivery="exactly_once", retry=None)
    async def order(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            with pytest.raises(ValueError, match="to"):
                await tx.submit(mail, {"too": 1})
            await tx.execute("INSERT INTO ledger VALUES (1)")

    async with shop.scheduler:
        await (await order.submit()).result(timeout=30)
    assert shop.ledger() == [1]


async def test_a_thread_has_its_transaction_too(shop):
    rows = []

    @shop.scheduler.job(delivery="exactly_once", retry=FAST)
    def pay(ctx: Context, amount: int) -> None:
        with ctx.transaction() as tx:
            tx.execute("INSERT INTO ledger VALUES (:amount)", {"amount": amount})
            with pytest.raises(sqlite3.OperationalError, match="nonsense"):
                tx.execute("SELECT nonsense FROM ledger")
            rows.extend(tx.execute("SELECT amount FROM ledger"))
            if ctx.attempt == 1:
                raise ConnectionError

    async with shop.scheduler:
        run = await pay.submit(7)
        await run.result(timeout=30)
        assert await shop.outcomes(run) == [OutcomeKind.FAILED, OutcomeKind.SUCCEEDED]
    assert rows == [(7,), (7,)]
    assert shop.ledger() == [7]


@pytest.mark.parametrize(
    "raised", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), StopIteration(), asyncio.CancelledError()]
)
@pytest.mark.parametrize("sort", ["async", "sync"])
async def test_whatever_is_raised_inside_the_block_rolls_back_and_the_node_lives_on(shop, raised, sort):
    @shop.scheduler.job(delivery="exactly_once", retry=None)
    async def rude(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute("INSERT INTO ledger VALUES (1)")
            raise raised

    @shop.scheduler.job(delivery="exactly_once", retry=None)
    def rude_sync(ctx: Context) -> None:
        with ctx.transaction() as tx:
            tx.execute("INSERT INTO ledger VALUES (1)")
            raise raised

    @shop.scheduler.job(delivery="exactly_once")
    async def polite(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute("INSERT INTO ledger VALUES (2)")

    async with shop.scheduler:
        run = await (rude if sort == "async" else rude_sync).submit()
        with pytest.raises(RunFailed, match=type(raised).__name__):
            await run.result(timeout=30)
        await (await polite.submit()).result(timeout=30)
    assert shop.ledger() == [2]


@pytest.mark.parametrize("sort", ["async", "sync"])
async def test_a_claim_that_was_taken_over_commits_nothing(shop, sort):
    refused = []

    async def take_over(run_id):
        """Another worker's fence on the run, as after a pause that was longer than the lease."""
        own = sqlite3.connect(shop.path)
        with own:
            own.execute("UPDATE duly_claims SET fence = fence + 1")
        own.close()

    @shop.scheduler.job(delivery="exactly_once", retry=None)
    async def pay(ctx: Context) -> None:
        await take_over(ctx.run_id)
        try:
            async with ctx.transaction() as tx:
                await tx.execute("INSERT INTO ledger VALUES (1)")
        except (ClaimLost, asyncio.CancelledError) as exc:  # the heartbeat may have been quicker
            refused.append(exc)
            raise

    @shop.scheduler.job(delivery="exactly_once", retry=None)
    def pay_sync(ctx: Context) -> None:
        asyncio.run(take_over(ctx.run_id))
        try:
            with ctx.transaction() as tx:
                tx.execute("INSERT INTO ledger VALUES (1)")
        except ClaimLost as exc:
            refused.append(exc)
            raise

    async with shop.scheduler:
        run = await (pay if sort == "async" else pay_sync).submit()
        await eventually(lambda: _truth(refused))
        assert (await run.get()).state is State.RUNNING
    assert shop.ledger() == []


async def _truth(value):
    return bool(value)


async def test_the_value_is_kept_though_the_run_has_completed_before_the_handler_returns(shop):
    @shop.scheduler.job(delivery="exactly_once")
    async def pay(ctx: Context) -> str:
        async with ctx.transaction() as tx:
            await tx.execute("INSERT INTO ledger VALUES (1)")
        return "receipt 1"

    async with shop.scheduler:
        run = await pay.submit()
        await run.result(timeout=30)
    async with shop.scheduler.client():  # the node has stopped: all is settled
        assert await run.result(timeout=30) == "receipt 1"


async def test_a_write_inside_the_block_is_refused_even_if_others_are_waiting_to_write(shop):
    inside, refused = asyncio.Event(), asyncio.Event()

    @shop.scheduler.job()
    async def mail(to: str) -> None: ...

    @shop.scheduler.job(delivery="exactly_once", retry=None)
    async def pay(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute("INSERT INTO ledger VALUES (1)")
            inside.set()
            for _ in range(100):  # the other submissions go first, and wait for this block
                await asyncio.sleep(0)
            with pytest.raises(BackendError, match="open in this task"):
                await mail.submit("from inside")
            refused.set()

    async with shop.scheduler:
        run = await pay.submit()
        await inside.wait()
        others = [asyncio.create_task(mail.submit("from outside")) for _ in range(3)]
        await asyncio.gather(*others)
        assert refused.is_set()
        await run.result(timeout=30)
        payloads = {run.payload for run in (await shop.scheduler.runs("mail")).runs}
    assert payloads == {b'{"to":"from outside"}'}
    assert shop.ledger() == [1]


async def test_a_transaction_in_a_thread_that_is_used_after_its_block_is_refused(shop):
    refused = []

    @shop.scheduler.job(delivery="exactly_once", retry=None)
    def pay(ctx: Context) -> None:
        with ctx.transaction() as tx:
            tx.execute("INSERT INTO ledger VALUES (1)")
        try:
            tx.execute("INSERT INTO ledger VALUES (2)")
        except DulyError as exc:
            refused.append(str(exc))

    async with shop.scheduler:
        await (await pay.submit()).result(timeout=30)
    assert shop.ledger() == [1]
    assert len(refused) == 1
