"""What all tests share: where a scheduler keeps its data, and how to wait without sleeping.

`--server redis` and `--server postgres` select the tests that use such a server; `make test-versions` needs that.
"""

import asyncio
import signal
import threading
import time
from collections.abc import Awaitable, Callable

import pytest
import redis

from duly.testing.postgres_servers import named_postgres
from duly.testing.postgres_servers import postgres_server as start_postgres
from duly.testing.servers import etcd_server as start_etcd
from duly.testing.servers import named_etcd, named_redis
from duly.testing.servers import redis_server as start_redis
from tests import postgres_stores

# What makes a test one that uses a server: a fixture, a parameter, a marker, or a name that its module has imported.
SERVERS = {
    "redis": {"redis", "redis_server", "redis_url", "redis_sentinel", "start_redis"},
    "postgres": {"postgres", "postgres_server", "postgres_url", "start_postgres"},
}


def pytest_addoption(parser):
    choices = [*SERVERS, "none"]
    parser.addoption("--server", choices=choices, help="only the tests that use this server, or none of them")


def pytest_configure(config):
    # A shell starts background commands with SIGINT ignored, and programs that tests start would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "servers(*names): the servers that a test uses, where nothing else says so")


def pytest_collection_modifyitems(config, items):
    if (server := config.getoption("--server")) is None:
        return
    names = set().union(*SERVERS.values()) if server == "none" else SERVERS[server]
    chosen = [item for item in items if uses(item, names) == (server != "none")]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
    items[:] = chosen


def uses(item, names: set[str]) -> bool:
    """Whether a test has to do with any of these names."""
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    words = {value for value in parameters if isinstance(value, str)}
    marked = {name for marker in item.iter_markers("servers") for name in marker.args}
    return not names.isdisjoint({*item.fixturenames, *vars(item.module), *words, *marked})


@pytest.fixture(scope="session")
def redis_server():
    """A server shared by the tests of this process: use a namespace of your own, and do it no harm."""
    with start_redis() as server:
        yield server


@pytest.fixture(scope="session")
def redis_url(request):
    """Where to test: the server that the environment names, else one of our own."""
    return named_redis() or request.getfixturevalue("redis_server").url


@pytest.fixture(scope="session")
def etcd_server():
    """An etcd shared by the tests of this process: use a namespace of your own, and do it no harm."""
    with start_etcd() as server:
        yield server


@pytest.fixture(scope="session")
def etcd_url(request):
    """Where to test: the cluster that the environment names, else one of our own."""
    return named_etcd() or request.getfixturevalue("etcd_server").url


@pytest.fixture(scope="session")
def postgres_server():
    """A server shared by the tests of this process: use a namespace of your own, and do it no harm."""
    with start_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_url(request):
    """Where to test: the server that the environment names, else one of our own."""
    return named_postgres() or request.getfixturevalue("postgres_server").url


@pytest.fixture(params=["memory", "sqlite", "redis", "postgres"])
def url(request, tmp_path) -> str:
    """A fresh store of each kind that a scheduler can be tested on."""
    return fresh(request.param, request, tmp_path)


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def shared_url(request, tmp_path) -> str:
    """A fresh store of each kind that several processes can share."""
    return fresh(request.param, request, tmp_path)


def fresh(kind: str, request, tmp_path) -> str:
    """The URL of a store of that kind with nothing in it."""
    match kind:
        case "memory":
            return "memory://"
        case "sqlite":
            return f"sqlite:///{tmp_path}/duly.db"
        case "redis":
            return emptied(request.getfixturevalue("redis_url"))
        case _:
            return postgres_stores.emptied(request.getfixturevalue("postgres_url"))


def emptied(url: str) -> str:
    """The same server without what earlier tests left in the namespace that every scheduler uses."""
    with redis.Redis.from_url(url) as client:
        keys = list(client.scan_iter("duly:{duly}:*", count=1000))
        if keys:
            client.delete(*keys)
    return url


async def eventually(check: Callable[[], Awaitable[object]], what: str = "", seconds: float = 30.0):
    """Wait until a condition holds and return what it returned; fail loudly if it never does."""
    deadline = time.monotonic() + seconds
    while True:
        value = await check()
        if value:
            return value
        if time.monotonic() > deadline:
            pytest.fail(f"it never came true: {what or check}")
        await asyncio.sleep(0.005)
