"""Transactions: a run completes, or is submitted, together with the user's own writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from duly.model import Claim, Put, Run


class Transaction(Protocol):
    """A user's transaction, which the completion of one run joins."""

    async def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement inside the transaction and return its rows."""
        ...

    async def put(self, runs: Sequence[Run]) -> list[Put]:
        """As `Queue.put`, visible only if the transaction commits."""
        ...


class TransactionStore(Protocol):
    """Works where `Capabilities.transactions` is true.

    Otherwise both methods raise a `BackendError` that says there are no transactions, when they are called.
    """

    def transaction(self, claim: Claim, *, timeout: float) -> AbstractAsyncContextManager[Transaction]:
        """A transaction whose last statement checks the fence and completes the run.

        Leaving the block normally commits the user's writes together with the completion, or raises `ClaimLost` and
        commits neither. An exception, or more than `timeout` seconds, rolls back.
        """
        ...

    def within(self, connection: Any) -> Transaction:
        """Join a transaction that the user has open on `connection` and commits. `execute` runs on it unchanged."""
        ...
