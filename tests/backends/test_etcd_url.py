"""URLs of etcd: what is read from them, what is refused, and that no secret is repeated."""

import pytest

from duly.backends.etcd import open_url
from duly.backends.etcd.settings import ConnectionSettings, parse
from duly.backends.tls import Tls
from duly.backends.url_parts import Login
from duly.errors import ConfigurationError
from duly.ports import Opening

SECRET = "s3cr3t"


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("etcd://localhost", ConnectionSettings(("localhost:2379",))),
        ("etcd://h1,h2:12379,[::1]:2", ConnectionSettings(("h1:2379", "h2:12379", "[::1]:2"))),
        ("etcd://h1,h1:2379", ConnectionSettings(("h1:2379",))),
        ("etcd://ada:p%40ss@h1", ConnectionSettings(("h1:2379",), login=Login("ada", "p@ss"))),
        ("etcds://h1", ConnectionSettings(("h1:2379",), tls=Tls())),
        ("etcd+https://h1?ssl_verify=none", ConnectionSettings(("h1:2379",), tls=Tls(verify="none"))),
        (
            "etcds://h1?ssl_ca=/ca&ssl_cert=/c&ssl_key=/k&timeout=2",
            ConnectionSettings(("h1:2379",), tls=Tls("/ca", "/c", "/k"), timeout=2.0),
        ),
    ],
)
def test_a_url_says_where_and_how(url, place):
    assert parse(url) == place


@pytest.mark.parametrize(
    "url",
    [
        f"http://ada:{SECRET}@h1",
        f"etcd://ada:{SECRET}@",
        f"etcd://ada:{SECRET}@h1:0",
        f"etcd://ada:{SECRET}@h1:99999",
        f"etcd://ada:{SECRET}@h1,,h2",
        f"etcd://ada:{SECRET}@h1/path",
        f"etcd://ada:{SECRET}/x@h1",
        f"etcd://ada:{SECRET}#@h1",
        f"etcd://:{SECRET}@h1",
        "etcd://ada@h1",
        f"etcd://ada:{SECRET}@h1?ssl_ca=/ca",
        f"etcds://ada:{SECRET}@h1?ssl_verify=perhaps",
        f"etcds://ada:{SECRET}@h1?ssl_key=/k",
        f"etcd://ada:{SECRET}@h1?timeout=0",
        f"etcd://ada:{SECRET}@h1?nonsense=1",
    ],
)
def test_what_cannot_be_meant_is_refused_without_repeating_a_secret(url):
    with pytest.raises(ConfigurationError) as refusal:
        parse(url)
    assert SECRET not in str(refusal.value)


def test_nothing_shows_credentials():
    seat = open_url(f"etcds://ada:{SECRET}@h1,h2?timeout=2", Opening())
    assert seat.url == "etcds://h1:2379,h2:2379"
    assert SECRET not in repr(seat)
    assert SECRET not in repr(parse(f"etcd://ada:{SECRET}@h1"))


def test_a_namespace_that_is_no_part_of_a_key_is_refused():
    with pytest.raises(ConfigurationError, match="namespace 'a/b'"):
        open_url("etcd://h1", Opening(namespace="a/b"))
