"""Listening to channels, and sleeping until there may be work.

A session has one pub/sub connection, opened when something first listens. A message is a hint: what is published while
the connection is broken is lost, so every listener gets `MISSED` when it is back. The tasks that wait also restore the
connection; there is no background task.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Self

from duly.backends.redis.connection import Connection, pack, reply_error
from duly.errors import BackendError, BackendUnavailable

if TYPE_CHECKING:
    from duly.backends.redis.client import RedisClient

MISSED = b""  # delivered in place of messages that may have been missed
_MAX_MESSAGES = 1_000
_SHORTEST_PAUSE = 0.01
_WORK = "work"
_LEASES = "leases"  # the leadership may be free


class Subscriber(Connection):
    """A connection that listens. It sends a PING when it has received nothing for a while."""

    def __init__(
        self,
        server: str,
        timeout: float,
        on_lost: Callable[[Connection], None],
        on_message: Callable[[bytes, bytes], None],
    ) -> None:
        super().__init__(server, timeout, on_lost)
        self._on_message = on_message
        self._unconfirmed: deque[tuple[bytes, asyncio.Future[None]]] = deque()
        self._silent = False
        self._ping_timer = self._loop.call_later(2 * timeout, self._ping)
        self._subscribed = False

    async def subscribe(self, channels: list[bytes]) -> None:
        """Return when the server has confirmed all of them."""
        if self.closed or self._transport is None:
            raise BackendUnavailable(f"{self.server} closed the connection")
        self._subscribed = True
        confirmed: asyncio.Future[None] = self._loop.create_future()
        self._unconfirmed.extend((channel, confirmed) for channel in channels)
        self._transport.write(pack(("SUBSCRIBE", *channels)))
        async with asyncio.timeout(self._timeout):
            await confirmed

    def unsubscribe(self, channels: list[bytes]) -> None:
        if not self.closed and self._transport is not None:
            self._transport.write(pack(("UNSUBSCRIBE", *channels)))

    def reply_received(self, reply: Any) -> None:
        self._silent = False
        if not self._subscribed:
            super().reply_received(reply)
            return
        match reply:
            case [b"message", channel, payload]:
                self._on_message(channel, payload)
            case [b"subscribe", channel, _]:
                self._confirm(channel)
            case [b"unsubscribe" | b"pong", *_] | b"PONG":  # the latter while there is no subscription
                pass
            case _:
                self.drop(reply_error(str(reply), self.server))

    def _confirm(self, channel: bytes) -> None:
        expected, confirmed = self._unconfirmed.popleft()
        assert expected == channel
        last = not self._unconfirmed or self._unconfirmed[0][1] is not confirmed
        if last and not confirmed.done():
            confirmed.set_result(None)

    def _ping(self) -> None:
        """Silence is normal: only an unanswered PING shows that the connection is dead."""
        if self.closed or self._transport is None:
            return
        if self._silent:
            self.drop(TimeoutError("no sign of life"))
            return
        self._silent = True
        if self._subscribed:
            self._transport.write(pack(("PING",)))
        self._ping_timer = self._loop.call_later(2 * self._timeout, self._ping)

    def _end(self, why: BaseException) -> None:
        self._ping_timer.cancel()
        for _, confirmed in self._unconfirmed:
            if not confirmed.done():
                confirmed.set_exception(BackendUnavailable(f"{self.server} cannot be reached: {why}"))
        self._unconfirmed.clear()
        super()._end(why)


class Listener:
    """Listens to some channels inside `async with`, or from `open` to `close`. One task at a time waits on it."""

    def __init__(self, pubsub: PubSub, channels: tuple[bytes, ...]) -> None:
        self.channels = channels
        self._pubsub = pubsub
        self._messages: list[bytes] = []
        self._waiter: asyncio.Future[None] | None = None

    async def open(self) -> None:
        """Return when the server has confirmed: every later message arrives."""
        self._pubsub.add(self)
        try:
            await self._pubsub.connect(self)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._pubsub.remove(self)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()

    async def wait(self, timeout: float) -> list[bytes]:
        """The messages since the last call, as soon as there are any; none after `timeout` seconds.

        `MISSED` among them means that others may have been lost. During an outage this goes on waiting, and restores
        the connection as soon as it can.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while not self._messages and (left := deadline - loop.time()) > 0:
            if self._pubsub.disconnected:
                await self._reconnect(left)
            else:
                await self._sleep(left)
        messages, self._messages = self._messages, []
        return messages

    async def _reconnect(self, left: float) -> None:
        """Try to restore the connection; after a failure, sleep until the next attempt is allowed."""
        try:
            async with asyncio.timeout(None if left == math.inf else left):
                await self._pubsub.connect()
        except TimeoutError:
            pass
        except BackendUnavailable:
            await self._sleep(min(left, max(self._pubsub.pause(), _SHORTEST_PAUSE)))

    async def _sleep(self, left: float) -> None:
        waiter = self._waiter = asyncio.get_running_loop().create_future()
        timer = None if left == math.inf else asyncio.get_running_loop().call_later(left, _finish, waiter)
        try:
            await waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    def deliver(self, message: bytes) -> None:
        if len(self._messages) >= _MAX_MESSAGES:
            self._messages = [MISSED]
        self._messages.append(message)
        self.wake()

    def wake(self) -> None:
        """Let the waiting task look at the connection again."""
        if self._waiter is not None:
            _finish(self._waiter)


