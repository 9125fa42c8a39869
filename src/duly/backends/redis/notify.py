"""The bell: one pub/sub connection per session, opened when somebody first listens, shared by all who do.

A ring is a hint. What was said while the connection was away is lost; when it is back, everybody is rung once, so a
lost ring costs no more than what its listener would have waited anyway. Whoever waits also mends the connection: there
is no task in the background, and nobody stays deaf.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Self

from duly.backends.redis.connection import Connection, pack, refused
from duly.errors import BackendError, BackendUnavailable

if TYPE_CHECKING:
    from duly.backends.redis.client import RedisClient


MANY = b""  # rung instead of words: anything may have been said
_MOST_WORDS = 1_000
_SHORTEST_PAUSE = 0.01


class Subscriber(Connection):
    """A connection that listens. It asks for a sign of life when it has heard nothing for a while."""

    def __init__(
        self, place: str, timeout: float, lost: Callable[[Connection], None], heard: Callable[[bytes, bytes], None]
    ) -> None:
        super().__init__(place, timeout, lost)
        self._heard = heard
        self._awaited: deque[tuple[bytes, asyncio.Future[None]]] = deque()
        self._silent = False
        self._watch = self._loop.call_later(2 * timeout, self._look)
        self._listening = False

    async def subscribe(self, channels: list[bytes]) -> None:
        """Return when the server has confirmed all of them."""
        if self.closed or self._transport is None:
            raise BackendUnavailable(f"{self.place} closed the connection")
        self._listening = True
        confirmed: asyncio.Future[None] = self._loop.create_future()
        for channel in channels:
            self._awaited.append((channel, confirmed))
        self._transport.write(pack(("SUBSCRIBE", *channels)))
        async with asyncio.timeout(self._timeout):
            await confirmed

    def unsubscribe(self, channels: list[bytes]) -> None:
        if not self.closed and self._transport is not None:
            self._transport.write(pack(("UNSUBSCRIBE", *channels)))

    def answered(self, reply: Any) -> None:
        self._silent = False
        if not self._listening:
            super().answered(reply)
            return
        match reply:
            case [b"message", channel, payload]:
                self._heard(channel, payload)
            case [b"subscribe", channel, _]:
                self._confirm(channel)
            case [b"unsubscribe" | b"pong", *_] | b"PONG":  # the latter when nothing is subscribed to at the moment
                pass
            case _:
                self.drop(refused(str(reply), self.place))

    def _confirm(self, channel: bytes) -> None:
        awaited, confirmed = self._awaited.popleft()
        assert awaited == channel
        last = not self._awaited or self._awaited[0][1] is not confirmed
        if last and not confirmed.done():
            confirmed.set_result(None)

    def _look(self) -> None:
        """No message is no news: only an unanswered question shows that a connection is dead."""
        if self.closed or self._transport is None:
            return
        if self._silent:
            self.drop(TimeoutError("no sign of life"))
            return
        self._silent = True
        if self._listening:
            self._transport.write(pack(("PING",)))
        self._watch = self._loop.call_later(2 * self._timeout, self._look)

    def _end(self, why: BaseException) -> None:
        self._watch.cancel()
        for _, confirmed in self._awaited:
            if not confirmed.done():
                confirmed.set_exception(BackendUnavailable(f"{self.place} cannot be reached: {why}"))
        self._awaited.clear()
        super()._end(why)


class Ear:
    """Listens to some channels from `async with` on, or from `open` to `close`. One task at a time waits on it."""

    def __init__(self, notifier: Notifier, channels: tuple[bytes, ...]) -> None:
        self.channels = channels
        self._notifier = notifier
        self._said: list[bytes] = []
        self._waiter: asyncio.Future[None] | None = None

    async def open(self) -> None:
        """Return when the server knows that we listen: what is said after this is heard."""
        self._notifier.add(self)
        try:
            await self._notifier.mend(self)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._notifier.remove(self)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()

    async def wait(self, timeout: float) -> list[bytes]:
        """What was said since the last time, as soon as there is something; nothing after `timeout` seconds.

        `MANY` among the words means that anything may have been said. While the server is away this waits on, and
        mends the connection as soon as it can.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while not self._said and (left := deadline - loop.time()) > 0:
            if self._notifier.deaf:
                await self._mended(left)
            else:
                await self._sleep(left)
        said, self._said = self._said, []
        return said

    async def _mended(self, left: float) -> None:
        """Try to get the connection back, or let the pause after a failure pass."""
        try:
            async with asyncio.timeout(None if left == math.inf else left):
                await self._notifier.mend()
        except TimeoutError:
            pass
        except BackendUnavailable:
            await self._sleep(min(left, max(self._notifier.pause, _SHORTEST_PAUSE)))

    async def _sleep(self, left: float) -> None:
        waiter = self._waiter = asyncio.get_running_loop().create_future()
        timer = None if left == math.inf else asyncio.get_running_loop().call_later(left, _wake, waiter)
        try:
            await waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    def ring(self, word: bytes) -> None:
        """Somebody said this."""
        if len(self._said) >= _MOST_WORDS:
            self._said = [MANY]
        self._said.append(word)
        self.stir()

    def stir(self) -> None:
        """Look up, without having heard anything."""
        if self._waiter is not None:
            _wake(self._waiter)


