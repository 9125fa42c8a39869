"""Submitting in a transaction of the user's own: the run exists if and when they commit, and not otherwise."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from duly.errors import ConfigurationError
from duly.model import Put
from duly.ports import Transaction
from duly.scheduler.client import Client
from duly.scheduler.handles import RunHandle
from duly.scheduler.submitting import Options, name_of


class UserTransaction:
    """What `scheduler.within(connection)` gives. The transaction is theirs to begin and to end."""

    def __init__(
        self, client: Callable[[], Awaitable[Client]], handle: Callable[[Put], RunHandle[Any]], connection: Any
    ) -> None:
        self._client = client
        self._handle = handle
        self._connection = connection

    async def submit(self, handler: Any, payload: Mapping[str, Any] | None = None, **options: Any) -> RunHandle[Any]:
        """As `Scheduler.submit`. The handle is of use once the transaction has committed."""
        chosen = Options(**options)
        client = await self._client()
        put = await client.submitter.submit(name_of(handler), payload, chosen, self._joined(client))
        return self._handle(put)

    async def submit_many(
        self, handler: Any, payloads: Iterable[Mapping[str, Any]], **options: Any
    ) -> list[RunHandle[Any]]:
        """As `Scheduler.submit_many`."""
        chosen = Options(**options)
        client = await self._client()
        puts = await client.submitter.submit_many(name_of(handler), payloads, chosen, self._joined(client))
        return [self._handle(put) for put in puts]

    def _joined(self, client: Client) -> Transaction:
        backend = client.backend
        if not backend.capabilities.transactions:
            raise ConfigurationError(
                f"within() needs a store with transactions, which {backend.url} has not: use sqlite:// or postgresql://"
            )
        return backend.store.within(self._connection)
