"""One HTTP/1.1 connection, with a limit on everything that the client decides.

httptools parses; everything else is here, and serves only our application. The bytes of a request's head, its lines,
the time it takes to arrive, pipelined requests, the time a response stays unread: if a limit is exceeded, the client
gets a problem document if possible, and the connection is closed. The application never gets an incomplete request. At
`max_connections`, the longest idle connection is closed for a new one.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Iterable
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from duly.api.calls import COMMON_HEADERS, Reply, Stream
from duly.api.config import ConnectionLimits
from duly.api.exchange import Disconnected, Exchange, Headers, too_large
from duly.api.problems import CONTENT_TYPE, Problem
from duly.errors import MissingExtra

try:
    from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser, parse_url
except ImportError as exc:
    raise MissingExtra("serving the API", "server") from exc

if TYPE_CHECKING:
    from duly.api.http import HttpServer

_INTERNET = (socket.AF_INET, socket.AF_INET6)
_MAX_PIPELINED = 32  # requests that a client may send before the first response
_MAX_UNREAD_BODY = 65_536  # bytes of a body that are buffered before the application reads it
_FRAMING = 8  # maximum bytes of framing per byte of a chunked body; chunks of one byte have six
_UNREAD = 30.0  # seconds that a response may stay unread
_SLASH, _FRAGMENT = b"/", b"#"
_CLOSE = (b"connection", b"close")
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

# How much of a request has arrived: none or all of it, or a part.
_NOTHING, _DONE, _HEAD, _BODY = range(4)

_log = logging.getLogger("duly.api")


class _RefusedError(Exception):
    """Stops the parser; the connection has the reason."""


class HttpExchange(Exchange):
    """One request of a connection. `ended` is set when its response is complete, `gone` when nobody waits for it."""

    __slots__ = (
        "_connection",
        "_parts",
        "_size",
        "_waiter",
        "chunked",
        "complete",
        "ended",
        "gone",
        "keep_alive",
        "old",
        "started",
        "task",
    )

    def __init__(self, connection: Connection, method: str, path: str, query: bytes, pairs: Headers) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.pairs = pairs
        self.client = connection.client
        self.root = ""
        self.keep_alive = True
        self.old = False  # HTTP/1.0
        self.complete = False  # the whole request has arrived
        self.started = False  # the head of the response is sent
        self.ended = False
        self.gone = False
        self.chunked = False
        self.task: asyncio.Task[None] | None = None
        self._connection = connection
        self._parts: bytes | list[bytes] = b""
        self._size = 0
        self._waiter: asyncio.Future[None] | None = None

    # --- for the application

    async def body(self, most: int) -> bytes:
        if not self.complete:
            await self._arrived(most)
        if self.gone:
            raise Disconnected
        if self._size > most:
            raise too_large(most)
        parts = self._parts
        return parts if isinstance(parts, bytes) else b"".join(parts)

    async def _arrived(self, most: int) -> None:
        if (b"expect", b"100-continue") in ((name, value.lower()) for name, value in self.pairs):
            self._connection.write(_CONTINUE)
        while not (self.complete or self.gone or self._size > most):
            self._connection.read_on()
            await self._change()

    async def disconnected(self) -> None:
        while not self.gone:
            await self._change()

    async def _change(self) -> None:
        """Wait until more of the body has arrived, or the caller is gone."""
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    async def begin(self, headers: Headers) -> None:
        await self._connection.drained()
        self.started = True
        if self.old:
            self.keep_alive = False
        else:
            self.chunked = self.method != "HEAD"
        framing = [(b"transfer-encoding", b"chunked")] if self.chunked else []
        self._connection.write(self._connection.head(self, 200, (*headers, *framing)))

    async def send(self, chunk: bytes) -> None:
        await self._connection.drained()
        if chunk:
            self._connection.write(b"%x\r\n%b\r\n" % (len(chunk), chunk) if self.chunked else chunk)

    async def end(self) -> None:
        await self._connection.drained()
        if self.chunked:
            self._connection.write(b"0\r\n\r\n")
        self._connection.finish(self)

    # --- for the connection

    def feed(self, data: bytes) -> None:
        """A part of the body has arrived."""
        if self.ended:
            return  # it was answered without its body
        if not self._size:
            self._parts = data
        elif isinstance(self._parts, bytes):
            self._parts = [self._parts, data]
        else:
            self._parts.append(data)
        self._size += len(data)
        if self._waiter is not None:
            self.wake()
        elif self._size > _MAX_UNREAD_BODY:
            self._connection.stop_reading()

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def abandon(self) -> None:
        """Nobody waits for the response any longer; an incomplete request is not executed."""
        self.gone = True
        self.wake()


class Connection(asyncio.Protocol):
    """One connection. Requests are processed one after the other."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._limits: ConnectionLimits = server.limits
        self._loop = server.loop
        self._transport: Any = None
        self._parser = HttpRequestParser(self)
        self.client: tuple[str, int] | None = None
        self.since = 0.0  # the time at which it became idle
        self._stage = _NOTHING
        self._deadline: float | None = None
        self._url = b""
        self._pairs: list[tuple[bytes, bytes]] = []
        self._trailers = 0
        self._arriving: HttpExchange | None = None  # the last request whose head has arrived
        self._active: HttpExchange | None = None  # the one being processed
        self._behind: deque[HttpExchange] = deque()  # those that wait for it
        self._refusal: Problem | None = None
        self._closed = False
        self._completed = False  # whether the data being read completed a request
        self._size = 0  # of the data being read
        self._unfinished = 0
        self._received = 0
        self._delivered = 0
        self._reading = True
        self._writable: asyncio.Future[None] | None = None  # set while the client does not read
        self._unread = 0
        self._unread_since: float | None = None

    # --- start and end

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._server.connections.add(self)
        peer = transport.get_extra_info("peername")
        self.client = (str(peer[0]), int(peer[1])) if isinstance(peer, tuple) else None
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in _INTERNET:
            # The parts of a stream are separate writes: without this option each one waits 40 ms until the client
            # acknowledges the one before. asyncio sets the option only for sockets that it has created itself.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.since = self._loop.time()
        self._deadline = self.since + self._limits.header_timeout
        if len(self._server.connections) > self._limits.max_connections and not self._make_room():
            self._answer(_full(self._limits.max_connections))

    def _make_room(self) -> bool:
        """Close the connection that has been idle for the longest time; False if all are busy."""
        idle = [each for each in self._server.connections if each is not self and each.idle]
        if idle:
            min(idle, key=lambda each: each.since).cut()
        return bool(idle)

    @property
    def idle(self) -> bool:
        """Whether no request of this connection is being processed."""
        return self._active is None

    @property
    def task(self) -> asyncio.Task[None] | None:
        """The task that processes a request."""
        return None if self._active is None else self._active.task

    def cut(self) -> None:
        """Close the connection at once and discard unsent data."""
        self._closed = True
        self._server.connections.discard(self)
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """End all requests of this connection. One that is complete and being processed is processed to its end."""
        self._closed = True
        self._server.connections.discard(self)
        active = self._active
        if active is not None:
            active.abandon()
            if active.task is not None:
                self._server.keep(active.task)
        self._drop_behind()
        self.resume_writing()

    def _drop_behind(self) -> None:
        for each in self._behind:
            each.abandon()
        self._behind.clear()

    def shutdown(self) -> None:
        """The server stops: a request being processed may end, an incomplete one is dropped."""
        self._drop_behind()
        active = self._active
        if active is None or not active.complete:
            self._closed = True
            self._transport.close()
        else:
            active.keep_alive = False

    # --- time

    def sweep(self, now: float) -> None:
        """Close the connection if a request takes too long to arrive, or a response to be read."""
        unread = self._transport.get_write_buffer_size()
        if not unread or unread < self._unread:
            self._unread_since = None
        elif self._unread_since is None:
            self._unread_since = now
        elif now - self._unread_since > _UNREAD:
            self.cut()
            return
        self._unread = unread
        if self._deadline is not None and now > self._deadline and not self._closed and not self._waits_for_turn:
            self._too_slow()

    @property
    def _waits_for_turn(self) -> bool:
        """Whether a later request is arriving while an earlier one is being processed: it has no deadline yet."""
        return self._active is not None and (self._active.complete or self._active is not self._arriving)

    def _too_slow(self) -> None:
        answered = self._stage == _BODY and self._arriving is not None and self._arriving.ended
        if self._stage == _NOTHING or answered:
            self._closed = True
            self._transport.close()
        else:
            part = "head" if self._stage == _HEAD else "body"
            seconds = self._limits.header_timeout if part == "head" else self._limits.body_timeout
            self._answer(Problem(408, "too-slow", f"the {part} of the request did not arrive within {seconds:g} s"))

    # --- requests

    def data_received(self, data: bytes) -> None:
        if self._closed:
            return
        begun_in, self._completed, self._size = self._stage, False, len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:  # an ordinary request; what follows it may be another protocol
            if self._arriving is not None:
                self._arriving.keep_alive = False
            self.stop_reading()
        except HttpParserError:
            self._answer(self._refusal or Problem(400, "malformed", "this is not an HTTP/1.1 request"))
            return
        if self._stage >= _HEAD:
            if self._deadline is None:
                self._begin_deadline()
            self._count_unfinished(begun_in)

    def _begin_deadline(self) -> None:
        limits = self._limits
        seconds = limits.header_timeout if self._stage == _HEAD else limits.body_timeout
        self._deadline = self._loop.time() + seconds

    def _count_unfinished(self, begun_in: int) -> None:
        """Count the bytes that the parser has buffered: an endless header, chunks without content."""
        if self._closed or self._completed:  # most of this data belongs to a request that is complete
            return
        if self._stage == _HEAD:
            self._unfinished += self._size
            if self._unfinished > self._limits.max_header_bytes or len(self._pairs) > self._limits.max_headers:
                self._answer(_large_head(self._limits))
        elif self._stage == _BODY and begun_in == _BODY:
            self._received += self._size
            if self._received > self._limits.max_header_bytes + _FRAMING * self._delivered:
                self._answer(Problem(400, "malformed", "the body has more framing than content"))

    def on_message_begin(self) -> None:
        self._stage = _HEAD
        self._deadline = None
        self._url = b""
        self._pairs = []
        self._unfinished = self._received = self._delivered = 0

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._stage == _HEAD:
            self._pairs.append((name.lower(), value))
            return
        self._trailers += 1  # they are not checked, so they are dropped
        if self._trailers > self._limits.max_headers:
            raise _RefusedError("too many trailers")

    def on_headers_complete(self) -> None:
        self._check_head()
        parser = self._parser
        path, query = _split(self._url)
        exchange = HttpExchange(self, parser.get_method().decode("ascii"), path, query, self._pairs)
        exchange.keep_alive = parser.should_keep_alive()
        exchange.old = parser.get_http_version() == "1.0"
        self._arriving = exchange
        self._stage = _BODY
        self._deadline = None
        self._trailers = 0
        if self._active is None and self._writable is None:
            self._process(exchange)
        else:
            self._behind.append(exchange)

    def _check_head(self) -> None:
        """Refuse a head that is too large. The sum is computed only if the received data could exceed the limit."""
        limits = self._limits
        if len(self._behind) >= _MAX_PIPELINED:
            self._refuse(Problem(400, "malformed", f"more than {_MAX_PIPELINED} pipelined requests"))
        if len(self._url) > limits.max_request_line:
            detail = f"the request line is longer than {limits.max_request_line} bytes"
            self._refuse(Problem(414, "too-large", detail))
        large = self._unfinished + self._size > limits.max_header_bytes and (
            len(self._url) + sum(len(name) + len(value) + 4 for name, value in self._pairs) > limits.max_header_bytes
        )
        if large or len(self._pairs) > limits.max_headers:
            self._refuse(_large_head(limits))

    def on_body(self, body: bytes) -> None:
        self._delivered += len(body)
        if self._arriving is not None:
            self._arriving.feed(body)

    def on_message_complete(self) -> None:
        self._stage = _DONE
        self._completed = True
        self._deadline = None
        arriving = self._arriving
        if arriving is not None:
            arriving.complete = True
            arriving.wake()
        if self._active is None and not self._behind:  # it was answered before its end
            self._become_idle()

    # --- processing

    def _process(self, exchange: HttpExchange) -> None:
        self._active = exchange
        exchange.task = self._loop.create_task(self._respond(exchange))

    async def _respond(self, exchange: HttpExchange) -> None:
        api = self._server.api
        try:
            reply = await api.respond(exchange)
            if isinstance(reply, Stream):
                await api.stream(reply, exchange)
            else:
                self._reply(exchange, reply)
        except Disconnected:
            pass
        except Exception:  # noqa: BLE001  # a bug: the connection is closed
            _log.exception("a response to %s %s failed", exchange.method, exchange.path)
        finally:
            if not (exchange.ended or self._transport.is_closing()):
                self._transport.abort()

    def _reply(self, exchange: HttpExchange, reply: Reply) -> None:
        body = reply.body
        framing = b"" if reply.status == 204 else b"content-length: %d\r\n" % len(body)
        head = self._head(exchange, _common(reply.status, reply.content_type), reply.headers)
        exchange.started = True
        self.write(head + framing + (b"\r\n" if exchange.method == "HEAD" else b"\r\n" + body))
        self.finish(exchange)

    def head(self, exchange: HttpExchange, status: int, headers: Headers) -> bytes:
        """The head of a response."""
        return self._head(exchange, _status_line(status), headers) + b"\r\n"

    def _head(self, exchange: HttpExchange, first: bytes, headers: Headers) -> bytes:
        lines = first + self._server.date
        if headers:
            lines += _lines(headers)
            if _CLOSE in headers:
                exchange.keep_alive = False
                return lines
        if not exchange.keep_alive:
            return lines + b"connection: close\r\n"
        # Keep connections of HTTP/1.0 clients that ask for it, such as ApacheBench: a connection per call costs the
        # server twice as much as the call itself.
        return lines + b"connection: keep-alive\r\n" if exchange.old else lines

    def finish(self, exchange: HttpExchange) -> None:
        """The response is complete: process the next request, or wait for one."""
        exchange.ended = True
        exchange.task = None
        self._active = None
        if exchange.gone:
            return
        if not exchange.keep_alive:
            self._closed = True
            self._drop_behind()
            self._transport.close()
        elif self._behind:
            self._continue()
        elif self._stage == _DONE:
            self._become_idle()
        else:  # the rest of the request is read and dropped
            self.read_on()

    def _continue(self) -> None:
        """Process the next pipelined request, unless the client does not read the responses."""
        if self._behind and self._active is None and self._writable is None:
            following = self._behind.popleft()
            if not following.complete:  # it waited for its turn: its deadline starts now
                self._begin_deadline()
            self._process(following)

    def _become_idle(self) -> None:
        """Wait for the next request: the last one is complete and answered."""
        self._stage = _NOTHING
        self.since = now = self._loop.time()
        self._deadline = now + self._limits.idle_timeout
        self.read_on()

    # --- flow control

    def stop_reading(self) -> None:
        if self._reading and not self._transport.is_closing():
            self._reading = False
            self._transport.pause_reading()

    def read_on(self) -> None:
        if not self._reading and not self._closed and not self._transport.is_closing():
            self._reading = True
            self._transport.resume_reading()

    def write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    def pause_writing(self) -> None:
        """The client does not read."""
        if self._writable is None:
            self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        """The client reads again, or is gone."""
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)
        self._continue()

    async def drained(self) -> None:
        """Wait while the client does not read."""
        if self._writable is not None:
            await asyncio.shield(self._writable)

    # --- responses without the application

    def _refuse(self, problem: Problem) -> None:
        self._refusal = problem
        raise _RefusedError(problem.detail)

    def _answer(self, problem: Problem) -> None:
        """Send the problem, unless a response is already being sent, and close the connection."""
        self._closed = True
        self._drop_behind()
        active = self._active
        if active is not None and active.complete:
            self.stop_reading()
            active.keep_alive = False
            return
        if active is None or not active.started:
            self.write(_bytes_of(problem))
        if active is not None:  # the application must not use the incomplete request
            active.abandon()
        self._transport.close()


