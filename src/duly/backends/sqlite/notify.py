"""Notifications: wake tasks that wait for a change, in this session, in others of this process, and in other processes.

Each session that waits listens on a datagram socket in the runtime directory of the store. A session that changes
something writes one byte to every other socket there after its commit. A notification is a hint: a full socket has been
written to already, a dead one is removed, and without such a directory waiting tasks rely on their timeouts.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import threading
import time

from duly.backends.sql import notify
from duly.backends.sql.notify import ENDED, SHARED, WORK
from duly.backends.sqlite.files import RuntimeDir

# Two changes of a directory may have the same timestamp: what was read just after a change is read again.
_COARSEST_CLOCK_NS = 50_000_000


class Notifier(notify.Notifier):
    """One session's notifier. Everything but `ring_others` belongs to the session's loop."""

    def __init__(self, runtime_dir: RuntimeDir) -> None:
        super().__init__()
        self._runtime_dir = runtime_dir
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
        """Whether other sessions can be reached."""
        return self._runtime_dir.make()

    # --- listening

    async def listen(self) -> bool:
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
        if not self._runtime_dir.make():
            return None
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            listener.setblocking(False)
            listener.bind(self._runtime_dir.socket(self._name))
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

    async def wait(self, kind: int, heard: int, timeout: float) -> int:
        if self.rings[kind] == heard:
            await self._sleep(kind, timeout)
        return self.rings[kind]

    # --- waking others

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
                self._sender.sendto(bytes((kinds,)), self._runtime_dir.socket(name))
            except (ConnectionRefusedError, FileNotFoundError):  # its process is gone
                self._runtime_dir.leave(name)
            except OSError:  # full: it was notified before and has not read yet
                pass

    def _listeners(self) -> list[str]:
        """The others who listen; the directory is read again only when it has changed."""
        try:
            changed = self._runtime_dir.directory.stat().st_mtime_ns
            if changed != self._others[0]:
                names = [name for name in self._runtime_dir.listeners() if name != self._name]
                settled = time.time_ns() - changed > _COARSEST_CLOCK_NS
                self._others = (changed if settled else -1, names)
        except OSError:  # no session listens
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

        A caller that waited is woken by this, and may try to wait once more.
        """
        with self._ringing:
            self._deaf = self._closed = True
            for each in (self._sender, self._socket):
                if each is not None:
                    each.close()
            self._sender = self._socket = None
        self._runtime_dir.leave(self._name)
