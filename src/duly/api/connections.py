"""Connections: one HTTP connection each, with a bound on everything that its other end decides.

Bytes of a request's head, its lines, the time it takes to arrive, requests sent ahead, the time an answer lies unread:
what exceeds its limit is answered by a problem document, where that is possible, and the connection is closed. What was
not received whole is never handed to the application. Many idle connections give way to a new one.
"""

from __future__ import annotations

import socket
from enum import Enum
from typing import Any

from msgspec import Struct

from duly.api.problems import CONTENT_TYPE, Problem
from duly.errors import ConfigurationError, MissingExtra

try:
    from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
except ImportError as exc:
    raise MissingExtra("serving the API", "server") from exc

SWEEP = 0.5  # seconds between looks at the clock

_INTERNET = (socket.AF_INET, socket.AF_INET6)
_KEPT = (b"connection", b"keep-alive")
_MOST_AHEAD = 32  # requests that a client may send before the first is answered
_FRAMING = 8  # bytes around one byte of a chunked body, at most; chunks of one byte have six
_UNREAD = 30.0  # seconds that an answer may lie unread


class ConnectionLimits(Struct, frozen=True):
    """What one client may take of a server. Times are in seconds.

    `max_header_bytes` is for the whole head of a request, `max_request_line` for its first line. The head must arrive
    within `header_timeout`, the body within `body_timeout` after it. A connection without a request is closed after
    `idle_timeout`, earlier if `max_connections` are open and another one comes.
    """

    max_connections: int = 1000
    max_header_bytes: int = 32_768
    max_request_line: int = 8192
    max_headers: int = 100
    header_timeout: float = 10.0
    body_timeout: float = 30.0
    idle_timeout: float = 75.0  # longer than the load balancers of the clouds, which close first

    def __post_init__(self) -> None:
        for name, least, most in (
            ("max_connections", 1, 1_000_000),
            ("max_header_bytes", 1024, 1 << 24),
            ("max_request_line", 256, 1 << 20),
            ("max_headers", 8, 10_000),
            ("header_timeout", 0.1, 3600),
            ("body_timeout", 0.1, 3600),
            ("idle_timeout", 0.1, 86_400),
        ):
            value = getattr(self, name)
            if not least <= value <= most:
                raise ConfigurationError(f"{name}={value!r}: expected a number from {least} to {most}")


class _Stage(Enum):
    """How much of a request has arrived."""

    NOTHING = 0
    HEAD = 1
    BODY = 2
    DONE = 3  # all of it, and the application is at work


class _RefusedError(Exception):
    """Ends the parsing of a request; why is kept in the connection."""


