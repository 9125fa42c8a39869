"""Confirmation by replicas: a change counts as stored only when enough replicas have it.

A server acknowledges a change before its replicas have it. If one of them takes over at that moment, the change is
lost. With `replicas=N` in the URL, a script that changes something is followed by WAIT on the same connection, and its
reply is returned only when N replicas have everything that the reply depends on. WAIT counts only the changes of its
own connection, and a script may reply from what another connection has just written. So a small write comes before it,
which is behind all of that in the order of replication.
"""

from __future__ import annotations

import asyncio
from typing import Any

from hiredis import ReplyError

from duly.backends.redis.connection import Connection, pack
from duly.backends.redis.settings import ConnectionSettings
from duly.errors import BackendUnavailable

# The scripts whose effect Duly promises. The others only read, or what they write is restored by a repeat: heartbeats,
# renewals, wake-ups, promotions, assignments, deletions, counters.
CONFIRMED = frozenset(
    {
        "append_log",
        "cancel",
        "cancel_some",
        "claim",
        "claim_held",
        "fire",
        "install_epoch",
        "lease_acquire",
        "put",
        "reap",
        "redrive",
        "remove",
        "resume",
        "save",
        "settle",
        "shared_put",
        "value_put",
    }
)
_SHARE_OF_TIMEOUT = 0.5  # WAIT must answer before the connection counts as dead


class Confirmation:
    """Sends commands, and waits until `replicas` replicas have their effect."""

    def __init__(self, settings: ConnectionSettings, prefix: bytes) -> None:
        self.scripts = CONFIRMED if settings.replicas else frozenset()
        self._replicas = settings.replicas
        self._seconds = settings.timeout * _SHARE_OF_TIMEOUT
        self._write = pack((b"SET", prefix + b"replicated", b""))
        self._wait = pack((b"WAIT", settings.replicas, max(1, round(self._seconds * 1000))))

    async def request(self, connection: Connection, command: bytes) -> Any:
        """Send a packed command and return its reply, which may be an error reply, when it is confirmed."""
        await connection.writable()
        reply, written, count = await asyncio.gather(
            connection.send(command), connection.send(self._write), connection.send(self._wait)
        )
        if isinstance(reply, ReplyError):
            return reply
        for each in (written, count):
            if isinstance(each, ReplyError):
                raise BackendUnavailable(f"{connection.server} did not confirm a change: {each}")
        if count < self._replicas:
            raise BackendUnavailable(
                f"{connection.server}: {count} of {self._replicas} replicas have confirmed a change within"
                f" {self._seconds:g} s; it counts as not stored until replicas={self._replicas} confirm it"
            )
        return reply
