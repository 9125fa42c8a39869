"""Channels: frames over a Unix socket, on the worker's event loop.

A frame is its length in four bytes, big-endian, and a body. Sending never waits: data that the socket does not accept
at once is buffered and sent later. Open file descriptors travel with the first byte of their frame.
"""

from __future__ import annotations

import array
import asyncio
import os
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

HEADER = struct.Struct("!I")
_CHUNK = 262144


class Channel:
    """One end of a socket pair. Belongs to the loop it was made on.

    `receive` gets each frame's body; `lost` is called once when the other end is gone or sends invalid data, never by
    `send` itself and not after `close`.
    """

    def __init__(
        self, sock: socket.socket, receive: Callable[[bytes], None], lost: Callable[[], None], max_frame: int
    ) -> None:
        sock.setblocking(False)
        self._sock: socket.socket | None = sock
        self._receive = receive
        self._lost = lost
        self._max_frame = max_frame
        self._inbox = bytearray()
        self._outbox: deque[tuple[memoryview, list[int]]] = deque()
        self._writing = False
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sock.fileno(), self._readable)

    def send(self, body: bytes, fds: Sequence[int] = ()) -> None:
        """Send a frame. The descriptors are this channel's from now on: closed once they are sent, or never will be."""
        self._outbox.append((memoryview(HEADER.pack(len(body)) + body), list(fds)))
        if self._sock is None:
            self._discard()
        elif len(self._outbox) == 1:
            self._flush()

    def drain(self) -> None:
        """Receive everything that has arrived by now."""
        while self._sock is not None and self._readable():
            pass

    def finish(self) -> None:
        """Signal the end of the data to the other end, and keep receiving."""
        if self._sock is not None:
            with suppress(OSError):
                self._sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        if self._sock is None:
            return
        self._loop.remove_reader(self._sock.fileno())
        self._watch_room(wanted=False)
        self._sock.close()
        self._sock = None
        self._discard()

    def _readable(self) -> bool:
        """Read once; return whether there may be more."""
        if self._sock is None:
            return False
        try:
            data = self._sock.recv(_CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        self._inbox += data
        if not data or not self._deliver():
            self._fail()
        return bool(data)

    def _deliver(self) -> bool:
        """Deliver the complete frames; False if one exceeds the maximum length."""
        while len(self._inbox) >= HEADER.size:
            (length,) = HEADER.unpack_from(self._inbox)
            if length > self._max_frame:
                return False
            if len(self._inbox) < HEADER.size + length:
                break
            body = bytes(self._inbox[HEADER.size : HEADER.size + length])
            del self._inbox[: HEADER.size + length]
            self._receive(body)
        return True

    def _fail(self) -> None:
        if self._sock is not None:
            self.close()
            self._lost()

    def _flush(self) -> None:
        while self._outbox and self._sock is not None:
            view, fds = self._outbox[0]
            try:
                sent = self._sock.sendmsg([view], _rights(fds))
            except BlockingIOError:
                break
            except OSError:
                self._loop.call_soon(self._fail)
                return
            _close_all(fds)
            if sent == len(view):
                self._outbox.popleft()
            else:
                self._outbox[0] = (view[sent:], [])
        self._watch_room(wanted=bool(self._outbox))

    def _watch_room(self, *, wanted: bool) -> None:
        if wanted == self._writing or self._sock is None:
            return
        self._writing = wanted
        if wanted:
            self._loop.add_writer(self._sock.fileno(), self._flush)
        else:
            self._loop.remove_writer(self._sock.fileno())

    def _discard(self) -> None:
        for _, fds in self._outbox:
            _close_all(fds)
        self._outbox.clear()


def _rights(fds: list[int]) -> list[tuple[int, int, array.array[int]]]:
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []


def _close_all(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)
    fds.clear()
