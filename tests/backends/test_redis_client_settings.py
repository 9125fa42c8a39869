"""A backend that takes its settings from a client of redis-py: what it takes over, and what it refuses."""

import ssl

import pytest
import redis
import redis.asyncio
import trustme
from redis_connections import new_namespace, operator
from test_redis_tls import tls_in_front_of

from duly.backends.redis import RedisBackend
from duly.backends.redis.settings import ConnectionSettings, settings_of_client
from duly.backends.tls import Tls
from duly.backends.url_parts import Login
from duly.errors import BackendError, ConfigurationError
from duly.ports import Opening
from duly.testing.servers import redis_sentinel
from duly.testing.servers import redis_server as start_redis

SECRET = "s3cr3t"  # a word that appears nowhere else
SENTINELS = [("s1", 26379), ("s2", 26380)]


def master_for(library, **options):
    sentinel = library.sentinel.Sentinel(SENTINELS, sentinel_kwargs={"password": "spw"})
    return sentinel.master_for("jobs", db=3, username="u", password="pw", **options)


@pytest.mark.parametrize("library", [redis, redis.asyncio], ids=["sync", "asyncio"])
@pytest.mark.parametrize(
    ("client", "settings"),
    [
        (lambda library: library.Redis(), ConnectionSettings((("localhost", 6379),))),
        (
            lambda library: library.Redis(host="h", port=7, db=2, password="pw"),
            ConnectionSettings((("h", 7),), db=2, login=Login(None, "pw")),
        ),
        (
            lambda library: library.Redis.from_url("redis://u:p%40@h:7/2"),
            ConnectionSettings((("h", 7),), db=2, login=Login("u", "p@")),
        ),
        (
            lambda library: library.Redis(unix_socket_path="/run/redis.sock", db=1),
            ConnectionSettings((("/run/redis.sock", 0),), db=1),
        ),
        (
            lambda library: library.Redis.from_url("unix://u:pw@/run/redis.sock"),
            ConnectionSettings((("/run/redis.sock", 0),), login=Login("u", "pw")),
        ),
        (lambda library: library.Redis(host="h", ssl=True), ConnectionSettings((("h", 6379),), tls=Tls())),
        (
            lambda library: library.Redis(
                host="h",
                ssl=True,
                ssl_ca_certs="/ca.pem",
                ssl_certfile="/c.pem",
                ssl_keyfile="/k.pem",
                ssl_check_hostname=False,
            ),
            ConnectionSettings((("h", 6379),), tls=Tls("/ca.pem", "/c.pem", "/k.pem", "ca")),
        ),
        (
            lambda library: library.Redis.from_url("rediss://h?ssl_cert_reqs=none"),
            ConnectionSettings((("h", 6379),), tls=Tls(verify="none")),
        ),
        (
            lambda library: library.Redis(host="h", ssl=True, ssl_cert_reqs=ssl.CERT_NONE, ssl_check_hostname=False),
            ConnectionSettings((("h", 6379),), tls=Tls(verify="none")),
        ),
        (
            master_for,
            ConnectionSettings(
                tuple(SENTINELS), "jobs", db=3, login=Login("u", "pw"), sentinel_login=Login(None, "spw")
            ),
        ),
    ],
    ids=[
        "default",
        "options",
        "URL",
        "socket",
        "socket URL",
        "TLS",
        "TLS files",
        "unverified URL",
        "unverified",
        "sentinel",
    ],
)
def test_settings_are_taken_over(library, client, settings):
    assert settings_of_client(client(library), 5.0) == settings


