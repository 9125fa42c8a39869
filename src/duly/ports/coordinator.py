"""The coordinator port: leases, presence, and small shared values. Elections are built on it once, in the runtime."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Protocol

from duly.model import Item, Lease, Node


class Coordinator(Protocol):
    """Knows which nodes are alive and which holds which lease. Losing it costs time, never safety."""

    async def acquire(self, name: str, holder: str, ttl: float, *, now: datetime | None = None) -> Lease | None:
        """Take the lease `name` for `ttl` seconds if it is free or has expired.

        The new lease's fence is greater than that of every earlier lease of this name, also after a release and also
        after the name was unknown for a while. Asking again as the present holder returns the same lease, same fence,
        with its time extended: a lost answer is harmless. Once a lease has expired, every caller gets a new fence, its
        last holder too; only `renew` keeps an expired lease. None if another holder has it.
        """
        ...

    async def renew(self, leases: Sequence[Lease], ttl: float, *, now: datetime | None = None) -> list[Lease | None]:
        """Extend each lease that is still this holder's under this fence, even if expired, unless another took it.

        In order; None for one that was lost. Never creates a lease.
        """
        ...

    async def release(self, leases: Sequence[Lease]) -> None:
        """Release leases at once. One that was lost or released before is ignored. Wakes callers that wait for it."""
        ...

    async def holder(self, name: str, *, now: datetime | None = None) -> Lease | None:
        """The lease as it is held now, None when it is free or expired."""
        ...

    async def announce(self, node: Node, ttl: float, *, now: datetime | None = None) -> None:
        """Announce that this node is alive, for `ttl` seconds; replaces its earlier announcement."""
        ...

    async def beat(
        self,
        node_id: str,
        ttl: float,
        metrics: dict[str, float] | None = None,
        *,
        started_at: datetime | None = None,
        now: datetime | None = None,
    ) -> bool:
        """Extend the presence of an announced node cheaply. False: it is not known (any more), announce it again.

        With `started_at` it is known only if the node that was announced under this id started then: False also means
        that another process has announced itself under the same id since.
        """
        ...

    async def retire(self, node_id: str) -> None:
        """Withdraw a node's presence. Unknown nodes are ignored."""
        ...

    async def nodes(self, *, now: datetime | None = None) -> list[Node]:
        """The nodes whose presence has not lapsed, earliest started first, then by id."""
        ...

    async def get(self, key: str) -> Item | None:
        """A small shared value, None if it was never put."""
        ...

    async def put(self, key: str, value: bytes, expect: int | None = None) -> Item | None:
        """Write a small shared value.

        With `expect`, only if that is the present version (0: it must not exist); otherwise None. Without it, always.
        Each version is greater than the one before, not necessarily by one.
        """
        ...

    def watch(self, key: str) -> AsyncIterator[Item]:
        """The value as it is now, if there is one, then each later one; versions in between may be left out."""
        ...
