"""Named locks with one holder at a time, and a fence for systems that can check one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from duly.errors import BackendUnavailable, ClaimLost, ConfigurationError, LockUnavailable, shown
from duly.model import Lease
from duly.model.sanitize import checked_text
from duly.ports import Clock, Coordinator
from duly.rules.lease_limits import trusted_until

_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 0.5
_LONGEST_TTL = 366 * 86400.0
_LONGEST_NAME = 300
_KIND = "lock:"  # among leases, beside those of planning


class Lock:
    """A lock that is held. `fence` is greater than that of every earlier holder."""

    def __init__(self, lease: Lease, clock: Clock, until: float) -> None:
        self._lease = lease
        self._clock = clock
        self._until = until

    @property
    def name(self) -> str:
        return self._lease.name

    @property
    def fence(self) -> int:
        return self._lease.fence

    @property
    def held(self) -> bool:
        """Whether this process certainly still holds the lock."""
        return self._clock.monotonic() < self._until

    async def keep(self, coordinator: Coordinator, ttl: float) -> None:
        """Renew the lock until another holder has it."""
        while True:
            await asyncio.sleep(ttl / 3)
            sent = self._clock.monotonic()
            with suppress(BackendUnavailable):  # tried again in a moment; `held` says when it has become uncertain
                [lease] = await coordinator.renew([self._lease], ttl)
                if lease is None:
                    self._until = sent
                    return
                self._until = trusted_until(sent, ttl)

    def check(self) -> None:
        """Raise `ClaimLost` if the lock may no longer be held."""
        if not self.held:
            raise ClaimLost(f"the lock {self.name!r} could not be renewed in time: another holder may have it")


@asynccontextmanager
async def locked(
    coordinator: Coordinator, clock: Clock, name: str, holder: str, ttl: float, wait: float
) -> AsyncIterator[Lock]:
    """Hold a lock for the block, renewing it; `LockUnavailable` if it is not free within `wait` seconds."""
    checked_text("name of the lock", name, _LONGEST_NAME, empty=False)
    if not _is_number(ttl) or not 0 < ttl <= _LONGEST_TTL:
        raise ConfigurationError(
            f"lock {name!r}: ttl={shown(ttl)}: expected more than 0 and at most {_LONGEST_TTL:g} seconds"
        )
    if not _is_number(wait) or not 0 <= wait <= _LONGEST_TTL:
        raise ConfigurationError(f"lock {name!r}: wait={shown(wait)}: expected 0 to {_LONGEST_TTL:g} seconds")
    sent, lease = await _acquire(coordinator, clock, f"{_KIND}{name}", holder, ttl, wait)
    lock = Lock(lease, clock, trusted_until(sent, ttl))
    renewing = asyncio.get_running_loop().create_task(lock.keep(coordinator, ttl))
    try:
        yield lock
    finally:
        renewing.cancel()
        await asyncio.wait([renewing])
        with suppress(BackendUnavailable):  # it expires
            await coordinator.release([lease])


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


async def _acquire(
    coordinator: Coordinator, clock: Clock, name: str, holder: str, ttl: float, wait: float
) -> tuple[float, Lease]:
    deadline = clock.monotonic() + wait
    pause = _FIRST_PAUSE
    while True:
        sent = clock.monotonic()
        lease = await coordinator.acquire(name, holder, ttl)
        if lease is not None:
            return sent, lease
        left = deadline - clock.monotonic()
        if left <= 0:
            present = await coordinator.holder(name)
            who = f"{present.holder} has it" if present else "somebody has it"
            raise LockUnavailable(f"the lock {name!r} was not free within {wait:g} s: {who}")
        await asyncio.sleep(min(pause, left))
        pause = min(pause * 2, _LONGEST_PAUSE)
