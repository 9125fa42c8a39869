"""`PostgresBackend.from_pool` takes the settings of an asyncpg pool and leaves the pool alone."""

import ssl

import asyncpg
import pytest

from duly import ConfigurationError
from duly.backends.postgres import PostgresBackend
from duly.backends.postgres.url import parse, place_of_pool
from duly.ports import Opening


def _pool(dsn=None, **options) -> asyncpg.Pool:
    return asyncpg.create_pool(dsn, min_size=0, **options)


async def test_a_backend_works_on_the_database_of_a_pool(postgres_url):
    pool = _pool(postgres_url.partition("?")[0])
    async with pool, PostgresBackend.from_pool(pool)(Opening(namespace="of_a_pool")) as backend:
        await backend.store.migrate()
        await backend.store.put("kind", "key", b"value")
        assert pool.get_size() == 0
        assert len(await pool.fetch("SELECT 1 FROM pg_namespace WHERE nspname = 'of_a_pool'")) == 1
        await pool.execute("DROP SCHEMA of_a_pool CASCADE")


async def test_what_a_dsn_says_is_taken_over():
    place = place_of_pool(_pool("postgresql://me:secret@db:6000/shop?sslmode=require"), 2.0)
    assert place == parse("postgresql://me:secret@db:6000/shop?sslmode=require&timeout=2")


async def test_options_count_more_than_the_dsn():
    pool = _pool(
        "postgresql://me@db/shop",
        host=["a", "b"],
        port=[1, 2],
        user="you",
        password="other",
        database="till",
        server_settings={"application_name": "shop"},
    )
    place = place_of_pool(pool, 5.0)
    assert place.addresses == (("a", 1), ("b", 2))
    assert (place.login.user, place.login.password, place.database) == ("you", "other", "till")
    assert place.application == "shop"


async def test_one_port_goes_with_every_host():
    assert place_of_pool(_pool(host=["a", "b"], port=7), 5.0).addresses == (("a", 7), ("b", 7))


async def test_a_password_may_be_a_function():
    def password() -> str:
        return "secret"

    assert place_of_pool(_pool(host="db", password=password), 5.0).login.secret() is password


@pytest.mark.parametrize(
    ("given", "mode"),
    [(True, "verify-full"), (False, "disable"), ("require", "require"), ("verify-ca", "verify-ca")],
)
async def test_tls_by_mode(given, mode):
    assert place_of_pool(_pool(host="db", ssl=given), 5.0).tls.mode == mode


async def test_a_tls_context_is_used_as_it_is():
    context = ssl.create_default_context()
    tls = place_of_pool(_pool(host="db", ssl=context), 5.0).tls
    assert tls.context() is context
    assert tls.mode == "verify-full"


async def test_what_cannot_be_taken_over_is_refused():
    with pytest.raises(ConfigurationError, match=r"krbsrvname.*URL"):
        place_of_pool(_pool(host="db", krbsrvname="x"), 5.0)


def test_something_else_than_a_pool_is_refused():
    with pytest.raises(ConfigurationError, match="not str"):
        PostgresBackend.from_pool("postgresql://db")
