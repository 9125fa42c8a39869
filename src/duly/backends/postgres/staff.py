"""Which handlers a node has, told to the store once instead of with every claim: a node may have thousands."""

from __future__ import annotations

import hashlib
from collections.abc import Collection

from duly.backends.postgres.unit import Unit

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


class Staff:
    """Remembers the last collection it was asked about; a node's changes rarely."""

    def __init__(self) -> None:
        self._last: Collection[str] | None = None
        self._digest: str | None = None

    def digest(self, handlers: Collection[str] | None) -> str | None:
        """What the set of these names is called; None: all are known."""
        if handlers is not self._last or not isinstance(handlers, frozenset):
            self._last, self._digest = handlers, _digest_of(handlers)
        return self._digest


def _digest_of(handlers: Collection[str] | None) -> str | None:
    if handlers is None:
        return None
    return hashlib.blake2b("\n".join(sorted(handlers)).encode(), digest_size=16).hexdigest()


async def tell(unit: Unit, digest: str, handlers: Collection[str], now: int | None) -> None:
    """Make a set known, and forget those that nobody has told of for a week: whoever needs one tells it again."""
    await unit.run(_FORGET, now, _WEEK)
    await unit.run(_TELL, now, ["", *sorted(handlers)], digest)
