"""The store port: everything that is kept. It joins five smaller ports; a caller asks for the smallest it needs."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from duly.ports.job_store import JobStore
from duly.ports.run_store import RunStore
from duly.ports.transaction_store import TransactionStore
from duly.ports.transfer_store import TransferStore
from duly.ports.value_store import ValueStore


class Store(JobStore, RunStore, ValueStore, TransactionStore, TransferStore, Protocol):
    """Jobs, runs, values and logs, transactions, moving. Absence is None; a lost race is a value."""

    async def migrate(self) -> list[str]:
        """Bring the schema up to date; returns the names of the steps applied. Safe to call from several processes."""
        ...

    async def time(self) -> datetime:
        """The store's clock."""
        ...
