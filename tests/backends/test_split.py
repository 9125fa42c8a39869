"""The split stack passes the conformance suite, on PostgreSQL, Redis and etcd."""

import uuid

import pytest

from duly.backends.address import Address, open_address
from duly.backends.split import SplitBackend
from duly.ports import Opening, Order
from duly.testing.conformance import (
    CoordinatorSuite,
    CornerSuite,
    FuzzSuite,
    PlacementSuite,
    QueueSuite,
    StoreSuite,
    TransactionSuite,
)


class TestSplit(QueueSuite, PlacementSuite, StoreSuite, CoordinatorSuite, TransactionSuite, CornerSuite, FuzzSuite):
    @pytest.fixture(autouse=True)
    def _servers(self, postgres_url, redis_url, etcd_url):
        self.parts = Address(postgres_url, redis_url, etcd_url)

    def backend(self) -> SplitBackend:
        return open_address(self.parts, Opening(namespace=f"n{uuid.uuid4().hex[:30]}"))

    async def test_its_order_is_by_bands(self):
        async with self.backend() as backend:
            assert backend.capabilities.order is Order.BANDED
