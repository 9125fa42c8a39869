"""One HTTP connection, with a limit on everything that the client decides.

The bytes of a request's head, its lines, the time it takes to arrive, pipelined requests, the time a response stays
unread: if a limit is exceeded, the client gets a problem document if possible, and the connection is closed. The
application never gets an incomplete request. At `max_connections`, the longest idle connection is closed for a new one.
"""

from __future__ import annotations

import socket
from enum import Enum
from typing import Any

from duly.api.config import ConnectionLimits
from duly.api.problems import CONTENT_TYPE, Problem
from duly.errors import MissingExtra

try:
    from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
except ImportError as exc:
    raise MissingExtra("serving the API", "server") from exc

SWEEP = 0.5  # seconds between checks of timeouts

_INTERNET = (socket.AF_INET, socket.AF_INET6)
_KEEP_ALIVE = (b"connection", b"keep-alive")
_MAX_PIPELINED = 32  # requests that a client may send before the first response
_FRAMING = 8  # maximum bytes of framing per byte of a chunked body; chunks of one byte have six
_UNREAD = 30.0  # seconds that a response may stay unread


class _Stage(Enum):
    """How much of a request has arrived."""

    NOTHING = 0
    HEAD = 1
    BODY = 2
    DONE = 3  # all of it: the application is processing it


class _RefusedError(Exception):
    """Stops the parser; the connection has the reason."""


class Connection(HttpToolsProtocol):
    """One connection. `limits` is set by the server."""

    limits = ConnectionLimits()

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._stage = _Stage.NOTHING
        self._deadline: float | None = None
        self.since = 0.0  # the time at which it became idle
        self._active: RequestResponseCycle | None = None
        self._refusal: Problem | None = None
        self._closed = False
        self._completed = False  # whether the data being read completed a request
        self._size = 0  # of the data being read
        self._unfinished = 0
        self._received = 0
        self._delivered = 0
        self._unread = 0
        self._unread_since: float | None = None

    # --- start and end

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in _INTERNET:
            # The head and the body of a response are two writes: without this option the second one waits 40 ms until
            # the client acknowledges the first. asyncio sets the option only for sockets that it has created itself.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.since = self.loop.time()
        self._deadline = self.since + self.limits.header_timeout
        if len(self.connections) > self.limits.max_connections and not self._make_room():
            self._answer(_full(self.limits.max_connections))

    def _make_room(self) -> bool:
        """Close the connection that has been idle for the longest time; False if all are busy."""
        idle = [each for each in self.connections if each is not self and isinstance(each, Connection) and each.idle]
        if idle:
            min(idle, key=lambda each: each.since).cut()
        return bool(idle)

    @property
    def idle(self) -> bool:
        """Whether no request of this connection is being processed."""
        return self._active is None

    def cut(self) -> None:
        """Close the connection at once and discard unsent data."""
        self._closed = True
        self.connections.discard(self)
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """End all requests of this connection: the one being processed and the pipelined ones."""
        self._closed = True
        for cycle in [self._active, *(cycle for cycle, _ in self.pipeline)]:
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        self.pipeline.clear()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """The server stops: a request being processed may end, an incomplete one is dropped."""
        self.pipeline.clear()
        if self._active is None or self._arriving:
            self._closed = True
            self.transport.close()
        else:
            self._active.keep_alive = False

    # --- time

    def sweep(self, now: float) -> None:
        """Close the connection if a request takes too long to arrive, or a response to be read."""
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
        """Whether a later request is arriving while an earlier one is being processed: it has no deadline yet."""
        return self._active is not None and not self._arriving

    @property
    def _arriving(self) -> bool:
        """Whether the request being processed is still arriving."""
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

    # --- requests

    def data_received(self, data: bytes) -> None:
        if self._closed:
            return
        begun_in, self._completed, self._size = self._stage, False, len(data)
        super().data_received(data)
        if self._stage is not _Stage.DONE and self._stage is not _Stage.NOTHING:
            self._count_unfinished(begun_in)

    def _count_unfinished(self, begun_in: _Stage) -> None:
        """Count the bytes that the parser has buffered: an endless header, chunks without content."""
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
        """Answer a request that the parser refused. `msg` is uvicorn's."""
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
            # uvicorn stops reading until the current response has ended. A stream ends when the client disconnects,
            # which is noticed only by reading.
            self.flow.resume_reading()
        if self.scope["http_version"] == "1.0" and self.parser.should_keep_alive():
            # Keep connections of HTTP/1.0 clients that ask for it, such as ApacheBench: a connection per call costs the
            # server twice as much as the call itself.
            self.cycle.keep_alive = True
            self.cycle.default_headers = [*self.cycle.default_headers, _KEEP_ALIVE]

    def _check_head(self) -> None:
        """Refuse a head that is too large. The sum is computed only if the received data could exceed the limit."""
        limits = self.limits
        if len(self.pipeline) >= _MAX_PIPELINED:
            self._refuse(Problem(400, "malformed", f"more than {_MAX_PIPELINED} pipelined requests"))
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
        self._become_idle()

    def on_response_complete(self) -> None:
        self._active = self.pipeline[-1][0] if self.pipeline else None
        if self._active is self.cycle and self._stage is _Stage.BODY:  # it waited for its turn: its deadline starts now
            self._deadline = self.loop.time() + self.limits.body_timeout
        super().on_response_complete()
        self._become_idle()

    def _become_idle(self) -> None:
        """Wait for the next request, if the last one is complete and answered."""
        if self._active is None and self._stage is _Stage.DONE:
            self._stage = _Stage.NOTHING
            self.since = self.loop.time()

    # --- responses without the application

    def _refuse(self, problem: Problem) -> None:
        self._refusal = problem
        raise _RefusedError(problem.detail)

    def _answer(self, problem: Problem) -> None:
        """Send the problem, unless a response is already being sent, and close the connection."""
        self._closed = True
        self.pipeline.clear()
        active = self._active
        if active is not None and not self._arriving:
            self.flow.pause_reading()
            active.keep_alive = False
            return
        if active is None or not active.response_started:
            self.transport.write(_bytes_of(problem))
        if active is not None:  # the application must not use the incomplete request
            active.disconnected = True
            active.message_event.set()
        self.transport.close()


class _Trailers(list[tuple[bytes, bytes]]):
    """The trailers of a request: they are not checked, so they are dropped."""

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
    detail = f"all {most} connections are busy: try again, or use another server"
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
