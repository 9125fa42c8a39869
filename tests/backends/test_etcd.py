"""etcd as a coordinator passes the coordinator's conformance suite, beside a store that is not its own."""

import uuid

import pytest

from duly.backends.etcd import open_url
from duly.backends.memory import open_url as open_memory
from duly.backends.split import SplitBackend
from duly.ports import Opening
from duly.testing.conformance import CoordinatorSuite


class TestEtcd(CoordinatorSuite):
    @pytest.fixture(autouse=True)
    def _cluster(self, etcd_url):
        self.url = etcd_url

    def backend(self) -> SplitBackend:
        opening = Opening(namespace=uuid.uuid4().hex)
        return SplitBackend(open_memory("memory://", opening), open_url(self.url, opening))
