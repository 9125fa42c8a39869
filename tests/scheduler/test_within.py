"""`scheduler.within(connection)`: a run exists if and when the user's own transaction commits."""

import secrets
import sqlite3
from contextlib import asynccontextmanager

import asyncpg
import pytest

from duly import ConfigurationError, RunNotFound, Scheduler, SchedulerConfig
from duly.errors import BackendError


class Bank:
    """A user's table, a connection to it, and how to begin and end a transaction on that."""

    def __init__(self, url, namespace):
        self.url = url
        self.scheduler = Scheduler(url, SchedulerConfig(namespace=namespace))

        @self.scheduler.job
        async def receipt(amount: int) -> int:
            return amount


class PostgresBank(Bank):
    @asynccontextmanager
    async def open(self):
        self.connection = await asyncpg.connect(self.url)
        try:
            await self.connection.execute("CREATE TEMPORARY TABLE payments (amount int)")
            yield self
        finally:
            await self.connection.close()

    async def begin(self):
        self.transaction = self.connection.transaction()
        await self.transaction.start()

    async def pay(self, amount):
        await self.connection.execute("INSERT INTO payments VALUES ($1)", amount)

    async def end(self, *, commit):
        await (self.transaction.commit() if commit else self.transaction.rollback())

    async def paid(self):
        return await self.connection.fetchval("SELECT count(*) FROM payments")


class SqliteBank(Bank):
    @asynccontextmanager
    async def open(self):
        self.connection = sqlite3.connect(self.url.removeprefix("sqlite:///"), isolation_level=None, timeout=30)
        try:
            self.connection.execute("CREATE TABLE payments (amount int)")
            yield self
        finally:
            self.connection.close()

    async def begin(self):
        self.connection.execute("BEGIN IMMEDIATE")

    async def pay(self, amount):
        self.connection.execute("INSERT INTO payments VALUES (?)", (amount,))

    async def end(self, *, commit):
        self.connection.execute("COMMIT" if commit else "ROLLBACK")

    async def paid(self):
        return self.connection.execute("SELECT count(*) FROM payments").fetchone()[0]


@pytest.fixture(params=["sqlite", "postgres"])
async def bank(request, tmp_path):
    namespace = f"within_{secrets.token_hex(6)}"
    if request.param == "sqlite":
        made = SqliteBank(f"sqlite:///{tmp_path}/bank.db", namespace)
    else:
        made = PostgresBank(request.getfixturevalue("postgres_url"), namespace)
    async with made.scheduler.client(), made.open():
        yield made


async def test_a_run_exists_once_its_transaction_has_committed(bank):
    await bank.begin()
    await bank.pay(10)
    run = await bank.scheduler.within(bank.connection).submit("receipt", {"amount": 10})
    with pytest.raises(RunNotFound):
        await bank.scheduler.get_run(run.id)
    await bank.end(commit=True)
    assert (await run.get()).job == "receipt"
    assert await bank.paid() == 1


async def test_what_is_rolled_back_leaves_no_run(bank):
    await bank.begin()
    await bank.pay(10)
    run = await bank.scheduler.within(bank.connection).submit("receipt", {"amount": 10}, dedupe_key="once")
    await bank.end(commit=False)
    with pytest.raises(RunNotFound):
        await run.get()
    assert await bank.paid() == 0
    assert not (await bank.scheduler.submit("receipt", {"amount": 10}, dedupe_key="once")).deduplicated


async def test_a_key_is_unique_from_the_commit_on_and_not_after_a_rollback(bank):
    async def submit(where):
        return await where.submit("receipt", {"amount": 10}, dedupe_key="once", unique_for=3600)

    await bank.begin()
    await submit(bank.scheduler.within(bank.connection))
    await bank.end(commit=False)
    await bank.begin()
    first = await submit(bank.scheduler.within(bank.connection))
    assert not first.deduplicated
    await bank.end(commit=True)
    await first.cancel()
    again = await submit(bank.scheduler)
    assert (again.id, again.deduplicated, again.created_at) == (first.id, True, first.created_at)
    await bank.begin()
    assert (await submit(bank.scheduler.within(bank.connection))).id == first.id
    await bank.end(commit=True)


async def test_many_runs_and_their_options_go_along(bank):
    await bank.begin()
    joined = bank.scheduler.within(bank.connection)
    many = await joined.submit_many("receipt", [{"amount": amount} for amount in range(5)], delay=60, priority=3)
    await bank.end(commit=True)
    runs = [await run.get() for run in many]
    assert {run.priority for run in runs} == {3}
    assert len({run.id for run in runs}) == 5


async def test_a_node_is_woken_by_the_commit_and_runs_it(bank):
    async with bank.scheduler:
        await bank.begin()
        run = await bank.scheduler.within(bank.connection).submit("receipt", {"amount": 7})
        await bank.end(commit=True)
        assert await run.result(timeout=60) == 7


async def test_without_an_open_transaction_it_is_refused(postgres_url):
    bank = PostgresBank(postgres_url, f"within_{secrets.token_hex(6)}")
    async with bank.scheduler.client(), bank.open():
        with pytest.raises(BackendError, match="begin one first"):
            await bank.scheduler.within(bank.connection).submit("receipt", {"amount": 1})


async def test_a_store_without_transactions_refuses_with_the_way_out():
    scheduler = Scheduler("memory://")
    async with scheduler.client():
        with pytest.raises(ConfigurationError, match="needs a store with transactions"):
            await scheduler.within(object()).submit("receipt", {"amount": 1})
