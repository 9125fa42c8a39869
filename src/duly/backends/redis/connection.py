"""One connection: commands are written at once, answers are matched in order, and nothing is waited for without end.

A cancelled call leaves its place in the line, so the answers of the others still find their owners. When the oldest
unanswered command is past its deadline, or the server says something that is no answer, the connection is dropped and
all who wait on it are told.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, cast

import hiredis

from duly.errors import BackendError, BackendUnavailable

# The first word of an error reply, and what to do about it.
_PASSING = {
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
_LASTING = {
    "NOAUTH": "wants a password: put it into the URL, redis://user:password@host",
    "WRONGPASS": "does not know this user and password",
    "NOPERM": "does not allow this user what Duly needs: EVALSHA, SCRIPT, PUBLISH, SUBSCRIBE, and its keys",
    "NOPROTO": "speaks another protocol",
}
# A script passes on what a command in it was refused for; older servers wrap it into a text of their own.
_WRAPPED = re.compile(r"(?:^|[\s:])-(" + "|".join(_PASSING) + r")\b")
_MOVED = re.compile(r"MOVED \d+ (?P<host>\S*):(?P<port>\d+)")
_CROWDED = "max number of clients"


def kind_of(text: str) -> str:
    """The word that says what kind of error a reply is."""
    word = text.partition(" ")[0]
    if word in _PASSING or word in _LASTING:
        return word
    wrapped = _WRAPPED.search(text)
    return wrapped[1] if wrapped else word


def moved_to(text: str) -> tuple[str, int] | None:
    """The address that a MOVED reply names; an empty host means the one that answered."""
    match = _MOVED.match(text)
    return (match["host"], int(match["port"])) if match else None


def refused(text: str, place: str) -> BackendError:
    """An error reply in Duly's words."""
    kind = kind_of(text)
    if kind in _PASSING:
        return BackendUnavailable(f"{place} {_PASSING[kind]} ({text})")
    if kind in _LASTING:
        return BackendError(f"{place} {_LASTING[kind]} ({text})")
    if _CROWDED in text:
        return BackendUnavailable(f"{place} has as many clients as it allows: raise its maxclients")
    return BackendError(f"{place} refused: {text}")


def unreachable(error: BaseException, place: str) -> BackendUnavailable:
    """Why a connection could not be made or kept."""
    return BackendUnavailable(f"{place} cannot be reached: {str(error) or type(error).__name__}")


_NOT_YET = object()
_KEEPALIVE = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))

Word = bytes | str | int | float

# What goes over the wire for a command. The stub of hiredis knows commands of one word only.
pack = cast("Callable[[tuple[Word, ...]], bytes]", hiredis.pack_command)


class Connection(asyncio.Protocol):
    """Belongs to one event loop, from `connection_made` to `connection_lost`."""

    def __init__(self, place: str, timeout: float, lost: Callable[[Connection], None]) -> None:
        self.place = place
        self.closed = False
        self._timeout = timeout
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(notEnoughData=_NOT_YET)
        self._line: deque[tuple[asyncio.Future[Any], float]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._full: asyncio.Future[None] | None = None
        self._gone: asyncio.Future[None] = self._loop.create_future()

    # --- asking

    async def ask(self, command: bytes) -> Any:
        """Send a packed command; its answer, which may be an error reply."""
        if self._full is not None:
            await self._room()
        return await self.send(command)

    def send(self, command: bytes) -> asyncio.Future[Any]:
        """Write a packed command now; the future is its answer."""
        if self.closed or self._transport is None:
            raise BackendUnavailable(f"{self.place} closed the connection")
        answer: asyncio.Future[Any] = self._loop.create_future()
        deadline = self._loop.time() + self._timeout
        self._line.append((answer, deadline))
        self._transport.write(command)
        if self._timer is None:
            self._timer = self._loop.call_at(deadline, self._check)
        return answer

    async def say(self, commands: Iterable[tuple[Word, ...]]) -> list[Any]:
        """Send several commands at once; all their answers, error replies included."""
        return await asyncio.gather(*[self.send(pack(words)) for words in commands])

    async def _room(self) -> None:
        """Wait until the socket takes more, at the latest until the deadline of what is before us."""
        while self._full is not None:
            await asyncio.shield(self._full)

    # --- deadlines

    def _check(self) -> None:
        """Armed for the oldest command only: on a busy connection that is one timer per period, not one per call."""
        self._timer = None
        if not self._line:
            return
        oldest = self._line[0][1]
        if oldest <= self._loop.time():
            self.drop(TimeoutError(f"no answer for {self._timeout:g} s"))
        else:
            self._timer = self._loop.call_at(oldest, self._check)

    # --- what the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's has another base
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in {socket.AF_INET, socket.AF_INET6}:
            _keep_alive(sock)

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not _NOT_YET:
                self.answered(reply)
        except hiredis.ProtocolError as exc:
            self.drop(exc)

    def answered(self, reply: Any) -> None:
        """One reply is complete."""
        if not self._line:
            self.drop(ConnectionError("an answer to nothing"))
            return
        answer, _ = self._line.popleft()
        if not answer.done():  # else its caller was cancelled
            answer.set_result(reply)

    def pause_writing(self) -> None:
        self._full = self._loop.create_future()

    def resume_writing(self) -> None:
        full, self._full = self._full, None
        if full is not None and not full.done():
            full.set_result(None)

    def eof_received(self) -> None:
        """Let the transport close."""

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc or ConnectionError("the server closed the connection"))
        if not self._gone.done():
            self._gone.set_result(None)

    # --- ending

    def drop(self, why: BaseException) -> None:
        """Give the connection up at once."""
        self._end(why)
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        """Give it up, and return when the socket is closed. Whoever waited for an answer is told."""
        self.drop(ConnectionError("closed by us"))
        if self._transport is not None:
            await self._gone

    def _end(self, why: BaseException) -> None:
        if self.closed:
            return
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        line, self._line = self._line, deque()
        for answer, _ in line:
            if not answer.done():
                answer.set_exception(unreachable(why, self.place))
        self.resume_writing()
        self._lost(self)


def answer_of(reply: Any, place: str) -> Any:
    """The reply, unless it is an error."""
    if isinstance(reply, hiredis.ReplyError):
        raise refused(str(reply), place)
    return reply


def _keep_alive(sock: socket.socket) -> None:
    """Notice a peer that is gone without a word even while nothing is asked."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