class Notifier:
    """Who listens to what."""

    def __init__(
        self,
        connect: Callable[[Callable[[Connection], None], Callable[[bytes, bytes], None]], Awaitable[Subscriber]],
        pause: Callable[[], float],
    ) -> None:
        self._connect = connect
        self._pause = pause
        self._ears: dict[bytes, set[Ear]] = {}
        self._subscriber: Subscriber | None = None
        self._mending = asyncio.Lock()
        self._over = False

    @property
    def deaf(self) -> bool:
        """Whether nothing can be heard now. A closed bell refuses."""
        if self._over:
            raise BackendError("this session was closed while something was waited for")
        return self._subscriber is None

    @property
    def pause(self) -> float:
        """Seconds until it is worth trying to mend the connection again."""
        return self._pause()

    def add(self, ear: Ear) -> None:
        for channel in ear.channels:
            self._ears.setdefault(channel, set()).add(ear)

    def remove(self, ear: Ear) -> None:
        unheard = []
        for channel in ear.channels:
            ears = self._ears.get(channel, set())
            ears.discard(ear)
            if not ears and self._ears.pop(channel, None) is not None:
                unheard.append(channel)
        if unheard and self._subscriber is not None:
            self._subscriber.unsubscribe(unheard)

    async def mend(self, new: Ear | None = None) -> None:
        """Have a connection, and be subscribed to what everybody, or this new one, listens to."""
        try:
            async with self._mending:
                if self.deaf:
                    await self._reconnect()
                elif new is not None and self._subscriber is not None:
                    await self._subscriber.subscribe(list(new.channels))
        except TimeoutError as exc:
            self.drop(exc)
            raise BackendUnavailable("the server did not confirm a subscription in time") from exc

    async def _reconnect(self) -> None:
        subscriber = await self._connect(self._lost, self._heard)
        try:
            if self._ears:
                await subscriber.subscribe(list(self._ears))
        except BaseException as exc:
            subscriber.drop(exc)
            raise
        if self._over:
            await subscriber.close()
        if subscriber.closed:
            raise BackendUnavailable(f"{subscriber.place} closed the connection")
        self._subscriber = subscriber
        for ear in self._everybody():
            ear.ring(MANY)

    def drop(self, why: BaseException) -> None:
        """Give the connection up; whoever waits makes another one."""
        if self._subscriber is not None:
            self._subscriber.drop(why)

    def _heard(self, channel: bytes, word: bytes) -> None:
        for ear in self._ears.get(channel, ()):
            ear.ring(word)

    def _lost(self, connection: Connection) -> None:
        if connection is self._subscriber:
            self._subscriber = None
            for ear in self._everybody():
                ear.stir()

    def _everybody(self) -> set[Ear]:
        return {ear for ears in self._ears.values() for ear in ears}

    async def close(self) -> None:
        """Whoever waits is told."""
        self._over = True
        subscriber, self._subscriber = self._subscriber, None
        for ear in self._everybody():
            ear.stir()
        if subscriber is not None:
            await subscriber.close()


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


CHANNEL = "work"
LEASES = "leases"  # somebody else's rings, which may mean that leadership is free


class Wakeup:
    """The sleep of one session, which has one listener and one worker."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._ear: Ear | None = None
        self._heard = -1
        self._noted = False  # the server knows that we sleep
        self._claiming: asyncio.Future[None] | None = None

    async def until_rung(self, timeout: float) -> None:
        """Return when there was a ring since the last one heard, at the latest after `timeout` seconds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        ear = await self._listening()
        if self._claiming is not None:  # this one, not all that may follow it
            await asyncio.shield(self._claiming)
        if not self._noted:
            rings = await self._client.call("doze", self._heard)
            if rings != self._heard:
                self._heard = rings
                return
        said = await ear.wait(deadline - loop.time())
        self._noted = False
        for word in said:
            if word.isdigit():
                self._heard = int(word)

    # --- what a claim says of it

    def claim(self) -> bytes | int:
        """A claim is about to be sent: the ring heard last, if somebody listens."""
        if self._claiming is None:
            self._claiming = asyncio.get_running_loop().create_future()
        return b"" if self._ear is None else self._heard

    def claimed(self, rings: bytes | int) -> None:
        """The claim was answered with the bell as it is, or nothing: it found as much as it wanted, or failed."""
        claiming, self._claiming = self._claiming, None
        if claiming is not None and not claiming.done():
            claiming.set_result(None)
        if isinstance(rings, int) and rings >= self._heard:
            self._noted = rings == self._heard
            if not self._noted and self._ear is not None:
                self._heard = rings
                self._ear.ring(MANY)

    async def _listening(self) -> Ear:
        if self._ear is None:
            ear = self._client.ear(CHANNEL, LEASES)
            await ear.open()
            self._ear = ear
        return self._ear
