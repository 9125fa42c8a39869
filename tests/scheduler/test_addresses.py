"""Which store a scheduler talks to, when it is put together of parts: what goes together, and where that is said."""

import pytest

from duly import ConfigurationError, Scheduler
from duly.backends.address import Address, open_address
from duly.ports import Opening
from duly.scheduler.store_address import StoreAddress

SECRET = "s3cr3t"


@pytest.mark.parametrize(
    ("given", "environment", "address"),
    [
        ({}, {}, Address("sqlite:///duly.db")),
        ({}, {"DULY_URL": "a://"}, Address("a://")),
        ({}, {"DULY_STORE": "a://", "DULY_QUEUE": "b://"}, Address("a://", "b://")),
        ({"url": "a://"}, {"DULY_QUEUE": "b://"}, Address("a://")),
        ({"url": "a://", "queue": "b://"}, {}, Address("a://", "b://")),
        ({"store": "a://"}, {"DULY_URL": "z://", "DULY_COORDINATOR": "c://"}, Address("a://", None, "c://")),
        ({"store": "a://", "queue": "b://"}, {"DULY_QUEUE": "z://"}, Address("a://", "b://")),
    ],
)
def test_parts_are_named_in_code_or_around_it(given, environment, address):
    assert StoreAddress(**given).address(environment) == address


@pytest.mark.parametrize(
    ("own", "moved", "expected"),
    [
        ("redis://a", "redis://b:6379/1", "redis://b:6379/1"),
        (f"redis://u:{SECRET}@a/0?timeout=2", "redis://b:6379/1", f"redis://u:{SECRET}@b:6379/1"),
        (f"redis://:p@{SECRET}@a", "redis://b", f"redis://:p@{SECRET}@b"),
        (f"redis://u:{SECRET}@a", "postgresql://b/duly", "postgresql://b/duly"),
        (f"postgresql://u:{SECRET}@a/x", "sqlite:////b.db", "sqlite:////b.db"),
        ("sqlite:///a@b.db", "sqlite:////c.db", "sqlite:////c.db"),
    ],
)
def test_a_store_that_moved_is_opened_with_the_credentials_that_fit(own, moved, expected):
    assert StoreAddress(own).moved_to(moved) == StoreAddress(expected)


def test_a_store_is_not_named_twice():
    with pytest.raises(ConfigurationError, match="named once"):
        StoreAddress(url="a://", store="b://").address({})


@pytest.mark.parametrize(
    "address",
    [
        Address(f"sqlite:///x?password={SECRET}", f"redis://:{SECRET}@h"),
        Address("redis://h", None, f"etcd://u:{SECRET}@h"),
        Address("memory://", None, "etcd://h"),
        Address(f"postgresql://u:{SECRET}@h/db", "sqlite:///x"),
        Address(f"postgresql://u:{SECRET}@h/db", "etcd://h"),
        Address(f"postgresql://u:{SECRET}@h/db", None, "memory://"),
        Address(f"postgresql://u:{SECRET}@h/db", "redis://h", "nonsense://h"),
    ],
)
def test_what_does_not_go_together_is_refused_with_what_does(address):
    with pytest.raises(ConfigurationError, match="cannot be combined: one URL does everything, or store=") as refusal:
        open_address(address, Opening())
    assert SECRET not in str(refusal.value)


def test_the_same_url_for_all_parts_is_one_backend():
    assert open_address(Address("memory://x", "memory://x", "memory://x"), Opening()).url == "memory://x"


async def test_a_coordinator_is_no_store():
    with pytest.raises(ConfigurationError, match="keeps no runs: use Scheduler"):
        async with Scheduler("etcd://h").client():
            pass
