"""The queue and the store of the split stack, on PostgreSQL and Redis, pass their conformance suites."""

import uuid

import pytest
from tests.postgres_stores import emptied

from duly.backends.address import Address, open_address
from duly.backends.split import SplitBackend
from duly.ports import Opening, Order
from duly.testing.conformance import (
    GroupSuite,
    HoldSuite,
    JobSuite,
    LeaseSuite,
    ListingSuite,
    MovingSuite,
    NotificationSuite,
    OperatingSuite,
    PlanningSuite,
    QueueSuite,
    TakingOverSuite,
    TransactionSuite,
    ValueSuite,
)


class TestSplit(
    TransactionSuite,
    MovingSuite,
    NotificationSuite,
    PlanningSuite,
    TakingOverSuite,
    ListingSuite,
    HoldSuite,
    GroupSuite,
    OperatingSuite,
    LeaseSuite,
    QueueSuite,
    JobSuite,
    ValueSuite,
):
    @pytest.fixture(autouse=True)
    def _servers(self, postgres_url, redis_url):
        self.postgres, self.redis = postgres_url, redis_url

    def backend(self) -> SplitBackend:
        """On a stream of its own: what earlier tests rang for does not concern it."""
        queue = f"{self.redis}?stream={uuid.uuid4().hex}"
        return open_address(Address(emptied(self.postgres, "split"), queue), Opening(namespace="split"))

    async def test_its_order_is_by_bands(self):
        async with self.backend() as backend:
            assert backend.capabilities.order is Order.BANDED
