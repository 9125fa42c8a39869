"""A backend put together: a store that is the truth, and beside it a coordinator, a doorbell, or both.

What the parts promise is what the store promises. Losing the doorbell costs milliseconds, until somebody looks; losing
the coordinator costs planning, until it is back. Neither costs safety: every verb is the store's, and a leader's epoch
is installed in the store before it writes.
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

_PATIENCE = 2.0
_ANYTHING = "health"


@runtime_checkable
class Stirring(Protocol):
    """A backend that tells when its calls let runs wait again beside what was asked; the doorbell would miss that."""

    def when_stirred(self, call: Callable[[], None]) -> None: ...


class SplitBackend:
    """One session on all parts. Without a doorbell the store's own queue is used as it is."""

    capabilities: Capabilities
    store: Store
    queue: Queue
    coordinator: Coordinator

    def __init__(
        self, truth: Backend, seat: CoordinatorSession | None = None, stream: StreamNotifier | None = None
    ) -> None:
        self.url = " + ".join(part.url for part in (truth, stream, seat) if part is not None)
        self._truth = truth
        self._seat = seat
        self._stream = stream
        self.clock = truth.clock
        self.capabilities = self._promised()
        self.store, self.queue = truth.store, truth.queue
        self._notifier = None if stream is None else self._answer_the_door(stream)
        self._coordinator = SplitCoordinator(seat or truth, None if self._notifier is None else self._notifier.look)
        self.coordinator = cast("Coordinator", self._coordinator)

    def _answer_the_door(self, stream: StreamNotifier) -> Notifier:
        # Without a doorbell nothing of Redis is needed, nor need it be installed.
        from duly.backends.split.notifier import Notifier  # noqa: PLC0415
        from duly.backends.split.queue import SplitQueue  # noqa: PLC0415
        from duly.backends.split.store import SplitStore  # noqa: PLC0415

        notifier = Notifier(stream, self._truth.queue, self._truth.store, self.clock)
        # What these do not define they pass on, which a protocol cannot express.
        self.store = cast("Store", SplitStore(self._truth.store, notifier))
        self.queue = cast("Queue", SplitQueue(self._truth.queue, notifier))
        if isinstance(self._truth, Stirring):
            self._truth.when_stirred(notifier.stirred)
        return notifier

    def _promised(self) -> Capabilities:
        promised = self._truth.capabilities
        return promised if self._stream is None else replace(promised, push=True, order=Order.BANDED)

    async def open(self) -> None:
        try:
            await self._truth.open()
            await self._coordinator.open()
            if self._stream is not None:
                await self._stream.open()
        except BaseException:
            await self.close()
            raise
        self.capabilities = self._promised()

    async def close(self) -> None:
        if self._notifier is not None:
            await self._notifier.close()
        if self._stream is not None:
            await self._stream.close()
        await self._coordinator.close()
        await self._truth.close()

    def session(self, timeout: float | None = None) -> Self:
        seat = None if self._seat is None else self._seat.session(timeout)
        stream = None if self._stream is None else self._stream.session()
        return type(self)(self._truth.session(timeout), seat, stream)

    async def parts(self) -> dict[str, str]:
        """How each part is now: "reachable", or "away" and why."""
        found = {"store": await _asked(self._truth.store.time())}
        if self._stream is not None:
            await self._stream.ring([])
            found["queue"] = "reachable" if self._stream.away is None else f"away: {self._stream.away}"
        if self._seat is not None:
            found["coordinator"] = await _asked(self.coordinator.get(_ANYTHING))
        return found

    async def refresh(self) -> Capabilities:
        await self._truth.refresh()
        self.capabilities = self._promised()
        return self.capabilities

    async def examine(self) -> list[Finding]:
        found = [*await self._truth.examine()]
        if self._stream is not None:
            away = (await self.parts())["queue"]
            severity = Severity.OK if away == "reachable" else Severity.PROBLEM
            found.append(Finding(severity, "queue", f"{self._stream.url} rings, and is {away}"))
        return found if self._seat is None else [*found, *await self._seat.examine()]

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


async def _asked(question: Awaitable[object]) -> str:
    try:
        async with asyncio.timeout(_PATIENCE):
            await question
    except (DulyError, TimeoutError) as exc:
        return f"away: {str(exc) or 'no answer'}"
    return "reachable"
