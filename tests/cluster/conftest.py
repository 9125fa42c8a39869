"""Clusters on a file and on a server."""

import pytest
from tests.cluster.processes import Cluster
from tests.postgres_stores import emptied

from duly.testing.servers import redis_server


@pytest.fixture
def durable_redis(tmp_path):
    """A server of the test's own that has on disk what it has acknowledged, and may be killed."""
    with redis_server(folder=tmp_path / "redis", appendonly=True, config={"appendfsync": "always"}) as server:
        yield server


@pytest.fixture
def placement():
    """Who says which node starts a run; a module may try both ways."""
    return "queue"


@pytest.fixture(params=["sqlite", "redis", "postgres"])
async def cluster(request, tmp_path, placement):
    """A cluster on each kind of store that processes can share."""
    match request.param:
        case "sqlite":
            url = f"sqlite:///{tmp_path}/duly.db"
        case "redis":
            url = request.getfixturevalue("durable_redis").url
        case _:
            url = emptied(request.getfixturevalue("postgres_url"))
    cluster = Cluster(tmp_path, url, placement)
    async with cluster.client.client():
        yield cluster
        cluster.close()


@pytest.fixture
async def redis_cluster(tmp_path, durable_redis):
    cluster = Cluster(tmp_path, durable_redis.url)
    cluster.server = durable_redis
    async with cluster.client.client():
        yield cluster
        cluster.close()
