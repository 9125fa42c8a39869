"""What a Redis URL may say, and that its secrets are never said again."""

import logging
import traceback

import pytest

from duly import Scheduler
from duly.backends import open_backend
from duly.backends.redis.client import RedisClient
from duly.backends.redis.settings import ConnectionSettings, parse
from duly.backends.tls import Tls
from duly.backends.url_parts import Login, checked_namespace
from duly.errors import BackendError, ConfigurationError, DulyError
from duly.ports import Opening
from duly.rules.redaction import redacted
from duly.testing.servers import redis_server


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("redis://host", ConnectionSettings((("host", 6379),))),
        ("redis://host:7000/3", ConnectionSettings((("host", 7000),), db=3)),
        ("redis://[::1]:7000", ConnectionSettings((("::1", 7000),))),
        ("redis://:pw@host", ConnectionSettings((("host", 6379),), login=Login(None, "pw"))),
        ("redis://u:p%40%2F%3a@host", ConnectionSettings((("host", 6379),), login=Login("u", "p@/:"))),
        ("redis://host?timeout=0.5", ConnectionSettings((("host", 6379),), timeout=0.5)),
        ("rediss://host", ConnectionSettings((("host", 6379),), tls=Tls())),
        (
            "rediss://host/0?ssl_ca=/ca.pem&ssl_cert=/c.pem&ssl_key=/k.pem&ssl_verify=ca",
            ConnectionSettings((("host", 6379),), tls=Tls("/ca.pem", "/c.pem", "/k.pem", "ca")),
        ),
        (
            "redis+sentinel://u:pw@h1:26379,h2/service/2?sentinel_password=spw",
            ConnectionSettings(
                (("h1", 26379), ("h2", 26379)),
                service="service",
                db=2,
                login=Login("u", "pw"),
                sentinel_login=Login(None, "spw"),
            ),
        ),
        ("rediss+sentinel://h1/service", ConnectionSettings((("h1", 26379),), service="service", tls=Tls())),
        (
            "redis+cluster://h1,h2:7000?replicas=1",
            ConnectionSettings((("h1", 6379), ("h2", 7000)), cluster=True, replicas=1),
        ),
        ("rediss+cluster://h1/0", ConnectionSettings((("h1", 6379),), cluster=True, tls=Tls())),
    ],
)
def test_what_a_url_says(url, place):
    assert parse(url) == place


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://host", "begins with redis://"),
        ("redis://", "names no server"),
        ("redis://host:99999", "names no server"),
        ("redis://host:port", "names no server"),
        ("redis://a,b", "redis\\+sentinel"),
        ("redis+cluster://host/1", "only database 0"),
        ("redis://host?replicas=two", "replicas='two': expected a number"),
        ("redis://host?replicas=-1", "replicas='-1': expected a number"),
        ("redis://host/jobs", "number of the database"),
        ("redis://host/0/1", "number of the database"),
        ("redis://user@host", "without a password"),
        ("redis+sentinel://host", "names no service"),
        ("redis://host?colour=red", "unknown option 'colour'"),
        ("redis://host?ssl_ca=/ca.pem", "'ssl_ca' goes with rediss"),
        ("redis://host?sentinel_password=x", "unknown option 'sentinel_password'"),
        ("redis+sentinel://host/service?sentinel_username=x", "needs a sentinel_password"),
        ("rediss://host?ssl_verify=maybe", "full, ca, none"),
        ("rediss://host?ssl_key=/k.pem", "needs an ssl_cert"),
        ("redis://host?timeout=never", "seconds"),
        ("redis://host?timeout=0", "seconds"),
    ],
)
def test_what_a_url_may_not_say(url, why):
    with pytest.raises(ConfigurationError, match=why):
        parse(url)


SECRET = "s3cr3t"  # a word that appears nowhere else