@pytest.mark.parametrize("library", [redis, redis.asyncio], ids=["sync", "asyncio"])
@pytest.mark.parametrize(
    ("client", "why"),
    [
        (lambda library: library.RedisCluster.__new__(library.RedisCluster), "RedisCluster.*redis\\+cluster:// URL"),
        (lambda library: library.sentinel.Sentinel(SENTINELS), "Sentinel.master_for"),
        (lambda library: library.sentinel.Sentinel(SENTINELS).slave_for("jobs"), "replicas"),
        (lambda library: master_for(library, ssl=True), "different TLS settings"),
        (
            lambda library: library.Redis(
                credential_provider=redis.credentials.UsernamePasswordCredentialProvider("u", SECRET)
            ),
            "credential_provider",
        ),
        (lambda library: library.Redis(ssl=True, ssl_ca_data=SECRET), "ssl_ca_data"),
        (lambda library: library.Redis(ssl=True, ssl_min_version=ssl.TLSVersion.TLSv1_3), "ssl_min_version"),
        (lambda _: "redis://localhost", "cannot use a str"),
    ],
    ids=["cluster", "manager", "replica", "mixed TLS", "provider", "authority as text", "version", "URL"],
)
def test_what_cannot_be_taken_over_is_refused(library, client, why):
    with pytest.raises(ConfigurationError, match=why) as refused:
        RedisBackend.from_client(client(library))
    assert SECRET not in str(refused.value)


def test_a_call_timeout_is_checked():
    client = redis.Redis()
    with pytest.raises(ConfigurationError, match="timeout"):
        RedisBackend.from_client(client, timeout=0)
    factory = RedisBackend.from_client(client, timeout=4.0)
    assert factory(Opening(lease=15.0)).url == "redis://localhost:6379/0"
    with pytest.raises(ConfigurationError, match="too long for lock_ttl"):
        factory(Opening(lease=5.0))


def test_nothing_shows_credentials():
    factory = RedisBackend.from_client(redis.Redis(host="h", username="user", password=SECRET))
    assert SECRET not in f"{factory!r} {factory(Opening())!r}"


async def works(client) -> str:
    """Use a backend with the settings of a client, which is closed before; the URL for people."""
    factory = RedisBackend.from_client(client)
    await client.aclose()
    async with factory(Opening(namespace=new_namespace())) as backend:
        item = await backend.coordinator.put("key", b"value")
        async with backend.session() as session:
            assert await session.coordinator.get("key") == item
        return backend.url


async def test_a_server_with_a_password_and_a_database():
    with start_redis(config={"requirepass": SECRET}) as server:
        client = redis.asyncio.Redis(port=server.port, host="127.0.0.1", password=SECRET, db=4)
        assert await works(client) == f"redis://127.0.0.1:{server.port}/4"
        with redis.Redis(port=server.port, password=SECRET, db=4) as look:
            assert look.dbsize() > 0
        with pytest.raises(BackendError, match="wants a password"):
            await works(redis.asyncio.Redis(port=server.port, host="127.0.0.1"))


async def test_a_server_behind_tls(redis_server, tmp_path):
    authority, ca = trustme.CA(), tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(ca)
    async with tls_in_front_of(redis_server.url, authority.issue_cert("localhost")) as port:
        client = redis.asyncio.Redis(host="localhost", port=port, ssl=True, ssl_ca_certs=str(ca))
        assert await works(client) == f"rediss://localhost:{port}/0"
        with pytest.raises(BackendError, match="certificate"):
            await works(redis.asyncio.Redis(host="localhost", port=port, ssl=True))


async def test_a_unix_socket(tmp_path):
    path = tmp_path / "redis.sock"
    with start_redis(config={"unixsocket": str(path), "requirepass": SECRET}):
        client = redis.asyncio.Redis(unix_socket_path=str(path), password=SECRET)
        assert await works(client) == f"redis://{path}/0"


async def test_a_master_behind_sentinels():
    with start_redis() as server, redis_sentinel(monitors={"jobs": server}) as sentinel, operator(server) as look:
        manager = redis.asyncio.sentinel.Sentinel([("127.0.0.1", sentinel.port)])
        assert await works(manager.master_for("jobs", db=2)) == f"redis+sentinel://127.0.0.1:{sentinel.port}/jobs/2"
        assert look.info("keyspace")["db2"]["keys"] > 0
