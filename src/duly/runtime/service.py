"""Services: the parts of a node, each of which does one thing periodically.

A service is `async tick() -> float`, one step and the seconds until the next is useful, plus `wake()`. Tests and the
harness call `tick` themselves; a node runs `serve`, which never dies silently: a failure is an event, and the
service is tried again after a while.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from duly.errors import BackendUnavailable, ChangesLost, StoreMoved
from duly.model import Failure
from duly.model.event import DataLost, Emit, ServiceFailed, StoreAway, StoreBack
from duly.runtime.failures import failure_of
from duly.runtime.timer import Sleep, sleep_by_loop

_FIRST_RETRY = 0.1
LONGEST_RETRY = 5.0
_FAILING = 3  # failures in a row: one may be an accident


class Service(Protocol):
    """One step at a time."""

    name: str
    signal: Signal

    async def tick(self) -> float:
        """Do what there is to do; return the seconds until the next tick is useful (0: at once, inf: when woken)."""
        ...


class Signal:
    """Wakes a service that waits. A wake during a tick is not lost: the next wait returns at once."""

    __slots__ = ("_set", "_sleep", "_waiter")

    def __init__(self, sleep: Sleep = sleep_by_loop) -> None:
        self._set = False
        self._sleep = sleep
        self._waiter: asyncio.Future[None] | None = None

    def wake(self) -> None:
        self._set = True
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def clear(self) -> None:
        self._set = False

    async def wait(self, delay: float) -> None:
        """Return after `delay` seconds, or as soon as `wake` is called."""
        if self._set or delay <= 0:
            await asyncio.sleep(0)
            return
        waiter = self._waiter = asyncio.get_running_loop().create_future()
        cancel = self._sleep(delay, waiter) if delay < math.inf else None
        try:
            await waiter
        finally:
            self._waiter = None
            if cancel is not None:
                cancel()


class Nudge:
    """Wakes a signal, but not more often than once in a period: hints may come by the thousand."""

    def __init__(self, signal: Signal, period: float) -> None:
        self._signal = signal
        self._period = period
        self._last = -math.inf
        self._pending: asyncio.TimerHandle | None = None

    def __call__(self) -> None:
        if self._pending is not None:
            return
        loop = asyncio.get_running_loop()
        wait = self._last + self._period - loop.time()
        if wait <= 0:
            self._fire()
        else:
            self._pending = loop.call_later(wait, self._fire)

    def _fire(self) -> None:
        self._pending = None
        self._last = asyncio.get_running_loop().time()
        self._signal.wake()

    def close(self) -> None:
        if self._pending is not None:
            self._pending.cancel()


class ServiceHealth:
    """Which services of a node cannot reach the store or fail otherwise, and since when."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._away: dict[str, float] = {}
        self._failing: dict[str, Trouble] = {}
        self._namesake = ""  # the other process under this node's id, if there is one
        self._when_moved: Callable[[StoreMoved], None] = lambda _: None

    @property
    def shares_id(self) -> bool:
        """Whether another process uses this node's id."""
        return bool(self._namesake)

    def share_id(self, other: str) -> None:
        """Record the description of another process that uses this node's id; empty if none does."""
        self._namesake = other

    def when_moved(self, call: Callable[[StoreMoved], None]) -> None:
        """Call this, on any thread and any number of times, when the store has moved to another address."""
        self._when_moved = call

    def moved(self, error: StoreMoved) -> None:
        """A service has found that the store has moved."""
        self._when_moved(error)

    def away(self, service: str) -> None:
        """The service cannot reach the store."""
        self._away.setdefault(service, self._monotonic())

    def failed(self, service: str, failure: Failure) -> None:
        """The service failed in another way."""
        before = self._failing.get(service)
        since, times = (self._monotonic(), 0) if before is None else (before.since, before.times)
        self._failing[service] = Trouble(since, times + 1, f"{failure.type}: {failure.message}")

    def well(self, service: str) -> float | None:
        """The service has succeeded; return how long it could not reach the store, if it could not."""
        self._failing.pop(service, None)
        since = self._away.pop(service, None)
        return None if since is None else self._monotonic() - since

    def away_for(self) -> float:
        """The longest time any service has been without the store, 0 if all reach it."""
        return max((self._monotonic() - since for since in tuple(self._away.values())), default=0.0)

    def failing(self) -> dict[str, str]:
        """The services that have failed several times in a row, and how; and a node id that is used twice."""
        shared = {"node id": f"also used by {self._namesake}"} if self._namesake else {}
        return shared | {
            service: f"failed {trouble.times} times in {self._monotonic() - trouble.since:.0f} s, last: {trouble.last}"
            for service, trouble in tuple(self._failing.items())
            if trouble.times >= _FAILING
        }


class Trouble(Struct, frozen=True):
    """How often a service has failed in a row, since when, and the last failure."""

    since: float
    times: int
    last: str


async def serve(service: Service, emit: Emit, health: ServiceHealth, longest_retry: float = LONGEST_RETRY) -> None:
    """Tick a service for ever. Ends only by cancellation. After a failure it is tried again within `longest_retry`."""
    failures = 0
    while True:
        service.signal.clear()
        try:
            delay = await service.tick()
        except BackendUnavailable as exc:
            failures += 1
            delay = min(_back_off(failures), longest_retry)
            health.away(service.name)
            if isinstance(exc, ChangesLost):
                emit(DataLost(service.name, str(exc)))
            emit(StoreAway(service.name, str(exc), delay, exc.part))
        except Exception as exc:  # noqa: BLE001  # a service must survive one bad tick; the event reports it
            failures += 1
            delay = min(_back_off(failures), longest_retry)
            failure = failure_of(exc)
            health.failed(service.name, failure)
            if isinstance(exc, StoreMoved):
                health.moved(exc)
            emit(ServiceFailed(service.name, failure, delay))
        else:
            failures = 0
            if (seconds := health.well(service.name)) is not None:
                emit(StoreBack(service.name, seconds))
        await service.signal.wait(delay)


def _back_off(failures: int) -> float:
    return min(_FIRST_RETRY * 2.0 ** min(failures - 1, 16), LONGEST_RETRY)
