"""The set of handlers that a node has, as a store needs it: a node may have thousands, and they rarely change.

A node describes its set once, not with every claim. A store keeps a large set under its digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from typing import Generic, TypeVar

T = TypeVar("T")


class HandlerSetCache(Generic[T]):
    """Keeps the description of the last set, so that a claim with the same set need not build it again."""

    def __init__(self, describe: Callable[[Collection[str] | None], T]) -> None:
        self._describe = describe
        self._handlers: Collection[str] | None = None
        self._description = describe(None)

    def of(self, handlers: Collection[str] | None) -> T:
        """The description of these handlers; None means any handler."""
        if handlers is not self._handlers or not isinstance(handlers, frozenset):
            self._handlers, self._description = handlers, self._describe(handlers)
        return self._description


def digest_of(handlers: Collection[str]) -> str:
    """The name under which a store keeps the set."""
    return hashlib.blake2b("\n".join(sorted(handlers)).encode(), digest_size=16).hexdigest()
