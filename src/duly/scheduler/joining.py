"""Submissions that join a transaction which the user has open: `scheduler.within(connection)`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from duly.scheduler.handles import RunHandle

if TYPE_CHECKING:
    from duly.scheduler.facade import Scheduler


class Within:
    """What `Scheduler.within` returns. The runs exist once the transaction has committed, and only then."""

    def __init__(self, scheduler: Scheduler, connection: Any) -> None:
        self._scheduler = scheduler
        self._connection = connection

    async def submit(self, handler: Any, payload: Mapping[str, Any] | None = None, **options: Any) -> RunHandle[Any]:
        """Submit a run. Takes what `Scheduler.submit` takes."""
        [handle] = await self.submit_many(handler, [payload or {}], **options)
        return handle

    async def submit_many(
        self, handler: Any, payloads: Iterable[Mapping[str, Any]], **options: Any
    ) -> list[RunHandle[Any]]:
        """Submit many runs to one handler, in order."""
        client = await self._scheduler._client()
        runs = [client.submitter.compose(handler, payload, **options) for payload in payloads]
        puts = await client.backend.store.within(self._connection).put(runs)
        return [RunHandle(self._scheduler, put) for put in puts]