@pytest.mark.parametrize(
    "url",
    [
        f"redis://user:{SECRET}/x@host",
        f"redis://user:{SECRET}?x@host",
        f"redis://user:{SECRET}#x@host",
        f"redis://user:{SECRET}",
        f"redis://:{SECRET}@host:port",
        f"redis://:{SECRET}@",
        f"redis://:{SECRET}@host/x/y",
        f"redis://:{SECRET}@a,b",
        f"redis://:{SECRET}@host?colour=red",
        f"redis://{SECRET}@host",
        f"redis+sentinel://:{SECRET}@host",
        f"redis+sentinel://host/s?sentinel_password={SECRET}&colour=red",
    ],
)
def test_a_wrong_url_is_refused_without_repeating_its_secret(url):
    with pytest.raises(ConfigurationError) as refused:
        open_backend(url, Opening())
    assert SECRET not in "".join(traceback.format_exception(refused.value))


def _shows(value: object) -> str:
    return f"{value!r} {value}"


def test_what_is_shown_of_a_backend_has_no_credentials():
    backend = open_backend(f"redis://user:{SECRET}@host:1/2?timeout=3", Opening())
    assert backend.url == "redis://host:1/2"
    for thing in (backend, backend.session(), parse(f"redis://user:{SECRET}@host"), Login("user", SECRET)):
        assert SECRET not in _shows(thing)
    sentinel = parse(f"redis+sentinel://u:{SECRET}@h/s/0?sentinel_username=su&sentinel_password={SECRET}")
    assert sentinel.safe_url == "redis+sentinel://h:26379/s/0"
    assert SECRET not in _shows(sentinel)


@pytest.mark.parametrize("password", [SECRET, f"{SECRET}%40%2F%3A"])
async def test_errors_of_a_server_do_not_repeat_the_password(password):
    with redis_server(config={"requirepass": "another"}) as server:
        for login in (f":{password}", f"user:{password}"):
            with pytest.raises(BackendError, match="does not know this user and password") as refused:
                await RedisClient(parse(f"redis://{login}@127.0.0.1:{server.port}"), "ns").open()
            assert SECRET not in "".join(traceback.format_exception(refused.value))
        with pytest.raises(BackendError, match="wants a password"):
            await RedisClient(parse(server.url), "ns").open()


async def test_a_server_that_repeats_what_it_was_told_is_not_quoted():
    with redis_server(config={"rename-command AUTH": "LOGIN"}) as server:  # "unknown command, with args beginning …"
        with pytest.raises(BackendError) as refused:
            await RedisClient(parse(f"redis://user:{SECRET}@127.0.0.1:{server.port}"), "ns").open()
        assert SECRET not in "".join(traceback.format_exception(refused.value))


async def test_a_password_with_signs_in_it_is_sent_as_it_is():
    with redis_server(config={"requirepass": '"p@ss/w:rd %"'}) as server:
        wire = RedisClient(parse(f"redis://:p%40ss%2Fw%3Ard%20%25@127.0.0.1:{server.port}"), "ns")
        await wire.open()
        assert await wire.command("PING") == b"PONG"
        await wire.close()


async def test_nothing_is_logged_or_raised_with_the_password_when_the_server_is_away(caplog):
    caplog.set_level(logging.DEBUG)
    scheduler = Scheduler(f"redis://user:{SECRET}@127.0.0.1:1/0")
    assert SECRET not in _shows(scheduler)
    with pytest.raises(DulyError) as away:
        await scheduler.start()
    assert SECRET not in "".join(traceback.format_exception(away.value))
    assert SECRET not in caplog.text


def test_the_command_line_masks_every_secret():
    url = f"redis+sentinel://u:{SECRET}@h1:1,h2:2/s/0?sentinel_password={SECRET}"
    assert SECRET not in redacted(f"the store {url} is away")


@pytest.mark.parametrize("namespace", ["", "a{b}", "a:b", "ä", "x" * 65, "{", "a b"])
def test_a_namespace_that_is_no_hash_tag_is_refused(namespace):
    with pytest.raises(ConfigurationError, match="namespace"):
        checked_namespace(namespace, "Redis")


def test_a_tls_file_that_is_missing_is_named():
    with pytest.raises(ConfigurationError, match=r"/nowhere/ca\.pem"):
        Tls(ca="/nowhere/ca.pem").context()
