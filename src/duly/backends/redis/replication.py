"""Confirmation by replicas: a change counts as stored only when enough replicas have it.

A server acknowledges a change before its replicas have it. If one of them takes over at that moment, the change is
lost. With `replicas=N` in the URL, a script that changes something is followed by WAIT on the same connection, and its
reply is returned only when N or more replicas have everything that the reply depends on. WAIT counts only the changes
of its connection, but a script may reply from what another connection has just written. So a small write comes before
it, which is behind all of that in the order of replication.
"""

from __future__ import annotations

import asyncio
from typing import Any

from hiredis import ReplyError

from duly.backends.redis.connection import Connection, pack, reply_error
from duly.backends.redis.settings import ConnectionSettings
from duly.backends.url_parts import Address
from duly.errors import BackendUnavailable

_ROLE = pack((b"ROLE",))
# The scripts whose effect Duly promises. The others only read, or what they write is restored by a repeat: heartbeats,
# renewals, wake-ups, promotions, assignments, deletions, counters.
CONFIRMED = frozenset(
    {
        "append_log",
        "backfill",
        "begin",
        "cancel",
        "cancel_some",
        "claim",
        "claim_held",
        "close",
        "end_load",
        "fire",
        "freeze",
        "install_epoch",
        "lease_acquire",
        "load_job",
        "load_runs",
        "put",
        "put_one",
        "reap",
        "redrive",
        "remove",
        "reopen",
        "resume",
        "save",
        "settle",
        "shared_put",
        "take_over",
        "value_put",
    }
)
_SHARE_OF_TIMEOUT = 0.5  # WAIT must answer before the connection counts as dead
_LOOK_PERIOD = 1.0  # seconds between two looks at the replicas of a server
_REMEMBERED = 8.0  # seconds that a replica which is gone is still waited for


class Replicas:
    """How many replicas a server has, or had lately."""

    def __init__(self) -> None:
        self.look_at = 0.0
        self._count = 0
        self._most = 0
        self._until = 0.0

    def saw(self, count: int, now: float) -> None:
        self._count = count
        if count >= self._most or now > self._until:
            self._most, self._until = count, now + _REMEMBERED

    def lately(self, now: float) -> int:
        return self._most if now <= self._until else self._count


class Confirmation:
    """Sends commands, and waits until at least `replicas` replicas have their effect.

    It waits for all replicas that the server has, or had lately. If it waited for fewer, one that has a change could
    confirm it while another one, that does not have it, is made the master.
    """

    def __init__(self, settings: ConnectionSettings, prefix: bytes) -> None:
        self.scripts = CONFIRMED if settings.replicas else frozenset()
        self._least = settings.replicas
        self._seconds = settings.timeout * _SHARE_OF_TIMEOUT
        self._write = pack((b"SET", prefix + b"replicated", b""))
        self._servers: dict[Address, Replicas] = {}

    async def request(self, connection: Connection, command: bytes) -> Any:
        """Send a packed command and return its reply, which may be an error reply, when it is confirmed."""
        await connection.writable()
        now = asyncio.get_running_loop().time()
        replicas = self._servers.setdefault(connection.address, Replicas())
        if now >= replicas.look_at:
            replicas.look_at = now + _LOOK_PERIOD
            replicas.saw(_replicas_in(await connection.send(_ROLE)), now)
        needed = max(self._least, replicas.lately(now))
        wait = pack((b"WAIT", needed, max(1, round(self._seconds * 1000))))
        reply, written, count = await asyncio.gather(
            connection.send(command), connection.send(self._write), connection.send(wait)
        )
        if isinstance(reply, ReplyError):
            return reply
        for each in (written, count):
            if isinstance(each, ReplyError):
                error = reply_error(str(each), connection.server)
                raise Unconfirmed(str(error)) if isinstance(error, BackendUnavailable) else error
        if count < needed:
            replicas.look_at = 0.0
            raise Unconfirmed(
                f"{connection.server}: {count} of {needed} replicas have confirmed a change within {self._seconds:g} s;"
                f" it does not count as stored (replicas={self._least})"
            )
        return reply


class Unconfirmed(BackendUnavailable):
    """Too few replicas have a change. The server may no longer be the master."""


def _replicas_in(role: Any) -> int:
    """The number of replicas in a reply to ROLE; 0 if the server does not say."""
    return len(role[2]) if isinstance(role, list) and role[0] == b"master" else 0
