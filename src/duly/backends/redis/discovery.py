"""Finding the server and connecting to it: by the address in the settings, by sentinels, or by a cluster's redirect.

Everything of a namespace is in one slot of a cluster. So a session talks to one node at a time: the master that serves
this slot. Any node redirects to it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from hiredis import ReplyError

from duly.backends.backoff import Backoff
from duly.backends.redis.connection import Argument, Connection, checked_reply, unreachable
from duly.backends.redis.settings import ConnectionSettings
from duly.backends.tls import certificate_refused
from duly.backends.url_parts import Address, Login, host_and_port
from duly.errors import BackendError, BackendUnavailable

C = TypeVar("C", bound=Connection)
T = TypeVar("T")
Make = Callable[[], C]
_MAX_REDIRECTS = 5
_DOWN = {b"s_down", b"o_down", b"failover_in_progress"}
_MAX_ASKED = 5  # nodes of a cluster, or sentinels, that one attempt to connect asks


class Discovery:
    """Connects to the server that holds the data at the moment."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self._settings = settings
        self._context: ssl.SSLContext | None = None
        self._redirect: Address | None = None
        self._learned: list[Address] = []  # the nodes of the cluster, as one of them listed them
        self._is_cluster = settings.cluster
        self._turn = 0
        self._epoch = 0  # the greatest epoch of a failover that a sentinel has reported
        self.backoff = Backoff()

    async def prepare(self) -> None:
        """Read the TLS files."""
        if self._settings.tls is not None:
            self._context = await asyncio.to_thread(self._settings.tls.context)

    async def connect(self, make: Make[C]) -> C:
        """A connection that is logged in; where sentinels are asked, one to a master."""
        self.backoff.check()
        try:
            async with asyncio.timeout(self._settings.timeout):
                connection = await self._connect(make)
        except BackendUnavailable as exc:
            self._failed(exc)
            raise
        except TimeoutError as exc:
            late = f"{self._settings.safe_url} accepted no connection within {self._settings.timeout:g} s"
            self._failed(unavailable := BackendUnavailable(late))
            raise unavailable from exc
        self.backoff.passed()
        return connection

    def _failed(self, why: BackendUnavailable) -> None:
        self._redirect = None
        self.backoff.failed(why)

    def follow(self, address: Address, connection: Connection) -> bool:
        """On this connection a cluster redirects us to this address; whether we were not yet redirected there."""
        self._is_cluster = True
        before, self._redirect = self._redirect, (address[0] or connection.address[0], address[1])
        return self._redirect != before

    async def _connect(self, make: Make[C]) -> C:
        if self._settings.service is not None:
            return await self._through_sentinels(make, self._settings.service)
        if self._redirect is not None:
            return await self._connect_to(self._redirect, make)
        known = list(dict.fromkeys((*self._settings.addresses, *self._learned)))
        return await self._first_of(known, lambda address: self._connect_to(address, make))

    async def _first_of(self, addresses: Sequence[Address], attempt: Callable[[Address], Awaitable[T]]) -> T:
        """The first attempt that succeeds; each has its share of the time, because a server that hangs may be first.

        The next call begins with the address that succeeded last, or after the one that failed last.
        """
        count = min(len(addresses), _MAX_ASKED)
        share = self._settings.timeout / count
        reasons: dict[str, None] = {}
        for _ in range(count):
            turn = self._turn % len(addresses)
            self._turn = turn + 1  # also if a caller that waits no longer cancels this attempt
            address = addresses[turn]
            try:
                async with asyncio.timeout(share):
                    made = await attempt(address)
            except BackendUnavailable as exc:
                reasons[str(exc)] = None
            except TimeoutError:
                reasons[f"{host_and_port(address)} accepted no connection within {share:g} s"] = None
            else:
                self._turn = turn
                return made
        raise BackendUnavailable("; ".join(reasons))

    async def _connect_to(self, address: Address, make: Make[C]) -> C:
        connection = await self._open(address, make)
        connection.address = address
        try:
            await self._log_in(connection, self._settings.login, self._settings.db)
            if self._is_cluster:
                await self._learn_nodes(connection)
            if self._settings.service is not None:
                await self._check_role(connection, address)
        except BaseException as exc:
            connection.drop(exc)
            raise
        return connection

    # --- a cluster

    async def _learn_nodes(self, connection: Connection) -> None:
        """Ask for the addresses of all nodes: the nodes in the URL may all be replaced some day."""
        [reply] = await connection.send_all([("CLUSTER", "SLOTS")])
        if not isinstance(reply, ReplyError):  # else it is not a cluster, or this user may not ask
            nodes = (node for _, _, *nodes in reply for node in nodes)
            self._learned = [((host or b"").decode() or connection.address[0], port) for host, port, *_ in nodes]

    # --- sentinels

    async def _through_sentinels(self, make: Make[C], service: str) -> C:
        async def through(sentinel: Address) -> C:
            master = await self._ask_sentinel(sentinel, service)
            return await self._connect_to(master, make)

        try:
            return await self._first_of(self._settings.addresses, through)
        except BackendUnavailable as exc:
            raise BackendUnavailable(f"no sentinel leads to a master of {service!r}: {exc}") from exc

    async def _ask_sentinel(self, address: Address, service: str) -> Address:
        name = host_and_port(address)
        sentinel = await self._open(address, lambda: Connection(name, self._settings.timeout, lambda _: None))
        try:
            await self._log_in(sentinel, self._settings.sentinel_login, 0)
            found, state = await sentinel.send_all(
                [("SENTINEL", "GET-MASTER-ADDR-BY-NAME", service), ("SENTINEL", "MASTER", service)]
            )
        finally:
            await sentinel.close()
        if not checked_reply(found, sentinel.server):
            raise BackendUnavailable(f"the sentinel at {name} knows no service {service!r}")
        master = found[0].decode(), int(found[1])
        self._check_view(master, checked_reply(state, sentinel.server), name)
        return master

    def _check_view(self, master: Address, state: Sequence[bytes], name: str) -> None:
        """Refuse a master that is being replaced, and the answer of a sentinel that others have overtaken.

        A master that hangs comes back some seconds after it was replaced. Until sentinels make it a replica, it takes
        writes that are lost.
        """
        known = dict(zip(state[::2], state[1::2], strict=True))
        flags = set(known[b"flags"].split(b","))
        if flags & _DOWN and master == (known[b"ip"].decode(), int(known[b"port"])):
            raise BackendUnavailable(f"{host_and_port(master)} is down, says the sentinel at {name}")
        epoch = int(known[b"config-epoch"])
        if epoch < self._epoch:
            raise BackendUnavailable(f"the sentinel at {name} does not know the latest master yet")
        self._epoch = epoch

    async def is_current(self, address: Address) -> bool:
        """Whether this address is still that of the master; True if no sentinel can say."""
        assert self._settings.service is not None
        service = self._settings.service
        try:
            return address == await self._first_of(
                self._settings.addresses, lambda sentinel: self._ask_sentinel(sentinel, service)
            )
        except BackendError:
            return True

    @staticmethod
    async def _check_role(connection: Connection, address: Address) -> None:
        """For some seconds after a failover, sentinels still name the old master."""
        [reply] = await connection.send_all([("ROLE",)])
        role = reply if isinstance(reply, ReplyError) else reply[0]
        if role != b"master":
            raise BackendUnavailable(f"{host_and_port(address)} is not a master now")

    # --- one server

    async def _open(self, address: Address, make: Make[C]) -> C:
        loop = asyncio.get_running_loop()
        host, port = address
        name = host if self._context is not None else None
        try:
            if host.startswith("/"):
                _, connection = await loop.create_unix_connection(make, host)
            else:
                _, connection = await loop.create_connection(make, host, port, ssl=self._context, server_hostname=name)
        except ssl.SSLCertVerificationError as exc:
            raise certificate_refused(exc, host_and_port(address)) from exc
        except OSError as exc:  # refused, unknown host, broken TLS
            raise unreachable(exc, host_and_port(address)) from exc
        return connection

    async def _log_in(self, connection: Connection, login: Login | None, db: int) -> None:
        commands: list[tuple[Argument, ...]] = [("CLIENT", "SETNAME", "duly")]
        if login is not None:
            user = () if login.username is None else (login.username,)
            commands.insert(0, ("AUTH", *user, login.password))
        if db:
            commands.append(("SELECT", db))
        for words, reply in zip(commands, await connection.send_all(commands), strict=True):
            if words[0] != "CLIENT":  # the name is for people, and not every server allows it
                checked_reply(_without_secrets(reply, login), connection.server)


