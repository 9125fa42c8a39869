"""Real servers for the tests of backends: one per worker process of pytest, started when first asked for."""

import pytest

from duly.testing.servers import named_redis
from duly.testing.servers import redis_server as start_redis


@pytest.fixture(scope="session")
def redis_server():
    """A server shared by the tests of this process: use a namespace of your own, and do it no harm."""
    with start_redis() as server:
        yield server


@pytest.fixture(scope="session")
def redis_url(request):
    """Where to test: the server that the environment names, else one of our own."""
    return named_redis() or request.getfixturevalue("redis_server").url