def _split(url: bytes) -> tuple[str, bytes]:
    """The decoded path and the query of a request target. An error in it stops the parser."""
    if url.startswith(_SLASH) and _FRAGMENT not in url:
        raw, _, query = url.partition(b"?")
    else:
        parsed = parse_url(url)
        raw, query = parsed.path, parsed.query or b""
    path = raw.decode("ascii")
    return (unquote(path) if "%" in path else path), query


@cache
def _status_line(status: int) -> bytes:
    return f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n".encode()


@cache
def _common(status: int, content_type: bytes) -> bytes:
    """The first lines of all replies with this status and type."""
    headers = COMMON_HEADERS if status == 204 else ((b"content-type", content_type), *COMMON_HEADERS)
    return _status_line(status) + _lines(headers)


def _lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Headers as lines. A value with a line break would become another header: it is a bug, and is refused."""
    lines = [b"%b: %b\r\n" % header for header in headers]
    text = b"".join(lines)
    if text.count(b"\n") != len(lines) or text.count(b"\r") != len(lines):
        raise ValueError("a header of a response contains a line break")
    return text


def _large_head(limits: ConnectionLimits) -> Problem:
    detail = f"the head of the request has more than {limits.max_header_bytes} bytes or {limits.max_headers} headers"
    return Problem(431, "too-large", detail)


def _full(most: int) -> Problem:
    detail = f"all {most} connections are busy: try again, or use another server"
    return Problem(503, "too-many-connections", detail, headers=((b"retry-after", b"1"),))


def _bytes_of(problem: Problem) -> bytes:
    body = problem.body()
    headers = [
        (b"content-type", CONTENT_TYPE),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
        _CLOSE,
        *problem.headers,
    ]
    return _status_line(problem.status) + _lines(headers) + b"\r\n" + body
