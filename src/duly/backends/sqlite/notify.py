"""The bell: wakes whoever waits for a change, in this session, in others of this process, and in other processes.

Each session that waits listens on a datagram socket in the place where the sessions of one store meet. Who changes
something writes one byte to every other socket there after its commit. A ring is a hint: a full socket has been rung
already, a dead one is removed, and without such a place everybody's timeout does.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable

from duly.backends.sqlite.runtime_dir import RuntimeDir
from duly.backends.sqlite.unit_of_work import ENDED, SHARED, WORK

KINDS = (WORK, ENDED, SHARED)

# Two changes of a directory may bear the same time: what was read so soon after one is read again.
_COARSEST_CLOCK_NS = 50_000_000


class Notifier:
    """One session's bell. Everything but `ring_others` belongs to the session's loop."""

    def __init__(self, meeting: RuntimeDir) -> None:
        self.rings = dict.fromkeys(KINDS, 0)
        self._waiters: dict[int, set[asyncio.Future[None]]] = {kind: set() for kind in KINDS}
        self._callbacks: dict[int, list[Callable[[], None]]] = {kind: [] for kind in KINDS}
        self._meeting = meeting
        self._deaf = False
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._socket: socket.socket | None = None
        self._name = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._others: tuple[int, list[str]] = (-1, [])
        self._sender: socket.socket | None = None
        self._ringing = threading.Lock()

    @property
    def reaches_others(self) -> bool:
        """Whether there is a place to meet the other sessions."""
        return self._meeting.make()

    # --- hearing

    def listen(self) -> bool:
        """Begin to hear other sessions; whether it began only now, so that rings may have been missed."""
        if self._socket is not None or self._deaf:
            return False
        listener = self._bound()
        if listener is None:
            self._deaf = True
            return True
        self._socket = listener
        self._loop.add_reader(listener.fileno(), self._heard)
        return True

    def _bound(self) -> socket.socket | None:
        if not self._meeting.make():
            return None
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            listener.setblocking(False)
            listener.bind(self._meeting.socket(self._name))
        except OSError:
            listener.close()
            return None
        return listener

    def _heard(self) -> None:
        kinds = 0
        assert self._socket is not None
        with contextlib.suppress(OSError):
            while True:
                kinds |= int.from_bytes(self._socket.recv(1), "big")
        self.ring(kinds)

    def ring(self, kinds: int) -> None:
        """Wake those of this session who wait for one of these kinds."""
        for kind in KINDS:
            if kinds & kind:
                self.rings[kind] += 1
                waiters, self._waiters[kind] = self._waiters[kind], set()
                for waiter in waiters:
                    if not waiter.done():
                        waiter.set_result(None)
                for callback in self._callbacks[kind]:
                    callback()

    def on_ring(self, kind: int, callback: Callable[[], None]) -> None:
        """Have something called whenever the bell rings for a kind."""
        self._callbacks[kind].append(callback)

    async def wait(self, kind: int, heard: int, timeout: float) -> int:
        """The number of rings of a kind, as soon as it differs from `heard`, at the latest after so many seconds."""
        if self.rings[kind] == heard and timeout > 0:
            waiter = self._loop.create_future()
            self._waiters[kind].add(waiter)
            try:
                async with asyncio.timeout(None if timeout == math.inf else timeout):
                    await waiter
            except TimeoutError:
                pass
            finally:
                self._waiters[kind].discard(waiter)
        return self.rings[kind]

    # --- ringing

    def ring_others(self, kinds: int) -> None:
        """On any thread: wake the other sessions on this store."""
        with self._ringing:
            self._ring_others(kinds)

    def _ring_others(self, kinds: int) -> None:
        if self._closed:
            return
        for name in self._listeners():
            if self._sender is None:
                self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                self._sender.setblocking(False)
            try:
                self._sender.sendto(bytes((kinds,)), self._meeting.socket(name))
            except (ConnectionRefusedError, FileNotFoundError):  # its process is gone
                self._meeting.leave(name)
            except OSError:  # full: it was rung before and has not looked yet
                pass

    def _listeners(self) -> list[str]:
        """The others who listen; the directory is read again only when it has changed."""
        try:
            changed = self._meeting.directory.stat().st_mtime_ns
            if changed != self._others[0]:
                names = [name for name in self._meeting.listeners() if name != self._name]
                settled = time.time_ns() - changed > _COARSEST_CLOCK_NS
                self._others = (changed if settled else -1, names)
        except OSError:  # nobody is there
            return []
        return self._others[1]

    def close(self) -> None:
        """Stop listening. Called when the session's threads have ended."""
        if self._socket is not None:
            self._loop.remove_reader(self._socket.fileno())
        self.let_go()
        self.ring(WORK | ENDED | SHARED)

    def let_go(self) -> None:
        """Close the sockets; on any thread, once the loop does not listen any more. Nothing listens again after that.

        Whoever waited is woken by the end, and may try to wait once more.
        """
        with self._ringing:
            self._deaf = self._closed = True
            for each in (self._sender, self._socket):
                if each is not None:
                    each.close()
            self._sender = self._socket = None
        self._meeting.leave(self._name)
