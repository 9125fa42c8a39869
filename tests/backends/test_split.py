"""The queue and the store of the split stack, on PostgreSQL and Redis, pass their conformance suites."""

import asyncio
import uuid

import asyncpg
import pytest

from duly.backends.address import Address, open_address
from duly.backends.split import SplitBackend
from duly.ports import Opening, Order
from duly.testing.conformance import QueueSuite, StoreSuite, TransactionSuite


class TestSplit(QueueSuite, StoreSuite, TransactionSuite):
    @pytest.fixture(autouse=True)
    def _servers(self, postgres_url, redis_url):
        self.parts = Address(postgres_url, redis_url)
        self.namespaces: list[str] = []
        yield
        asyncio.run(self._sweep())

    async def _sweep(self) -> None:
        connection = await asyncpg.connect(self.parts.store)
        for namespace in self.namespaces:
            await connection.execute(f'DROP SCHEMA IF EXISTS "{namespace}" CASCADE')
        await connection.execute("DROP TABLE IF EXISTS ledger")
        await connection.close()

    def backend(self) -> SplitBackend:
        self.namespaces.append(f"n{uuid.uuid4().hex[:30]}")
        return open_address(self.parts, Opening(namespace=self.namespaces[-1]))

    async def test_its_order_is_by_bands(self):
        async with self.backend() as backend:
            assert backend.capabilities.order is Order.BANDED
