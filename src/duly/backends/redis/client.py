"""The client: how a session talks to the server. It calls scripts by name, on a few named connections.

Calls on a connection are written at once and answered in order, so many callers share it without waiting for each
other's round trips. Every call has a deadline. The next call replaces a broken connection; a call that was under way on
it raises `BackendUnavailable`, because it is unknown whether it took effect.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from hiredis import ReplyError

from duly.backends.loop_binding import LoopBinding
from duly.backends.marks import read_mark, refused
from duly.backends.redis.connection import Argument, Connection, checked_reply, error_code, moved_to, pack, reply_error
from duly.backends.redis.discovery import Discovery, ReconnectingConnection
from duly.backends.redis.pubsub import Listener, PubSub, Subscriber
from duly.backends.redis.replication import Confirmation, Unconfirmed
from duly.backends.redis.scripts import Script, scripts
from duly.backends.redis.settings import ConnectionSettings
from duly.backends.url_parts import Address
from duly.errors import ChangesLost
from duly.model import EPOCH, to_micros
from duly.model.loss import lost_text
from duly.model.transfer import StoreMark
from duly.ports import StoreClock
from duly.ports.waiting import shielded

MAIN = "main"
IDENTIFY = "identify"
MAX_SLICE = 500  # items that scripts for operators treat in one call
_MAX_RETRIES = 5
_WATCH_PERIOD = 1.0
_T = TypeVar("_T")
_LOSSES = {
    "empty": "has forgotten everything: it came back, or was emptied, without what it had acknowledged",
    "other": "is not the store it was: another node found it empty or behind, and it began again",
    "behind": "has forgotten its latest changes: it came back from an older copy, or a replica took over that lagged",
}


def slices_of(items: Sequence[_T], most: int = MAX_SLICE) -> Iterator[Sequence[_T]]:
    for start in range(0, len(items), most):
        yield items[start : start + most]


class StoreIdentity:
    """What a session knows about the store: which one it is, and the greatest fence and counts that it has seen.

    A server that was replaced, emptied, restored from an old copy, or failed over to a replica that lagged has lost
    acknowledged changes that other nodes rely on. Every new connection and every heartbeat checks for that. The first
    call after a loss raises, so that the node reports it; later fences are greater than all that this session has seen.
    The numbers of runs that were ever added and settled show how much was lost.
    """

    def __init__(self, server: str, *, confirmed: bool = False) -> None:
        self.id = ""
        self.number = 0
        self.high = 0
        self.added = 0
        self.settled = 0
        self._server = server
        self._confirmed = confirmed

    def saw(self, fence: int) -> None:
        """The store gave out this fence: no later one may be smaller."""
        self.high = max(self.high, fence)

    def saw_added(self, count: int) -> None:
        """The number of runs ever added to the store; 0 if the store does not report it."""
        self.added = max(self.added, count)

    def saw_settled(self, count: int) -> None:
        """The number of runs ever settled in the store; 0 if the store does not report it."""
        self.settled = max(self.settled, count)

    def arguments(self) -> tuple[str, int, str, int, int, int]:
        """The arguments of the script `identify`."""
        return self.id, self.high, secrets.token_hex(8), self.number, self.added, self.settled

    def learn(self, found: bytes, number: int, last: int, verdict: bytes, added: int, settled: int) -> None:
        """Take the reply of `identify`; raises once if the store is another, or has lost something.

        `added` and `settled` are the runs that were lost, and those whose end was lost, as far as this session knows.
        """
        self.id, self.number = found.decode(), number
        if not self._confirmed:  # else the store may hold fences that replicas lack and no caller received
            self.saw(last)
        if (loss := _LOSSES.get(verdict.decode())) is not None:
            lost = lost_text(added, settled)
            raise ChangesLost(f"{self._server} {loss}{lost and ': ' + lost} (incarnation {number} of the store)")

    def differs(self, found: bytes | None, last: bytes | None) -> bool:
        """Whether the reply to a heartbeat shows another store than this session knows."""
        return bool(self.id) and ((found or b"").decode() != self.id or int(last or 0) < self.high)


class RedisClient:
    """Belongs to the event loop that it was opened on, and to the process."""

    def __init__(
        self,
        settings: ConnectionSettings,
        namespace: str,
        library: Mapping[str, Script] | None = None,
        clock: StoreClock | None = None,
        *,
        ignores_mark: bool = False,
    ) -> None:
        self._clock = clock
        self._ignores_mark = ignores_mark
        self.settings = settings
        self.namespace = namespace
        self.prefix = f"duly:{{{namespace}}}:".encode()
        self.identity = StoreIdentity(settings.safe_url, confirmed=settings.replicas > 0)
        self._binding = LoopBinding(settings.safe_url)
        self._confirmation = Confirmation(settings, self.prefix)
        self._scripts = scripts() if library is None else library
        self._connections: dict[str, ReconnectingConnection] = {}
        self._loading: dict[bytes, asyncio.Future[Any]] = {}
        self._discovery = Discovery(settings)
        self._pubsub: PubSub | None = None
        self._watching: asyncio.Task[None] | None = None

    # --- opening and closing

    async def open(self) -> None:
        """Connect, and check that this is the store we know."""
        if self._binding.is_bound:
            return
        self._binding.release(self._connections, self._pubsub, self._watching)
        self._connections = {}
        self._binding.bind()
        self._discovery = Discovery(self.settings)
        self._pubsub = PubSub(self._subscriber, lambda: self._discovery.backoff.closed_for)
        try:
            await self._discovery.prepare()
            await self._connection(MAIN).connection()
            if self.settings.service is not None:
                self._watching = asyncio.create_task(self._watch_master())
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close all connections."""
        connections, pubsub = self._connections, self._pubsub
        self._connections, self._pubsub = {}, None
        watching, self._watching = self._watching, None
        if self._binding.release(connections, pubsub):
            if watching is not None:
                watching.cancel()
                await asyncio.wait([watching])
            if pubsub is not None:
                await pubsub.close()
            for connection in connections.values():
                await connection.close()

    async def _watch_master(self) -> None:
        """Leave a server that sentinels have replaced: it may take writes for some seconds, which are all lost."""
        while True:
            await asyncio.sleep(_WATCH_PERIOD)
            addresses = {each.current.address for each in self._connections.values() if each.current is not None}
            for address in addresses:
                if not await self._discovery.is_current(address):
                    self._drop_connections("sentinels have made another server the master")

    # --- calls

    def now(self) -> datetime:
        """The server's time as this session knows it, never ahead of it; the epoch before it knows the clock."""
        return self._clock.now() if self._clock is not None and self._clock.known else EPOCH

    def moment(self, now: datetime | None) -> Argument:
        """The argument that gives a script the time.

        The instant that a test passes; otherwise, negative, what we expect the server's clock to show, so that the very
        call that a jump of that clock would mislead detects it; empty before we know the clock.
        """
        if now is not None:
            return to_micros(now)
        return -self._clock.micros() if self._clock is not None and self._clock.known else b""

    async def call(self, name: str, *args: Argument, connection: str = MAIN, prefix: bytes = b"") -> Any:
        """Run a script by name. It gets the prefix of all keys as KEYS[1], and the arguments."""
        self._binding.check()
        script = self._scripts[name]
        command = pack((b"EVALSHA", script.sha, b"1", prefix or self.prefix, *args))
        return await self._request(command, connection, script)

    def call_at(self, now: datetime | None, name: str, *args: Argument, connection: str = MAIN) -> Awaitable[Any]:
        """Run a script whose first argument is the time."""
        return self.call(name, self.moment(now), *args, connection=connection)

    async def call_until_done(self, name: str, *args: Argument, limit: int) -> int:
        """Call a script that treats at most `MAX_SLICE` items, until `limit` are treated or none is left; how many."""
        done = 0
        while done < limit:
            wanted = limit - done
            some: int = await self.call(name, *args, wanted)
            done += some
            if some < min(wanted, MAX_SLICE):
                break
        return done

    async def on_key(self, command: str, key: str, *args: Argument) -> Any:
        """Send a plain command for a key of this namespace: where no script is needed."""
        return await self.command(command, self.prefix + key.encode(), *args)

    async def command(self, *words: Argument, connection: str = MAIN) -> Any:
        """Send a plain command."""
        self._binding.check()
        return await self._request(pack(words), connection, None)

    async def _request(self, command: bytes, connection: str, script: Script | None) -> Any:
        target = self._connections.get(connection) or self._connection(connection)
        current = target.current or await target.connection()
        try:
            reply = await self._sent(current, command, script)
        except Unconfirmed as exc:  # another server may be the master by now
            self._drop_connections(str(exc))
            raise
        if isinstance(reply, ReplyError):
            return await self._retry(reply, command, target, current, script)
        return reply

    def _sent(self, connection: Connection, command: bytes, script: Script | None) -> Awaitable[Any]:
        if script is not None and script.name in self._confirmation.scripts:
            return self._confirmation.request(connection, command)
        return connection.request(command)

    async def _retry(
        self,
        reply: ReplyError,
        command: bytes,
        target: ReconnectingConnection,
        connection: Connection,
        script: Script | None,
    ) -> Any:
        """Repeat a command that the server did not execute, after doing what its error reply asks for."""
        answer: Any = reply
        asked = False
        for _ in range(_MAX_RETRIES):
            text = str(answer)
            if script is not None and text.startswith("NOSCRIPT"):
                connection = await target.connection()
                await self._load(connection, script)
            elif (address := moved_to(text)) is not None:
                self._follow(address, connection, text)
                connection = await target.connection()
            elif error_code(text) == "WRONGTYPE" and not asked:
                asked = True
                if (mark := await self.mark()) is not None:
                    raise refused(mark, self.settings.safe_url)
                # Without a mark, a closed store may have been reopened since.
            else:
                break
            answer = await self._sent(connection, command, script)
            if not isinstance(answer, ReplyError):
                return answer
        text = str(answer)
        if error_code(text) == "READONLY":  # all connections lead to a server that is no longer the master
            self._drop_connections(text)
        raise reply_error(text if script is None else f"{text} [{script.name}]", self.settings.safe_url)

    async def mark(self) -> StoreMark | None:
        """Why the store is not in use, if it is not."""
        text = await self.on_key("GET", "mark")
        return None if text is None else read_mark(text)

    def _follow(self, address: Address, connection: Connection, why: str) -> None:
        """Go where a cluster redirects us, with all connections: everything of a namespace is on one node."""
        if self._discovery.follow(address, connection):
            self._drop_connections(why)
        else:  # the others have gone there before
            connection.drop(ConnectionError(why))

    def _drop_connections(self, why: str) -> None:
        for connection in self._connections.values():
            connection.drop(why)
        if self._pubsub is not None:
            self._pubsub.drop(ConnectionError(why))

    async def _load(self, connection: Connection, script: Script) -> None:
        """Load a script into the server; calls that miss it at the same time share one attempt.

        Scripts are loaded only when they are called: each one slows down the server's Lua garbage collector.
        """
        loading = self._loading.get(script.sha)
        if loading is None:
            loading = self._loading[script.sha] = connection.send(pack(("SCRIPT", "LOAD", script.text)))
            loading.add_done_callback(lambda _: self._loading.pop(script.sha))
        checked_reply(await shielded(loading), self.settings.safe_url)

    async def check_identity(self) -> None:
        """Check that the store is still the one we know; raises once if it is not, or has lost something."""
        self._binding.check()
        await self._identify(await self._connection(MAIN).connection())

    async def _identify(self, connection: Connection) -> bool:
        """The first request on a new connection: is this the store that we know? False: a cluster redirected us."""
        words = (b"EVALSHA", self._scripts[IDENTIFY].sha, b"1", self.prefix, *self.identity.arguments())
        command = pack(words)
        reply = await connection.request(command)
        if isinstance(reply, ReplyError) and str(reply).startswith("NOSCRIPT"):
            await self._load(connection, self._scripts[IDENTIFY])
            reply = await connection.request(command)
        if isinstance(reply, ReplyError) and (address := moved_to(str(reply))) is not None:
            self._discovery.follow(address, connection)
            return False
        known = checked_reply(reply, self.settings.safe_url)
        if len(known) > 1:
            self.identity.learn(*known)
        elif not self._ignores_mark and (mark := read_mark(known[0])) is not None:
            raise refused(mark, self.settings.safe_url)
        return True

    def _connection(self, name: str) -> ReconnectingConnection:
        connection = self._connections.get(name)
        if connection is None:
            connection = ReconnectingConnection(self._discovery, self.settings, self._identify)
            self._connections[name] = connection
        return connection

    # --- listening

    def listen(self, *channels: str) -> Listener:
        """A listener to channels of this namespace, by their names without the prefix.

        `async with client.listen("work") as listener: … await listener.wait(5.0)`
        """
        self._binding.check()
        assert self._pubsub is not None
        return Listener(self._pubsub, tuple(self.prefix + name.encode() for name in channels))

    async def _subscriber(self, on_lost: Any, on_message: Any) -> Subscriber:
        server, timeout = self.settings.safe_url, self.settings.timeout
        return await self._discovery.connect(lambda: Subscriber(server, timeout, on_lost, on_message))


class ClientView:
    """The keys of a namespace under another prefix: those of a store that is being loaded, or that was closed."""

    def __init__(self, client: RedisClient, under: str) -> None:
        self.client = client
        self.under = under
        self.prefix = client.prefix + under.encode()

    async def call(self, name: str, *args: Argument) -> Any:
        """Run a script by name on these keys."""
        return await self.client.call(name, *args, prefix=self.prefix)

    def call_at(self, now: datetime | None, name: str, *args: Argument) -> Awaitable[Any]:
        """Run a script whose first argument is the time."""
        return self.call(name, self.client.moment(now), *args)

    async def on_key(self, command: str, key: str, *args: Argument) -> Any:
        """Send a plain command for one of these keys."""
        return await self.client.on_key(command, self.under + key, *args)
