"""What the tests of the wire share: a few scripts of their own, and wires that are closed at the end."""

import itertools
import os
from contextlib import asynccontextmanager

import redis

from duly.backends.redis.client import RedisClient
from duly.backends.redis.scripts import script_of, scripts
from duly.backends.redis.settings import parse

_numbers = itertools.count()

TEXTS = {
    "echo": "return ARGV",
    "write": "return redis.call('SET', KEYS[1] .. ARGV[1], ARGV[2])",
    "read": "return redis.call('GET', KEYS[1] .. ARGV[1])",
    "ring": "return redis.call('PUBLISH', KEYS[1] .. ARGV[1], ARGV[2])",
    "broken": "return redis.call('NO-SUCH-COMMAND')",
    "forever": "while true do end",
}
LIBRARY = {"identify": scripts()["identify"]} | {name: script_of(name, text) for name, text in TEXTS.items()}


def new_namespace() -> str:
    return f"wire_{os.getpid()}_{next(_numbers)}"


@asynccontextmanager
async def wired(url: str, namespace: str | None = None):
    """An open wire with the scripts above."""
    client = RedisClient(parse(url), namespace or new_namespace(), LIBRARY)
    await client.open()
    try:
        yield client
    finally:
        await client.close()


def operator(server) -> redis.Redis:
    """A client of another make, for what an operator does."""
    return redis.Redis(port=server.port, socket_timeout=30)
