"""Which handlers a node has, as a store is told: a node may have thousands, and they rarely change.

What is said about a collection is made once; many names are kept by the store as a set that is called by its digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from typing import Generic, TypeVar

T = TypeVar("T")


class Staff(Generic[T]):
    """Remembers what it said about the last collection it was asked about."""

    def __init__(self, describe: Callable[[Collection[str] | None], T]) -> None:
        self._describe = describe
        self._last: Collection[str] | None = None
        self._said = describe(None)

    def of(self, handlers: Collection[str] | None) -> T:
        """What to say about these handlers; None: all are known."""
        if handlers is not self._last or not isinstance(handlers, frozenset):
            self._last, self._said = handlers, self._describe(handlers)
        return self._said


def digest_of(handlers: Collection[str]) -> str:
    """What the set of these names is called."""
    return hashlib.blake2b("\n".join(sorted(handlers)).encode(), digest_size=16).hexdigest()
