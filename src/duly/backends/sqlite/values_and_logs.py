"""The small things beside the runs: append-only logs, values with versions, token buckets."""

from __future__ import annotations

from collections.abc import Sequence

from duly.backends.sqlite.unit_of_work import UnitOfWork
from duly.model import Entry, Item, from_micros
from duly.rules.token_bucket import refill

_LAST = "SELECT coalesce(max(sequence), 0) FROM {ns}_log WHERE log = ?"
_APPEND = "INSERT INTO {ns}_log (log, sequence, at, value) VALUES {rows:(?1, ?, ?2, ?)}"
_TRIM = "DELETE FROM {ns}_log WHERE log = ? AND sequence <= ?"
_READ = "SELECT sequence, at, value FROM {ns}_log WHERE log = ? AND sequence > ? ORDER BY sequence LIMIT ?"

_ITEM = "SELECT key, value, version FROM {ns}_items WHERE kind = ? AND key = ?"
_ITEMS = "SELECT key, value, version FROM {ns}_items WHERE kind = ? ORDER BY key"
_SET_ITEM = """
INSERT INTO {ns}_items (kind, key, value, version) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (kind, key) DO UPDATE SET value = ?3, version = ?4
"""
_DELETE_ITEM = "DELETE FROM {ns}_items WHERE kind = ? AND key = ?"

_BUCKET = "SELECT level, at FROM {ns}_buckets WHERE bucket = ?"
_SET_BUCKET = """
INSERT INTO {ns}_buckets (bucket, level, at) VALUES (?1, ?2, ?3) ON CONFLICT (bucket) DO UPDATE SET level = ?2, at = ?3
"""


def append(unit: UnitOfWork, log: str, entries: Sequence[bytes], expect: int | None, keep: int | None) -> int | None:
    """Add entries to a log, if its last number is as expected, and leave so many; the last number."""
    row = unit.one(_LAST, log)
    assert row is not None
    last: int = row[0]
    if expect is not None and expect != last:
        return None
    rows = [(number, bytearray(value)) for number, value in enumerate(entries, last + 1)]
    unit.insert(_APPEND, rows, log, unit.at(None))
    if keep is not None:
        unit.run(_TRIM, log, last + len(entries) - keep)
    return last + len(entries)


def read(unit: UnitOfWork, log: str, after: int, limit: int) -> list[Entry]:
    """Entries with a number greater than `after`."""
    return [Entry(number, from_micros(at), value) for number, at, value in unit.all(_READ, log, after, limit)]


def get(unit: UnitOfWork, kind: str, key: str) -> Item | None:
    """A stored value."""
    row = unit.one(_ITEM, kind, key)
    return None if row is None else Item(*row)


def put(unit: UnitOfWork, kind: str, key: str, value: bytes | None, expect: int | None) -> Item | None:
    """Write or delete a value, if its version is as expected."""
    present = get(unit, kind, key)
    version = present.version if present else 0
    if expect is not None and expect != version:
        return None
    if value is None:
        unit.run(_DELETE_ITEM, kind, key)
        return None
    unit.run(_SET_ITEM, kind, key, value, version + 1)
    return Item(key, value, version + 1)


def items(unit: UnitOfWork, kind: str) -> list[Item]:
    """All values of a kind."""
    return [Item(*row) for row in unit.all(_ITEMS, kind)]


def take(unit: UnitOfWork, bucket: str, tokens: float, rate: float, burst: float, now: int) -> float:
    """Take tokens from a bucket; the seconds to wait if there are too few."""
    row = unit.one(_BUCKET, bucket)
    level, at = (burst, now) if row is None else row
    wait, left = refill(level, (now - at) / 1_000_000, tokens, rate, burst)
    unit.run(_SET_BUCKET, bucket, left, now)
    return wait
