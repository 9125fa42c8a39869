"""Finding the server: an address from the URL, from sentinels, or from a cluster that sent us on; and knocking."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import TypeVar

from hiredis import ReplyError

from duly.backends.backoff import Backoff
from duly.backends.redis.connection import Connection, Word, answer_of, unreachable
from duly.backends.redis.settings import Address, Login, Place
from duly.errors import BackendError, BackendUnavailable

C = TypeVar("C", bound=Connection)
Make = Callable[[], C]


class Discovery:
    """Makes connections to whichever server it is now."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._context: ssl.SSLContext | None = None
        self._moved: Address | None = None
        self.gate = Backoff()

    async def prepare(self) -> None:
        """Read what has to be read from disk."""
        if self._place.tls is not None:
            self._context = await asyncio.to_thread(self._place.tls.context)

    async def connect(self, make: Make[C]) -> C:
        """A connection that has said who it is, and that talks to a master where sentinels know."""
        self.gate.check()
        try:
            async with asyncio.timeout(self._place.timeout):
                connection = await self._connect(make)
        except BackendUnavailable as exc:
            self._moved = None
            self.gate.failed(exc)
            raise
        except TimeoutError as exc:
            self._moved = None
            away = BackendUnavailable(f"{self._place.shown} did not let us in within {self._place.timeout:g} s")
            self.gate.failed(away)
            raise away from exc
        self.gate.passed()
        return connection

    def follow(self, address: Address) -> bool:
        """A cluster says that the keys are there; whether that is news."""
        present = self._moved or self._place.addresses[0]
        self._moved = (address[0] or present[0], address[1])
        return self._moved != present

    async def _connect(self, make: Make[C]) -> C:
        if self._place.service is not None:
            return await self._through_sentinels(make, self._place.service)
        connection = await self._knock(self._moved or self._place.addresses[0], make)
        await self._enter(connection, self._place.login, self._place.db)
        return connection

    # --- sentinels

    async def _through_sentinels(self, make: Make[C], service: str) -> C:
        reasons = []
        for address in self._place.addresses:
            try:
                master = await self._ask_sentinel(address, service)
                connection = await self._knock(master, make)
                await self._enter(connection, self._place.login, self._place.db)
                await self._check_role(connection, master)
            except BackendUnavailable as exc:
                reasons.append(str(exc))
            else:
                return connection
        raise BackendUnavailable(f"no sentinel leads to a master of {service!r}: {'; '.join(reasons)}")

    async def _ask_sentinel(self, address: Address, service: str) -> Address:
        sentinel = await self._knock(address, lambda: Connection(_named(address), self._place.timeout, _ignore))
        try:
            await self._enter(sentinel, self._place.sentinel_login, 0)
            [reply] = await sentinel.say([("SENTINEL", "GET-MASTER-ADDR-BY-NAME", service)])
            found = answer_of(reply, sentinel.place)
        finally:
            await sentinel.close()
        if not found:
            raise BackendUnavailable(f"the sentinel at {_named(address)} knows no service {service!r}")
        return found[0].decode(), int(found[1])

    @staticmethod
    async def _check_role(connection: Connection, address: Address) -> None:
        """A demoted master is called master by its sentinels for some seconds."""
        [reply] = await connection.say([("ROLE",)])
        role = reply if isinstance(reply, ReplyError) else reply[0]
        if role != b"master":
            await connection.close()
            raise BackendUnavailable(f"{_named(address)} is no master now")

    # --- knocking

    async def _knock(self, address: Address, make: Make[C]) -> C:
        loop = asyncio.get_running_loop()
        host, port = address
        name = host if self._context is not None else None
        try:
            _, connection = await loop.create_connection(make, host, port, ssl=self._context, server_hostname=name)
        except ssl.SSLCertVerificationError as exc:
            raise BackendError(
                f"the certificate of {_named(address)} is not accepted ({exc.verify_message}): give its authority with"
                " ?ssl_ca=FILE"
            ) from exc
        except OSError as exc:  # refused, unknown host, broken TLS
            raise unreachable(exc, _named(address)) from exc
        return connection

    async def _enter(self, connection: Connection, login: Login | None, db: int) -> None:
        """Say who we are. What the server answers may repeat what it was told, so a refusal is scrubbed."""
        greetings: list[tuple[Word, ...]] = [("CLIENT", "SETNAME", "duly")]
        if login is not None:
            greetings.insert(0, login.words)
        if db:
            greetings.append(("SELECT", db))
        try:
            for words, reply in zip(greetings, await connection.say(greetings), strict=True):
                if words[0] != "CLIENT":  # a name is for people, and not every server allows it
                    answer_of(_scrubbed(reply, login), connection.place)
        except BaseException as exc:
            connection.drop(exc)
            raise


def _scrubbed(reply: object, login: Login | None) -> object:
    if login is None or not isinstance(reply, ReplyError):
        return reply
    text = str(reply)
    for secret in (login.password, login.username):
        text = text.replace(secret, "…") if secret else text
    return ReplyError(text)


def _named(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _ignore(_: Connection) -> None:
    """Whoever asked a sentinel is told by the answer."""


_MOST_MOVES = 5


class ReconnectingConnection:
    """`meet` looks at each new connection before anybody else may use it; False sends us to look elsewhere."""

    def __init__(self, finder: Discovery, place: Place, meet: Callable[[Connection], Awaitable[bool]]) -> None:
        self.live: Connection | None = None
        self._finder = finder
        self._place = place
        self._meet = meet
        self._connecting = asyncio.Lock()
        self._over = False

    async def connection(self) -> Connection:
        """The connection, made anew if there is none. Whoever comes meanwhile waits for the same attempt."""
        if self.live is not None:
            return self.live
        async with self._connecting:
            if self.live is None:
                self.live = await self._new()
            return self.live

    async def _new(self) -> Connection:
        for _ in range(_MOST_MOVES):
            made = await self._finder.connect(self._made)
            try:
                met = await self._meet(made)
            except BaseException as exc:
                made.drop(exc)
                raise
            if self._over or not met:
                await made.close()
            if made.closed and met:
                raise BackendUnavailable(f"{self._place.shown} closed the connection")
            if met:
                return made
        raise BackendUnavailable(f"{self._place.shown} is a cluster whose nodes send us from one to another")

    def _made(self) -> Connection:
        return Connection(self._place.shown, self._place.timeout, self._lost)

    def _lost(self, connection: Connection) -> None:
        if self.live is connection:
            self.live = None

    def drop(self, why: str) -> None:
        """Give the connection up; the next call makes another one."""
        if self.live is not None:
            self.live.drop(ConnectionError(why))

    async def close(self) -> None:
        self._over = True
        if self.live is not None:
            await self.live.close()
