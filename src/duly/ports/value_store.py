"""The value store: versioned values, append-only logs and rate limits, stored with the runs.

API tokens, job files, the audit log, published events and the log of outages are kept here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from duly.model import Entry, Item


class ValueStore(Protocol):
    """Values by kind and key, logs by name, token buckets by name."""

    async def append(
        self, log: str, entries: Sequence[bytes], expect: int | None = None, keep: int | None = None
    ) -> int | None:
        """Add entries to a log, all or none; returns the last sequence number, also when there is nothing to add.

        With `expect`, only if the log's last number is that (0: empty); otherwise None. With `keep`, which is at least
        1, only the newest `keep` entries stay; without it, entries are never deleted. Numbers begin at 1, grow by one
        and are never given twice, also after entries were deleted.
        """
        ...

    async def read(self, log: str, after: int = 0, limit: int = 100) -> list[Entry]:
        """Entries with a number greater than `after`, in order, as far as they are kept: a jump in numbers is a gap."""
        ...

    async def get(self, kind: str, key: str) -> Item | None:
        """A stored value, None if there is none."""
        ...

    async def put(self, kind: str, key: str, value: bytes | None, expect: int | None = None) -> Item | None:
        """Write a value, or delete it (None).

        With `expect`, only if the present version is that (0: the value does not exist). Returns the item as it is now;
        None for a deletion and for a lost race. Versions begin at 1 and grow by one; after a deletion they begin again.
        """
        ...

    async def items(self, kind: str) -> list[Item]:
        """All values of a kind, by key."""
        ...

    async def take(
        self, bucket: str, tokens: float, rate: float, burst: float, *, now: datetime | None = None
    ) -> float:
        """Take tokens from a bucket that refills at `rate` per second up to `burst`.

        0.0 if they were taken; otherwise the seconds until they can be, and nothing is taken. A new bucket is full.
        More than `burst` can never be taken: infinity (`rules.token_bucket.refill`).
        """
        ...
