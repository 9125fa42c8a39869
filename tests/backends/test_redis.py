"""The Redis backend passes the whole conformance suite."""

import uuid

import pytest

from duly.backends.redis import RedisBackend, open_url
from duly.ports import Opening
from duly.testing.conformance import BackendSuite


class TestRedis(BackendSuite):
    @pytest.fixture(autouse=True)
    def _server(self, redis_url):
        self.url = redis_url

    def backend(self) -> RedisBackend:
        return open_url(self.url, Opening(namespace=uuid.uuid4().hex))
