"""Everything small apart from runs: append-only logs, values with versions, token buckets.

One change at a time per log, per kind and key, and per bucket, so that what was read is still valid when it is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from duly.backends.sql.unit import Insert, Unit, columns
from duly.model import Entry, Item, from_micros
from duly.rules.token_bucket import refill

_LAST = "SELECT coalesce(max(sequence), 0) FROM {ns}.log WHERE log = $1"
_APPEND = Insert("log", columns(log="text", sequence="bigint", at="bigint", value="bytea"))
_TRIM = "DELETE FROM {ns}.log WHERE log = $1 AND sequence <= $2"
_DELETE_LOG = "DELETE FROM {ns}.log WHERE log = $1"
_READ = "SELECT sequence, at, value FROM {ns}.log WHERE log = $1 AND sequence > $2 ORDER BY sequence LIMIT $3"

_ITEM = "SELECT key, value, version FROM {ns}.items WHERE kind = $1 AND key = $2"
_ITEMS = "SELECT key, value, version FROM {ns}.items WHERE kind = $1 ORDER BY key"
_SET_ITEM = """
INSERT INTO {ns}.items (kind, key, value, version) VALUES ($1, $2, $3, $4)
ON CONFLICT (kind, key) DO UPDATE SET value = excluded.value, version = excluded.version
"""
_DELETE_ITEM = "DELETE FROM {ns}.items WHERE kind = $1 AND key = $2"

_BUCKET = "SELECT level, at FROM {ns}.buckets WHERE bucket = $1"
_SET_BUCKET = """
INSERT INTO {ns}.buckets (bucket, level, at) VALUES ($1, $2, $3)
ON CONFLICT (bucket) DO UPDATE SET level = excluded.level, at = excluded.at
"""


async def append(unit: Unit, log: str, entries: Sequence[bytes], expect: int | None, keep: int | None) -> int | None:
    """Add entries to a log, if its last number is as expected, and keep the newest; the last number."""
    await unit.locks.one(f"log {log}")
    row = await unit.one(_LAST, log)
    assert row is not None
    last: int = row[0]
    if expect is not None and expect != last:
        return None
    if entries:
        at = await unit.at(None)
        await unit.insert(_APPEND, [(log, number, at, value) for number, value in enumerate(entries, last + 1)])
    if keep is not None:
        await unit.run(_TRIM, log, last + len(entries) - keep)
    return last + len(entries)


async def delete_log(unit: Unit, log: str) -> None:
    """Delete all entries of a log; its numbers begin again."""
    await unit.run(_DELETE_LOG, log)


async def read(unit: Unit, log: str, after: int, limit: int) -> list[Entry]:
    """Entries with a number greater than `after`."""
    rows = await unit.all(_READ, log, after, limit)
    return [Entry(number, from_micros(at), value) for number, at, value in rows]


async def get(unit: Unit, kind: str, key: str) -> Item | None:
    """A stored value."""
    row = await unit.one(_ITEM, kind, key)
    return None if row is None else Item(*row)


async def put(unit: Unit, kind: str, key: str, value: bytes | None, expect: int | None) -> Item | None:
    """Write or delete a value, if its version is as expected."""
    await unit.locks.one(f"item {kind} {key}")
    present = await get(unit, kind, key)
    version = present.version if present else 0
    if expect is not None and expect != version:
        return None
    if value is None:
        await unit.run(_DELETE_ITEM, kind, key)
        return None
    await unit.run(_SET_ITEM, kind, key, value, version + 1)
    return Item(key, value, version + 1)


async def write(unit: Unit, kind: str, key: str, value: bytes, version: int) -> None:
    """Write a value with its version."""
    await unit.run(_SET_ITEM, kind, key, value, version)


async def items(unit: Unit, kind: str) -> list[Item]:
    """All values of a kind."""
    return [Item(*row) for row in await unit.all(_ITEMS, kind)]


async def take(unit: Unit, bucket: str, tokens: float, rate: float, burst: float, now: datetime | None) -> float:
    """Take tokens from a bucket; the seconds to wait if there are too few."""
    await unit.locks.one(f"bucket {bucket}")
    at = await unit.at(now)
    row = await unit.one(_BUCKET, bucket)
    level, since = (burst, at) if row is None else row
    wait, left = refill(level, (at - since) / 1_000_000, tokens, rate, burst)
    await unit.run(_SET_BUCKET, bucket, left, at)
    return wait
