"""What a PostgreSQL URL may say, what the environment says for it, and that secrets are never said again."""

import logging
import traceback

import pytest

from duly.backends.postgres.connection import Connections
from duly.backends.postgres.url import Login, Place, Tls, checked_namespace, parse
from duly.errors import BackendError, ConfigurationError, DulyError
from duly.rules.redaction import redacted

HOST = (("host", 5432),)


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql://host/jobs", Place(HOST, "jobs")),
        ("postgres://host:7000", Place((("host", 7000),))),
        ("postgresql://", Place((("localhost", 5432),))),
        ("postgresql:///jobs?host=/run/postgresql", Place((("/run/postgresql", 5432),), "jobs")),
        ("postgresql://[::1]:7000/jobs", Place((("::1", 7000),), "jobs")),
        ("postgresql://h1,h2:7000/jobs", Place((("h1", 5432), ("h2", 7000)), "jobs")),
        ("postgresql://u:p%40%2F%3a@host/my%20jobs", Place(HOST, "my jobs", Login("u", "p@/:"))),
        ("postgresql://u@host", Place(HOST, login=Login("u"))),
        ("postgresql://u:@host", Place(HOST, login=Login("u", ""))),
        (
            "postgresql://host/jobs?sslmode=verify-full&sslrootcert=/ca.pem&sslcert=/c.pem&sslkey=/k.pem",
            Place(HOST, "jobs", tls=Tls("verify-full", "/ca.pem", "/c.pem", "/k.pem")),
        ),
        (
            "postgresql://host/?timeout=0.5&pooler=transaction&migrate=no&application_name=shop",
            Place(HOST, timeout=0.5, pooler="transaction", migrates=False, application="shop"),
        ),
    ],
)
def test_what_a_url_says(url, place):
    assert parse(url, {}) == place


def test_the_environment_says_what_the_url_leaves_out():
    known = {
        "PGHOST": "elsewhere",
        "PGPORT": "7000",
        "PGUSER": "ada",
        "PGPASSWORD": "pw",
        "PGDATABASE": "jobs",
        "PGSSLMODE": "verify-ca",
        "PGSSLROOTCERT": "/ca.pem",
        "PGAPPNAME": "shop",
    }
    assert parse("postgresql://", known) == Place(
        (("elsewhere", 7000),), "jobs", Login("ada", "pw"), Tls("verify-ca", "/ca.pem"), application="shop"
    )
    assert parse("postgresql://u:p@host:1/db?sslmode=require&sslrootcert=/o.pem&application_name=a", known) == Place(
        (("host", 1),), "db", Login("u", "p"), Tls("require", "/o.pem"), application="a"
    )


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://host", "begins with postgresql://"),
        ("postgresql://ho st/jobs", "names no server"),
        ("postgresql://host:99999/jobs", "port '99999'"),
        ("postgresql://host:port/jobs", "names no server"),
        ("postgresql://h1,/jobs", "names no server"),
        ("postgresql://host/jobs/more", "percent-encode"),
        ("postgresql://host/?host=other", "twice"),
        ("postgresql://host/?sslmode=maybe", "sslmode='maybe' is not possible: disable, prefer"),
        ("postgresql://host/?sslmode=disable&sslrootcert=/ca.pem", "do not go with sslmode=disable"),
        ("postgresql://host/?sslkey=/k.pem", "sslkey needs an sslcert"),
        ("postgresql://host/?pooler=session", "pooler='session' is not possible"),
        ("postgresql://host/?migrate=maybe", "migrate='maybe'"),
        ("postgresql://host/?timeout=0", "timeout='0' is not possible"),
        ("postgresql://host/?timeout=soon", "timeout='soon' is not possible"),
        ("postgresql://host/?max_connections=3", "unknown option 'max_connections': known are sslmode"),
    ],
)
def test_a_wrong_url_is_refused_with_the_way_out(url, why):
    with pytest.raises(ConfigurationError, match=why):
        parse(url, {})


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:sec/ret@host/jobs",
        "postgresql://u:sec?ret@host/jobs",
        "postgresql://u:sec#ret@host/jobs",
        "postgresql://u:sec@ret@ho:st/jobs",
        "postgresql://host/jobs?password=secret",
        "postgresql://u:secret@host:port/jobs",
        "postgresql://u:secret@host/jobs?sslmode=maybe",
    ],
)
def test_a_wrong_url_does_not_give_its_secret_away(url):
    with pytest.raises(ConfigurationError) as refused:
        parse(url, {})
    assert "sec" not in str(refused.value)


def test_a_place_shows_no_secret():
    place = parse("postgresql://ada:secret@h1,h2:7000/jobs?sslmode=require", {})
    assert place.shown == "postgresql://h1:5432,h2:7000/jobs"
    assert "secret" not in repr(place)
    assert "ada" not in repr(place)
    assert "secret" not in repr(Connections(place, "duly").place)


def test_a_masked_url_shows_no_secret():
    assert "secret" not in redacted("postgresql://ada:secret@h1,h2:7000/jobs")


@pytest.mark.parametrize("namespace", ["duly", "Shop-2", "a.b", "7", "n" * 63])
def test_namespaces_that_can_name_a_schema(namespace):
    assert checked_namespace(namespace) == namespace


@pytest.mark.parametrize("namespace", ["", "pg_mine", "PG_mine", 'a"b', "a b", "ü", "n" * 64, ".a"])
def test_namespaces_that_cannot(namespace):
    with pytest.raises(ConfigurationError, match="names a schema"):
        checked_namespace(namespace)


# --- credentials against a real server


async def _asked(place):
    connections = Connections(place, "duly")
    await connections.open()
    try:
        return await connections["store"].run(lambda c: c.fetchval("SELECT current_user"))
    finally:
        await connections.close()


def _bare(server):
    return f"postgresql://127.0.0.1:{server.port}/postgres"


async def test_credentials_come_from_the_environment(postgres_server):
    known = {"PGUSER": "duly", "PGPASSWORD": "in-tests-only"}
    assert await _asked(parse(_bare(postgres_server), known)) == "duly"


async def test_a_password_comes_from_a_file_and_is_read_anew_for_every_connection(postgres_server, tmp_path):
    file = tmp_path / "password"
    file.write_text("wrong\n")
    place = parse(_bare(postgres_server), {"PGUSER": "duly", "PGPASSWORD_FILE": str(file)})
    with pytest.raises(BackendError, match="does not know this user"):
        await _asked(place)
    file.write_text("in-tests-only\n")
    assert await _asked(place) == "duly"


async def test_a_file_that_cannot_be_read_is_named(postgres_server, tmp_path):
    place = parse(_bare(postgres_server), {"PGUSER": "duly", "PGPASSWORD_FILE": str(tmp_path / "nothing")})
    with pytest.raises(ConfigurationError, match="PGPASSWORD_FILE="):
        await _asked(place)


async def test_a_refused_password_is_said_nowhere(postgres_server, caplog):
    caplog.set_level(logging.DEBUG)
    place = parse(f"postgresql://duly:top-secret@127.0.0.1:{postgres_server.port}/postgres", {})
    with pytest.raises(DulyError) as refused:
        await _asked(place)
    said = "".join(traceback.format_exception(refused.value))
    assert "does not know this user and password" in said
    assert "top-secret" not in said + caplog.text + postgres_server.log.read_text()
