"""The link between a handler on this node and its run, and the contexts that hold it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from duly.model import LineSource, Progress
from duly.runtime.active_runs import ActiveRun
from duly.runtime.context import Context
from duly.runtime.transactions import Transactions


class ContextLink:
    """Answers a context's requests from the live run. Safe to use from a handler's thread."""

    __slots__ = ("_live", "_monotonic", "_transactions")

    def __init__(self, active: ActiveRun, monotonic: Callable[[], float], transactions: Transactions) -> None:
        self._live = active
        self._monotonic = monotonic
        self._transactions = transactions

    @property
    def cancelled(self) -> bool:
        active = self._live
        return active.cancelled or active.timed_out or active.released or active.lost

    @property
    def owned(self) -> bool:
        return not self._live.lost and self._monotonic() < self._live.trusted_until

    def report(self, progress: Progress) -> None:
        self._live.report(progress)

    def keep(self, level: int, logger: str, text: str) -> None:
        self._live.write(LineSource.LOG, text, logging.getLevelName(level), logger)

    def transaction(self) -> Any:
        return self._transactions.open(self._live)


class NodeContexts:
    """Makes the contexts of a node's attempts."""

    def __init__(self, monotonic: Callable[[], float], transactions: Transactions) -> None:
        self._monotonic = monotonic
        self._transactions = transactions

    def of(self, active: ActiveRun) -> Context:
        return Context(active.claim.run, ContextLink(active, self._monotonic, self._transactions))

    def begin(self, active: ActiveRun) -> None:
        active.begin(self._monotonic())
