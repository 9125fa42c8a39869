"""A backend of several servers: a store that holds the data, and beside it a coordinator, Redis Streams, or both.

It promises what the store promises. Losing the streams costs milliseconds, until a node polls the store; losing the
coordinator stops planning until it is back. Neither costs safety: every verb is the store's, and a leader installs its
epoch in the store before it writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, Self, cast, runtime_checkable

from msgspec.structs import replace

from duly.backends.split.coordinator import SplitCoordinator
from duly.errors import DulyError
from duly.ports import (
    Backend,
    Capabilities,
    Coordinator,
    CoordinatorSession,
    Finding,
    Order,
    Queue,
    Severity,
    Store,
)

if TYPE_CHECKING:
    from duly.backends.split.notifier import Notifier
    from duly.backends.split.stream_notifier import StreamNotifier

_PART_TIMEOUT = 2.0
_ANY_KEY = "health"


@runtime_checkable
class AffectsOthers(Protocol):
    """A backend that reports when a call also released other runs than requested: nothing else announces those."""

    def when_others_are_affected(self, call: Callable[[], None]) -> None: ...


class SplitBackend:
    """One session on all parts. Without streams, the store's queue is used as it is."""

    capabilities: Capabilities
    store: Store
    queue: Queue
    coordinator: Coordinator

    def __init__(
        self,
        main: Backend,
        coordinator: CoordinatorSession | None = None,
        stream: StreamNotifier | None = None,
    ) -> None:
        self.url = " + ".join(part.url for part in (main, stream, coordinator) if part is not None)
        self._main = main
        self._coordinator_session = coordinator
        self._stream = stream
        self.clock = main.clock
        self.capabilities = self._combined()
        self.store, self.queue = main.store, main.queue
        self._notifier = None if stream is None else self._add_notifier(stream)
        on_release = None if self._notifier is None else self._notifier.notify_all
        self._coordinator = SplitCoordinator(coordinator or main, on_release)
        self.coordinator = cast("Coordinator", self._coordinator)

    def _add_notifier(self, stream: StreamNotifier) -> Notifier:
        # Imported here: without streams, hiredis need not be installed.
        from duly.backends.split.notifier import Notifier  # noqa: PLC0415
        from duly.backends.split.queue import SplitQueue  # noqa: PLC0415
        from duly.backends.split.store import SplitStore  # noqa: PLC0415

        notifier = Notifier(stream, self._main.queue, self._main.store, self.clock)
        # These pass on the verbs that they do not define, which a protocol cannot express.
        self.store = cast("Store", SplitStore(self._main.store, notifier))
        self.queue = cast("Queue", SplitQueue(self._main.queue, notifier))
        if isinstance(self._main, AffectsOthers):
            self._main.when_others_are_affected(notifier.notify_soon)
        return notifier

    def _combined(self) -> Capabilities:
        own = self._main.capabilities
        return own if self._stream is None else replace(own, push=True, order=Order.BANDED)

    async def open(self) -> None:
        try:
            await self._main.open()
            await self._coordinator.open()
            if self._stream is not None:
                await self._stream.open()
        except BaseException:
            await self.close()
            raise
        self.capabilities = self._combined()

    async def close(self) -> None:
        if self._notifier is not None:
            await self._notifier.close()
        if self._stream is not None:
            await self._stream.close()
        await self._coordinator.close()
        await self._main.close()

    def session(self, timeout: float | None = None) -> Self:
        coordinator = None if self._coordinator_session is None else self._coordinator_session.session(timeout)
        stream = None if self._stream is None else self._stream.session()
        return type(self)(self._main.session(timeout), coordinator, stream)

    async def parts(self) -> dict[str, str]:
        """The state of each part: "reachable", or "away" and why."""
        found = {"store": await _state_of(self._main.store.time())}
        if self._stream is not None:
            await self._stream.publish([])
            found["queue"] = "reachable" if self._stream.away is None else f"away: {self._stream.away}"
        if self._coordinator_session is not None:
            found["coordinator"] = await _state_of(self.coordinator.get(_ANY_KEY))
        return found

    async def refresh(self) -> Capabilities:
        await self._main.refresh()
        self.capabilities = self._combined()
        return self.capabilities

    async def examine(self) -> list[Finding]:
        found = [*await self._main.examine()]
        if self._stream is not None:
            state = (await self.parts())["queue"]
            severity = Severity.OK if state == "reachable" else Severity.PROBLEM
            found.append(Finding(severity, "queue", f"{self._stream.url} notifies nodes, and is {state}"))
        return found if self._coordinator_session is None else [*found, *await self._coordinator_session.examine()]

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


async def _state_of(call: Awaitable[object]) -> str:
    try:
        async with asyncio.timeout(_PART_TIMEOUT):
            await call
    except (DulyError, TimeoutError) as exc:
        return f"away: {str(exc) or 'no answer'}"
    return "reachable"