class Connection(HttpToolsProtocol):
    """One connection. `limits` is set by the server."""

    limits = ConnectionLimits()

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._stage = _Stage.NOTHING
        self._deadline: float | None = None
        self.since = 0.0  # when it last had nothing to do
        self._active: RequestResponseCycle | None = None
        self._refusal: Problem | None = None
        self._closed = False
        self._completed = False  # whether a request was completed by the data that is being read
        self._size = 0  # of the data that is being read
        self._unfinished = 0
        self._received = 0
        self._delivered = 0
        self._unread = 0
        self._unread_since: float | None = None

    # --- begin and end

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in _INTERNET:
            # Head and body of an answer are two writes: without this the second one waits 40 ms for the client to
            # acknowledge the first. asyncio does it for sockets that it has made itself.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.since = self.loop.time()
        self._deadline = self.since + self.limits.header_timeout
        if len(self.connections) > self.limits.max_connections and not self._make_room():
            self._answer(_full(self.limits.max_connections))

    def _make_room(self) -> bool:
        """Close the connection that has had nothing to do for the longest time; False if all are at work."""
        idle = [each for each in self.connections if each is not self and isinstance(each, Connection) and each.idle]
        if idle:
            min(idle, key=lambda each: each.since).cut()
        return bool(idle)

    @property
    def idle(self) -> bool:
        """Whether no request of this connection is being answered."""
        return self._active is None

    def cut(self) -> None:
        """Close it at once, whatever is still to be sent."""
        self._closed = True
        self.connections.discard(self)
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """All requests of this connection are over: the one that is being answered, and those sent ahead."""
        self._closed = True
        for cycle in [self._active, *(cycle for cycle, _ in self.pipeline)]:
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        self.pipeline.clear()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """The server stops: what is being answered may end, what has not arrived whole is given up."""
        self.pipeline.clear()
        if self._active is None or self._arriving:
            self._closed = True
            self.transport.close()
        else:
            self._active.keep_alive = False

    # --- time

    def sweep(self, now: float) -> None:
        """Close what has taken too long to arrive, or to be read."""
        unread = self.transport.get_write_buffer_size()
        if not unread or unread < self._unread:
            self._unread_since = None
        elif self._unread_since is None:
            self._unread_since = now
        elif now - self._unread_since > _UNREAD:
            self.cut()
            return
        self._unread = unread
        if self._deadline is not None and now > self._deadline and not self._closed and not self._behind:
            self._too_slow()

    @property
    def _behind(self) -> bool:
        """Whether what arrives belongs to a later request than the one that is being answered: it can wait."""
        return self._active is not None and not self._arriving

    @property
    def _arriving(self) -> bool:
        """Whether the request that is being answered has not arrived whole."""
        return self._stage is _Stage.BODY and self.cycle is self._active

    def _too_slow(self) -> None:
        answered = self._stage is _Stage.BODY and self.cycle.response_complete
        if self._stage is _Stage.NOTHING or answered:
            self._closed = True
            self.transport.close()
        else:
            part = "head" if self._stage is _Stage.HEAD else "body"
            seconds = self.limits.header_timeout if part == "head" else self.limits.body_timeout
            self._answer(Problem(408, "too-slow", f"the {part} of the request did not arrive within {seconds:g} s"))

    # --- what arrives

    def data_received(self, data: bytes) -> None:
        if self._closed:
            return
        begun_in, self._completed, self._size = self._stage, False, len(data)
        super().data_received(data)
        if self._stage is not _Stage.DONE and self._stage is not _Stage.NOTHING:
            self._weigh(begun_in)

    def _weigh(self, begun_in: _Stage) -> None:
        """Count what the parser keeps of a part of a request: a header that never ends, chunks without content."""
        if self._closed:
            return
        if self._stage is _Stage.HEAD and not self._completed:
            self._unfinished += self._size
            if self._unfinished > self.limits.max_header_bytes or len(self.headers) > self.limits.max_headers:
                self._answer(_large_head(self.limits))
        elif self._stage is _Stage.BODY and begun_in is _Stage.BODY:
            self._received += self._size
            if self._received > self.limits.max_header_bytes + _FRAMING * self._delivered:
                self._answer(Problem(400, "malformed", "the body has more framing than content"))

    def send_400_response(self, msg: str) -> None:
        """What the parser does not take; `msg` is uvicorn's."""
        self._answer(self._refusal or Problem(400, "malformed", "this is not an HTTP/1.1 request"))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._stage = _Stage.HEAD
        self._unfinished = self._received = self._delivered = 0
        self._deadline = self.loop.time() + self.limits.header_timeout

    def on_headers_complete(self) -> None:
        self._check_head()
        self._stage = _Stage.BODY
        self._deadline = self.loop.time() + self.limits.body_timeout
        super().on_headers_complete()
        self.headers = _Trailers(self.limits.max_headers)
        if self._active is None:
            self._active = self.cycle
        elif self.cycle is not self._active:
            # uvicorn reads no more until the answer under way has ended. Of a stream that would be when the client has
            # gone, which nobody would notice without reading.
            self.flow.resume_reading()
        if self.scope["http_version"] == "1.0" and self.parser.should_keep_alive():
            # Old clients that ask for it keep their connection, too: ApacheBench is one, and a connection per call
            # costs a server twice as much as the call.
            self.cycle.keep_alive = True
            self.cycle.default_headers = [*self.cycle.default_headers, _KEPT]

    def _check_head(self) -> None:
        """Refuse a head that is too large. What arrived in one small piece need not be added up."""
        limits = self.limits
        if len(self.pipeline) >= _MOST_AHEAD:
            self._refuse(Problem(400, "malformed", f"more than {_MOST_AHEAD} requests were sent ahead"))
        if len(self.url) > limits.max_request_line:
            detail = f"the request line is longer than {limits.max_request_line} bytes"
            self._refuse(Problem(414, "too-large", detail))
        large = self._unfinished + self._size > limits.max_header_bytes and (
            len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > limits.max_header_bytes
        )
        if large or len(self.headers) > limits.max_headers:
            self._refuse(_large_head(limits))

    def on_body(self, body: bytes) -> None:
        self._delivered += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._stage = _Stage.DONE
        self._completed = True
        self._deadline = None
        super().on_message_complete()
        self._rest()

    def on_response_complete(self) -> None:
        self._active = self.pipeline[-1][0] if self.pipeline else None
        if self._active is self.cycle and self._stage is _Stage.BODY:  # it had to wait: its time begins now
            self._deadline = self.loop.time() + self.limits.body_timeout
        super().on_response_complete()
        self._rest()

    def _rest(self) -> None:
        """Wait for the next request, if the last one has arrived and is answered."""
        if self._active is None and self._stage is _Stage.DONE:
            self._stage = _Stage.NOTHING
            self.since = self.loop.time()

    # --- answers without the application

    def _refuse(self, problem: Problem) -> None:
        self._refusal = problem
        raise _RefusedError(problem.detail)

    def _answer(self, problem: Problem) -> None:
        """Say what is wrong, as far as that does not disturb an answer that is under way, and close."""
        self._closed = True
        self.pipeline.clear()
        active = self._active
        if active is not None and not self._arriving:
            self.flow.pause_reading()
            active.keep_alive = False
            return
        if active is None or not active.response_started:
            self.transport.write(_bytes_of(problem))
        if active is not None:  # the application must not take what has arrived for all there is
            active.disconnected = True
            active.message_event.set()
        self.transport.close()


class _Trailers(list[tuple[bytes, bytes]]):
    """What stands behind a body in the form of headers: nobody has checked it, so nobody gets it."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._left = most

    def append(self, _: tuple[bytes, bytes], /) -> None:
        self._left -= 1
        if self._left < 0:
            raise _RefusedError("too many trailers")


def _large_head(limits: ConnectionLimits) -> Problem:
    detail = f"the head of the request has more than {limits.max_header_bytes} bytes or {limits.max_headers} headers"
    return Problem(431, "too-large", detail)


def _full(most: int) -> Problem:
    detail = f"{most} connections are open already, and all are at work: try again, or elsewhere"
    return Problem(503, "too-many-connections", detail, headers=((b"retry-after", b"1"),))


def _bytes_of(problem: Problem) -> bytes:
    body = problem.body()
    headers = [
        (b"content-type", CONTENT_TYPE),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
        (b"connection", b"close"),
        *problem.headers,
    ]
    return STATUS_LINE[problem.status] + b"".join(b"%b: %b\r\n" % header for header in headers) + b"\r\n" + body
