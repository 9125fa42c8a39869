"""The string between a handler on this node and its run, and the contexts that hold it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from duly.model import Progress
from duly.runtime.context import Context
from duly.runtime.live import Live
from duly.runtime.transactions import Transactions


class NodeTether:
    """What a context asks, answered from the live run. Safe to use from a handler's thread."""

    __slots__ = ("_live", "_monotonic", "_transactions")

    def __init__(self, live: Live, monotonic: Callable[[], float], transactions: Transactions) -> None:
        self._live = live
        self._monotonic = monotonic
        self._transactions = transactions

    @property
    def cancelled(self) -> bool:
        live = self._live
        return live.cancelled or live.timed_out or live.released or live.lost

    @property
    def owned(self) -> bool:
        return not self._live.lost and self._monotonic() < self._live.trusted_until

    def report(self, progress: Progress) -> None:
        self._live.progress = progress

    def transaction(self) -> Any:
        return self._transactions.open(self._live)


class NodeContexts:
    """Makes the contexts of a node's attempts."""

    def __init__(self, monotonic: Callable[[], float], transactions: Transactions) -> None:
        self._monotonic = monotonic
        self._transactions = transactions

    def of(self, live: Live) -> Context:
        return Context(live.claim.run, NodeTether(live, self._monotonic, self._transactions))

    def begin(self, live: Live) -> None:
        live.begin(self._monotonic())
