"""The split stack passes the conformance suite, on a store that is not Redis and a coordinator that is neither."""

import uuid

import pytest

from duly.backends.etcd import open_url as open_etcd
from duly.backends.split import SplitBackend
from duly.backends.split.doorbell import doorbell_at
from duly.backends.sqlite import open_url as open_sqlite
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
    def _servers(self, tmp_path, redis_url, etcd_url):
        self.folder, self.redis, self.etcd = tmp_path, redis_url, etcd_url

    def backend(self) -> SplitBackend:
        opening = Opening(namespace=f"n{uuid.uuid4().hex[:30]}")
        return SplitBackend(
            open_sqlite(f"sqlite:///{self.folder}/{uuid.uuid4().hex}.db", opening),
            open_etcd(self.etcd, opening),
            doorbell_at(self.redis, opening.namespace),
        )

    async def test_its_order_is_by_bands(self):
        async with self.backend() as backend:
            assert backend.capabilities.order is Order.BANDED