def _without_secrets(reply: object, login: Login | None) -> object:
    """A server may quote the command that it refuses."""
    if login is None or not isinstance(reply, ReplyError):
        return reply
    text = str(reply)
    for secret in (login.password, login.username):
        text = text.replace(secret, "…") if secret else text
    return ReplyError(text)


class ReconnectingConnection:
    """One connection at a time, made when it is needed, shared by all callers.

    `check` looks at each new connection before it is used; False: the server redirected us, connect again.
    """

    def __init__(
        self, discovery: Discovery, settings: ConnectionSettings, check: Callable[[Connection], Awaitable[bool]]
    ) -> None:
        self.current: Connection | None = None
        self._discovery = discovery
        self._settings = settings
        self._check = check
        self._connecting = asyncio.Lock()
        self._closed = False

    async def connection(self) -> Connection:
        """The connection; if there is none, all callers wait for the same attempt to make one."""
        if self.current is not None:
            return self.current
        async with self._connecting:
            if self.current is None:
                self.current = await self._new()
            return self.current

    async def _new(self) -> Connection:
        for _ in range(_MAX_REDIRECTS):
            made = await self._discovery.connect(self._make)
            try:
                accepted = await self._check(made)
            except BaseException as exc:
                made.drop(exc)
                raise
            if self._closed or not accepted:
                await made.close()
            if made.closed and accepted:
                raise BackendUnavailable(f"{self._settings.safe_url} closed the connection")
            if accepted:
                return made
        raise BackendUnavailable(f"{self._settings.safe_url} is a cluster whose nodes redirect us without end")

    def _make(self) -> Connection:
        return Connection(self._settings.safe_url, self._settings.timeout, self._lost)

    def _lost(self, connection: Connection) -> None:
        if self.current is connection:
            self.current = None

    def drop(self, why: str) -> None:
        """Give the connection up; the next call makes another one."""
        if self.current is not None:
            self.current.drop(ConnectionError(why))

    async def close(self) -> None:
        self._closed = True
        if self.current is not None:
            await self.current.close()
