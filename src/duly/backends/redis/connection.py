"""One connection to a server, and the errors of Duly for what a server answers.

Commands are written at once; replies come in the same order. A cancelled call keeps its place in that order, so the
other calls still get their replies. If the oldest reply is overdue, or the server sends something unexpected, the
connection is dropped and every pending call raises.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, cast

import hiredis

from duly.backends.url_parts import Address
from duly.errors import BackendError, BackendUnavailable

# The first word of an error reply, and what it means. These states end without our doing: the caller may try again.
_TEMPORARY = {
    "LOADING": "is still loading its data",
    "READONLY": "is a replica now and takes no writes",
    "CLUSTERDOWN": "belongs to a cluster that is down",
    "MASTERDOWN": "has lost its master",
    "BUSY": "is busy with a script that does not end",
    "TRYAGAIN": "is moving these keys to another node",
    "OOM": "has no memory left: raise its maxmemory, or keep finished runs for a shorter time",
    "MISCONF": "cannot write to its disk and refuses changes until it can",
    "NOREPLICAS": "has too few replicas to write to (min-replicas-to-write)",
    "UNKILLABLE": "is busy with a script that does not end",
    "MOVED": "belongs to a cluster in which these keys moved",
    "ASK": "belongs to a cluster in which these keys are moving",
    "UNBLOCKED": "has changed its role",
}
_PERMANENT = {
    "NOAUTH": "wants a password: put it into the URL, redis://user:password@host",
    "WRONGPASS": "does not know this user and password",
    "NOPERM": "does not allow this user what Duly needs: EVALSHA, SCRIPT, PUBLISH, SUBSCRIBE, and its keys",
    "NOPROTO": "speaks another protocol",
}
# When a command inside a script fails, older servers wrap the error of the command in an error of the script.
_WRAPPED = re.compile(r"(?:^|[\s:])-(" + "|".join(_TEMPORARY) + r")\b|: (WRONGTYPE)\b")
_MOVED = re.compile(r"MOVED \d+ (?P<host>\S*):(?P<port>\d+)")
_TOO_MANY_CLIENTS = "max number of clients"

_INCOMPLETE = object()
_KEEPALIVE = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))

Argument = bytes | str | int | float

# A command as bytes. The type stub of hiredis allows only commands without arguments.
pack = cast("Callable[[tuple[Argument, ...]], bytes]", hiredis.pack_command)


def error_code(text: str) -> str:
    """The first word of an error reply, or of the error that it wraps."""
    word = text.partition(" ")[0]
    if word in _TEMPORARY or word in _PERMANENT:
        return word
    wrapped = _WRAPPED.search(text)
    return wrapped[1] or wrapped[2] if wrapped else word


def moved_to(text: str) -> tuple[str, int] | None:
    """The address that a MOVED reply names; an empty host means the server that replied."""
    match = _MOVED.match(text)
    return (match["host"], int(match["port"])) if match else None


def reply_error(text: str, server: str) -> BackendError:
    """The exception for an error reply."""
    code = error_code(text)
    if code in _TEMPORARY:
        return BackendUnavailable(f"{server} {_TEMPORARY[code]} ({text})")
    if code in _PERMANENT:
        return BackendError(f"{server} {_PERMANENT[code]} ({text})")
    if _TOO_MANY_CLIENTS in text:
        return BackendUnavailable(f"{server} has as many clients as it allows: raise its maxclients")
    return BackendError(f"{server} refused: {text}")


def checked_reply(reply: Any, server: str) -> Any:
    """The reply; raises if it is an error."""
    if isinstance(reply, hiredis.ReplyError):
        raise reply_error(str(reply), server)
    return reply


def unreachable(error: BaseException, server: str) -> BackendUnavailable:
    """The exception for a connection that cannot be made or kept."""
    return BackendUnavailable(f"{server} cannot be reached: {str(error) or type(error).__name__}")


class Connection(asyncio.Protocol):
    """Belongs to one event loop, from `connection_made` to `connection_lost`."""

    def __init__(self, server: str, timeout: float, on_lost: Callable[[Connection], None]) -> None:
        self.server = server
        self.address: Address = ("", 0)
        self.closed = False
        self._timeout = timeout
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(notEnoughData=_INCOMPLETE)
        self._pending: deque[tuple[asyncio.Future[Any], float]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._writable: asyncio.Future[None] | None = None  # set while the socket takes no more
        self._socket_closed: asyncio.Future[None] = self._loop.create_future()

    # --- requests

    async def request(self, command: bytes) -> Any:
        """Send a packed command and return its reply, which may be an error reply."""
        if self._writable is not None:
            await self.writable()
        return await self.send(command)

    async def writable(self) -> None:
        """Return when the socket takes more."""
        while self._writable is not None:
            await asyncio.shield(self._writable)

    def send(self, command: bytes) -> asyncio.Future[Any]:
        """Write a packed command now; the future is its reply."""
        if self.closed or self._transport is None:
            raise BackendUnavailable(f"{self.server} closed the connection")
        reply: asyncio.Future[Any] = self._loop.create_future()
        deadline = self._loop.time() + self._timeout
        self._pending.append((reply, deadline))
        self._transport.write(command)
        if self._timer is None:
            self._timer = self._loop.call_at(deadline, self._check_deadline)
        return reply

    async def send_all(self, commands: Iterable[tuple[Argument, ...]]) -> list[Any]:
        """Send several commands at once and return all their replies, error replies included."""
        return await asyncio.gather(*[self.send(pack(words)) for words in commands])

    def _check_deadline(self) -> None:
        """One timer serves all pending commands: it runs for the oldest only, so a busy connection needs few timers."""
        self._timer = None
        if not self._pending:
            return
        oldest = self._pending[0][1]
        if oldest <= self._loop.time():
            self.drop(TimeoutError(f"no answer for {self._timeout:g} s"))
        else:
            self._timer = self._loop.call_at(oldest, self._check_deadline)

    # --- callbacks of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's has another base class
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in {socket.AF_INET, socket.AF_INET6}:
            _enable_keepalive(sock)

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not _INCOMPLETE:
                self.reply_received(reply)
        except hiredis.ProtocolError as exc:
            self.drop(exc)

    def reply_received(self, reply: Any) -> None:
        """A reply is complete."""
        if not self._pending:
            self.drop(ConnectionError("a reply without a request"))
            return
        future, _ = self._pending.popleft()
        if not future.done():  # else its caller was cancelled
            future.set_result(reply)

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)

    def eof_received(self) -> None:
        """Let the transport close."""

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc or ConnectionError("the server closed the connection"))
        if not self._socket_closed.done():
            self._socket_closed.set_result(None)

    # --- ending

    def drop(self, why: BaseException) -> None:
        """Give the connection up at once."""
        self._end(why)
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        """Give the connection up and return when the socket is closed. Pending calls raise."""
        self.drop(ConnectionError("closed by us"))
        if self._transport is not None:
            await self._socket_closed

    def _end(self, why: BaseException) -> None:
        if self.closed:
            return
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        pending, self._pending = self._pending, deque()
        for reply, _ in pending:
            if not reply.done():
                reply.set_exception(unreachable(why, self.server))
        self.resume_writing()
        self._on_lost(self)


def _enable_keepalive(sock: socket.socket) -> None:
    """Detect a peer that vanished even while nothing is sent."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
