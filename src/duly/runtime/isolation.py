"""Batches that isolate a bad item: one that the store refuses does not fail its neighbours.

A refused batch is sent again in halves until the refused items are alone. That costs a few calls, and only when
something was refused. An outage is not the fault of an item: it is raised unchanged. So is a refusal of everything,
such as that of a store without room or rights.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from duly.errors import BackendUnavailable

T = TypeVar("T")
R = TypeVar("R")

_ALONE = 8  # if this many items in a row are refused and none is accepted, the cause is not the items


class Refused:
    """The answer to an item that the store did not take."""

    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        self.error = error


async def send_isolated(send: Callable[[Sequence[T]], Awaitable[Sequence[R]]], items: Sequence[T]) -> list[R | Refused]:
    """Send items as one batch; return the answers in order, `Refused` for items that the store refuses."""
    try:
        return list(await send(items))
    except BackendUnavailable:
        raise
    except Exception as error:  # noqa: BLE001  # whatever an adapter makes of a value that it cannot send
        if len(items) == 1:
            return [Refused(error)]
    return await _Halves(send).answers(items)


class _Halves(Generic[T, R]):
    """One search for the refused items of a batch."""

    def __init__(self, send: Callable[[Sequence[T]], Awaitable[Sequence[R]]]) -> None:
        self._send = send
        self._accepted = 0
        self._refused = 0

    async def answers(self, items: Sequence[T]) -> list[R | Refused]:
        """The answers to items that were refused together."""
        middle = len(items) // 2
        return [*await self._part(items[:middle]), *await self._part(items[middle:])]

    async def _part(self, items: Sequence[T]) -> list[R | Refused]:
        try:
            answers: list[R | Refused] = list(await self._send(items))
        except BackendUnavailable:
            raise
        except Exception as error:
            if len(items) > 1:
                return await self.answers(items)
            self._refused += 1
            if self._refused >= _ALONE and not self._accepted:
                raise
            return [Refused(error)]
        self._accepted += len(items)
        return answers
