"""Leases, presence and shared values on Redis, and what is said when the store under them is another one."""

import itertools

import pytest

from duly.backends.redis.backend import RedisBackend
from duly.backends.redis.settings import parse
from duly.testing.conformance import CoordinatorSuite

_namespaces = (f"coordinator{number}" for number in itertools.count())


class TestCoordinator(CoordinatorSuite):
    @pytest.fixture(autouse=True)
    def _server(self, redis_url):
        self.url = redis_url

    def backend(self):
        return RedisBackend(parse(self.url), next(_namespaces))
