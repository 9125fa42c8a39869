"""Which handlers a node has, told to the store once instead of with every claim: a node may have thousands."""

from __future__ import annotations

from collections.abc import Collection

from duly.backends.handler_sets import digest_of
from duly.backends.postgres.unit_of_work import UnitOfWork

_WEEK = 7 * 86400 * 1_000_000

# Make the set $3 of the names $2 known; a repeat only says that it is still needed.
_TELL = """
WITH {clock}
INSERT INTO {ns}.staff (digest, handler, at)
SELECT $3, name, clock.now FROM clock, unnest($2::text[]) AS name
ON CONFLICT (digest, handler) DO UPDATE SET at = excluded.at
"""
_FORGET = """
WITH {clock}
DELETE FROM {ns}.staff WHERE at < (SELECT now FROM clock) - $2
"""


def named(handlers: Collection[str] | None) -> str | None:
    """What the set of these names is called; None: all are known."""
    return None if handlers is None else digest_of(handlers)


async def tell(unit: UnitOfWork, digest: str, handlers: Collection[str], now: int | None) -> None:
    """Make a set known, and forget those that nobody has told of for a week: whoever needs one tells it again."""
    await unit.run(_FORGET, now, _WEEK)
    await unit.run(_TELL, now, ["", *sorted(handlers)], digest)
