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
    Finding,
    Order,
    Queue,
    Seat,
    Severity,
    Store,
)

if TYPE_CHECKING:
    from duly.backends.split.doorbell import Doorbell
    from duly.backends.split.porter import Porter

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

    def __init__(self, truth: Backend, seat: Seat | None = None, doorbell: Doorbell | None = None) -> None:
        self.url = " + ".join(part.url for part in (truth, doorbell, seat) if part is not None)
        self._truth = truth
        self._seat = seat
        self._doorbell = doorbell
        self.clock = truth.clock
        self.capabilities = self._promised()
        self.store, self.queue = truth.store, truth.queue
        self._porter = None if doorbell is None else self._answer_the_door(doorbell)
        self._coordinator = SplitCoordinator(seat or truth, None if self._porter is None else self._porter.look)
        self.coordinator = cast("Coordinator", self._coordinator)

    def _answer_the_door(self, doorbell: Doorbell) -> Porter:
        # Without a doorbell nothing of Redis is needed, nor need it be installed.
        from duly.backends.split.porter import Porter  # noqa: PLC0415
        from duly.backends.split.queue import SplitQueue  # noqa: PLC0415
        from duly.backends.split.store import SplitStore  # noqa: PLC0415

        porter = Porter(doorbell, self._truth.queue, self._truth.store, self.clock)
        # What these do not define they pass on, which a protocol cannot express.
        self.store = cast("Store", SplitStore(self._truth.store, porter))
        self.queue = cast("Queue", SplitQueue(self._truth.queue, porter))
        if isinstance(self._truth, Stirring):
            self._truth.when_stirred(porter.stirred)
        return porter

    def _promised(self) -> Capabilities:
        promised = self._truth.capabilities
        return promised if self._doorbell is None else replace(promised, push=True, order=Order.BANDED)

    async def open(self) -> None:
        try:
            await self._truth.open()
            await self._coordinator.open()
            if self._doorbell is not None:
                await self._doorbell.open()
        except BaseException:
            await self.close()
            raise
        self.capabilities = self._promised()

    async def close(self) -> None:
        if self._porter is not None:
            await self._porter.close()
        if self._doorbell is not None:
            await self._doorbell.close()
        await self._coordinator.close()
        await self._truth.close()

    def session(self) -> Self:
        seat = None if self._seat is None else self._seat.session()
        doorbell = None if self._doorbell is None else self._doorbell.session()
        return type(self)(self._truth.session(), seat, doorbell)

    async def parts(self) -> dict[str, str]:
        """How each part is now: "reachable", or "away" and why."""
        found = {"store": await _asked(self._truth.store.time())}
        if self._doorbell is not None:
            await self._doorbell.ring([])
            found["queue"] = "reachable" if self._doorbell.away is None else f"away: {self._doorbell.away}"
        if self._seat is not None:
            found["coordinator"] = await _asked(self.coordinator.get(_ANYTHING))
        return found

    async def refresh(self) -> Capabilities:
        await self._truth.refresh()
        self.capabilities = self._promised()
        return self.capabilities

    async def examine(self) -> list[Finding]:
        found = [*await self._truth.examine()]
        if self._doorbell is not None:
            away = (await self.parts())["queue"]
            severity = Severity.OK if away == "reachable" else Severity.PROBLEM
            found.append(Finding(severity, "queue", f"{self._doorbell.url} rings, and is {away}"))
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
