"""The coordinator of the split stack: the seat's own, and a right that is given back is rung for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from duly.backends.split.porter import Porter
from duly.model import Lease
from duly.ports import Coordinator


class SplitCoordinator:
    """Whatever is not said here is done by the seat's coordinator as it is."""

    def __init__(self, seat: Coordinator, porter: Porter) -> None:
        self._seat = seat
        self._porter = porter

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._seat, verb)

    async def release(self, leases: Sequence[Lease]) -> None:
        await self._seat.release(leases)
        if leases:
            await self._porter.look()