class PubSub:
    """The pub/sub connection of a session and its listeners. `pause` says how long not to reconnect, in seconds."""

    def __init__(
        self,
        connect: Callable[[Callable[[Connection], None], Callable[[bytes, bytes], None]], Awaitable[Subscriber]],
        pause: Callable[[], float],
    ) -> None:
        self.pause = pause
        self._connect = connect
        self._listeners: dict[bytes, set[Listener]] = {}
        self._subscriber: Subscriber | None = None
        self._connecting = asyncio.Lock()
        self._closed = False

    @property
    def disconnected(self) -> bool:
        """Whether no message can arrive now. Raises after `close`."""
        if self._closed:
            raise BackendError("this session was closed during a wait")
        return self._subscriber is None

    def add(self, listener: Listener) -> None:
        for channel in listener.channels:
            self._listeners.setdefault(channel, set()).add(listener)

    def remove(self, listener: Listener) -> None:
        unused = []
        for channel in listener.channels:
            listeners = self._listeners.get(channel, set())
            listeners.discard(listener)
            if not listeners and self._listeners.pop(channel, None) is not None:
                unused.append(channel)
        if unused and self._subscriber is not None:
            self._subscriber.unsubscribe(unused)

    async def connect(self, new: Listener | None = None) -> None:
        """Make sure that there is a connection, subscribed to the channels of all listeners or of this new one."""
        try:
            async with self._connecting:
                if self.disconnected:
                    await self._reconnect()
                elif new is not None and self._subscriber is not None:
                    await self._subscriber.subscribe(list(new.channels))
        except TimeoutError as exc:
            self.drop(exc)
            raise BackendUnavailable("the server did not confirm a subscription in time") from exc

    async def _reconnect(self) -> None:
        subscriber = await self._connect(self._lost, self._received)
        try:
            if self._listeners:
                await subscriber.subscribe(list(self._listeners))
        except BaseException as exc:
            subscriber.drop(exc)
            raise
        if self._closed:
            await subscriber.close()
        if subscriber.closed:
            raise BackendUnavailable(f"{subscriber.server} closed the connection")
        self._subscriber = subscriber
        for listener in self._all_listeners():
            listener.deliver(MISSED)

    def drop(self, why: BaseException) -> None:
        """Give the connection up; the next task that waits makes another one."""
        if self._subscriber is not None:
            self._subscriber.drop(why)

    def _received(self, channel: bytes, message: bytes) -> None:
        for listener in self._listeners.get(channel, ()):
            listener.deliver(message)

    def _lost(self, connection: Connection) -> None:
        if connection is self._subscriber:
            self._subscriber = None
            self._wake_all()

    def _wake_all(self) -> None:
        for listener in self._all_listeners():
            listener.wake()

    def _all_listeners(self) -> set[Listener]:
        return {listener for listeners in self._listeners.values() for listener in listeners}

    async def close(self) -> None:
        """Waiting tasks raise."""
        self._closed = True
        subscriber, self._subscriber = self._subscriber, None
        self._wake_all()
        if subscriber is not None:
            await subscriber.close()


class Wakeup:
    """Lets the worker of one session sleep until the server publishes that there may be work.

    The server counts wake-ups. A session that goes to sleep sends the count that it saw last: if the count has changed,
    it does not sleep; if not, the server publishes the next wake-up. Nothing is published while no session sleeps. A
    claim that finds no more work sends the count, too; a task that wants to sleep meanwhile waits for that reply.
    """

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._listener: Listener | None = None
        self._seen = -1
        self._registered = False  # the server knows that we sleep
        self._claiming: asyncio.Future[None] | None = None

    async def wait(self, timeout: float) -> None:
        """Return after a wake-up, at the latest after `timeout` seconds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        listener = await self._opened()
        if self._claiming is not None:  # this one, not all that may follow it
            await asyncio.shield(self._claiming)
        if not self._registered:
            count = await self._client.call("register_sleeper", self._seen)
            if count != self._seen:
                self._seen = count
                return
        messages = await listener.wait(deadline - loop.time())
        self._registered = False
        for message in messages:
            if message.isdigit():
                self._seen = int(message)

    def before_claim(self) -> bytes | int:
        """A claim is about to be sent; returns the argument for it: the count seen last, if anything listens."""
        if self._claiming is None:
            self._claiming = asyncio.get_running_loop().create_future()
        return b"" if self._listener is None else self._seen

    def after_claim(self, count: bytes | int) -> None:
        """The claim has ended. `count` is empty if it failed, or found as many runs as it asked for."""
        claiming, self._claiming = self._claiming, None
        if claiming is not None:
            _finish(claiming)
        if isinstance(count, int) and count >= self._seen:
            self._registered = count == self._seen
            if not self._registered and self._listener is not None:
                self._seen = count
                self._listener.deliver(MISSED)

    async def _opened(self) -> Listener:
        if self._listener is None:
            listener = self._client.listen(_WORK, _LEASES)
            await listener.open()
            self._listener = listener
        return self._listener


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
