"""Damage to an audit log, done behind Duly's back, on each kind of store."""

import sqlite3
from collections.abc import Callable
from contextlib import closing

import asyncpg
import redis
from msgspec.structs import replace

from duly.ports import Store
from duly.scheduler.audit import LOG

Change = Callable[[list[bytes]], list[bytes]]

_TIME = 8  # Redis keeps each entry behind its time


async def rewrite(url: str, store: Store, change: Change) -> None:
    """Replace the entries of the log by others, numbered from 1."""
    scheme = url.partition(":")[0]
    await {"memory": _memory, "sqlite": _sqlite, "redis": _redis, "postgresql": _postgres}[scheme](url, store, change)


async def _memory(_: str, store: Store, change: Change) -> None:
    kept = store._contents.logs[LOG]
    values = change([entry.value for entry in kept])
    kept[:] = [replace(kept[0], sequence=number, value=value) for number, value in enumerate(values, start=1)]


async def _sqlite(url: str, _: Store, change: Change) -> None:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
        rows = connection.execute("SELECT value FROM duly_log WHERE log = ? ORDER BY sequence", (LOG,)).fetchall()
        connection.execute("DELETE FROM duly_log WHERE log = ?", (LOG,))
        values = change([value for (value,) in rows])
        connection.executemany(
            "INSERT INTO duly_log (log, sequence, at, value) VALUES (?, ?, 0, ?)",
            [(LOG, number, value) for number, value in enumerate(values, start=1)],
        )


async def _redis(url: str, _: Store, change: Change) -> None:
    key = f"duly:{{duly}}:log:{LOG}"
    with redis.Redis.from_url(url) as client:
        entries = client.lrange(key, 0, -1)
        client.delete(key)
        for value in change([entry[_TIME:] for entry in entries]):
            client.rpush(key, entries[0][:_TIME] + value)


async def _postgres(url: str, _: Store, change: Change) -> None:
    connection = await asyncpg.connect(url)
    try:
        rows = await connection.fetch("SELECT value FROM duly.log WHERE log = $1 ORDER BY sequence", LOG)
        await connection.execute("DELETE FROM duly.log WHERE log = $1", LOG)
        for number, value in enumerate(change([row["value"] for row in rows]), start=1):
            insert = "INSERT INTO duly.log (log, sequence, at, value) VALUES ($1, $2, 0, $3)"
            await connection.execute(insert, LOG, number, value)
    finally:
        await connection.close()
