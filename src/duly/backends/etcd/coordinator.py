"""The coordinator port on etcd: every write compares what was read, and looks again after a lost comparison.

Presence hangs on leases of etcd's own, so a node that says nothing is gone by etcd's clock. `expires_at` of an answer
is told by this process's clock, for people and for timers; it decides nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import datetime

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from duly.backends.etcd.errors import LeaseGone
from duly.backends.etcd.gateway import Gateway
from duly.backends.etcd.lease_records import Record, Standing, standing_of, whole_seconds
from duly.backends.etcd.messages import (
    Done,
    Found,
    Granted,
    Kept,
    Pair,
    Words,
    Written,
    at_version,
    get,
    put,
    transaction,
    unchanged,
)
from duly.backends.tolerance import readable
from duly.errors import BackendUnavailable
from duly.model import Item, Lease, Node, from_micros, shift, to_micros
from duly.ports import Clock

_MOST_RACES = 50
_LONGEST_SILENCE = 3.0  # seconds a watch is believed in without a word
_SHORTEST_PAUSE = 0.01

_encode = msgspec.json.encode


class Presence(Struct, frozen=True):
    """A node as it is kept. `expires` decides only where a caller brings its own time."""

    node: Node
    ttl: int
    expires: int


_presence = msgspec.json.Decoder(Presence)


class EtcdCoordinator:
    """Who is alive, and who holds which right."""

    def __init__(self, gateway: Gateway, prefix: str, clock: Clock) -> None:
        self._gateway = gateway
        self._prefix = prefix
        self._clock = clock

    # --- leases

    async def acquire(self, name: str, holder: str, ttl: float, *, now: datetime | None = None) -> Lease | None:
        at = _micros(now)
        for _ in range(_MOST_RACES):
            standing = await self._standing(name)
            mine = standing.record.holder == holder
            if standing.held(at):
                lease = await self._extended(name, standing, ttl, now) if mine else None
                if lease is not None or not mine:
                    return lease
            else:
                fence = standing.record.fence + 1
                if (lease := await self._taken(name, holder, fence, standing, ttl, now)) is not None:
                    return lease
        raise BackendUnavailable(f"the lease {name!r} changes hands too fast to be taken")

    async def renew(self, leases: Sequence[Lease], ttl: float, *, now: datetime | None = None) -> list[Lease | None]:
        return [await self._renewed(lease, ttl, now) for lease in leases]

    async def _renewed(self, lease: Lease, ttl: float, now: datetime | None) -> Lease | None:
        for _ in range(_MOST_RACES):
            standing = await self._standing(lease.name)
            if not standing.belongs_to(lease.holder, lease.fence):
                return None
            if (renewed := await self._extended(lease.name, standing, ttl, now)) is not None:
                return renewed
        raise BackendUnavailable(f"the lease {lease.name!r} changes too fast to be renewed")

    async def _extended(self, name: str, standing: Standing, ttl: float, now: datetime | None) -> Lease | None:
        """More time for the holder that was found; None when it changed meanwhile."""
        record = standing.record
        sent = self._clock.now()
        lasting = now is None and standing.marked and record.ttl == whole_seconds(ttl, None)
        if lasting and await self._kept_alive(record.lease):
            return Lease(name, record.holder, record.fence, shift(sent, ttl))
        return await self._taken(name, record.holder, record.fence, standing, ttl, now)

    async def _taken(
        self, name: str, holder: str, fence: int, standing: Standing, ttl: float, now: datetime | None
    ) -> Lease | None:
        """Write record and mark under a new lease of etcd's, if the record is as it was; None when it is not."""
        expires_at = shift(now or self._clock.now(), ttl)
        seconds = whole_seconds(ttl, _micros(now))
        granted = await self._granted(seconds)
        record = Record(holder, fence, granted, seconds, to_micros(expires_at))
        key, mark = self._record(name), self._mark(name)
        steps = [{"request_put": put(key, _encode(record))}, {"request_put": put(mark, b"", granted)}]
        if await self._written(unchanged(key, standing.revision), steps, key, granted):
            await self._revoked(standing.record.lease)
            return Lease(name, holder, fence, expires_at)
        await self._revoked(granted)
        return None

    async def _written(self, unless: Words, steps: list[Words], key: bytes, granted: int) -> bool:
        """Whether it is written. A comparison is also lost to ourselves, when the first answer was."""
        words = transaction([unless], steps, [{"request_range": get(key)}])
        try:
            done = await self._gateway.call("kv/txn", words, Done)
        except LeaseGone:  # it took us longer than the lease lasts
            return False
        found = None if done.succeeded else done.found(0)
        return done.succeeded or (found is not None and standing_of(found, None).record.lease == granted)

    async def release(self, leases: Sequence[Lease]) -> None:
        for lease in leases:
            await self._released(lease)

    async def _released(self, lease: Lease) -> None:
        for _ in range(_MOST_RACES):
            standing = await self._standing(lease.name)
            if not standing.belongs_to(lease.holder, lease.fence):
                return
            key = self._record(lease.name)
            steps = [
                {"request_put": put(key, _encode(Record(fence=lease.fence)))},
                {"request_delete_range": get(self._mark(lease.name))},
            ]
            words = transaction([unchanged(key, standing.revision)], steps)
            if (await self._gateway.call("kv/txn", words, Done)).succeeded:
                await self._revoked(standing.record.lease)
                return
        raise BackendUnavailable(f"the lease {lease.name!r} changes too fast to be released")

    async def holder(self, name: str, *, now: datetime | None = None) -> Lease | None:
        standing = await self._standing(name)
        if not standing.held(_micros(now)):
            return None
        record = standing.record
        if now is not None:
            return Lease(name, record.holder, record.fence, from_micros(record.expires))
        asked = self._clock.now()
        left = await self._gateway.call("lease/timetolive", {"ID": record.lease}, Granted)
        return None if left.ttl < 0 else Lease(name, record.holder, record.fence, shift(asked, left.ttl))

    async def _standing(self, name: str) -> Standing:
        """Record and mark, as they are at one moment."""
        steps = [{"request_range": get(self._record(name))}, {"request_range": get(self._mark(name))}]
        done = await self._gateway.call("kv/txn", transaction([], steps), Done)
        return standing_of(done.found(0), done.found(1))

    # --- etcd's own leases

    async def _granted(self, seconds: int) -> int:
        return (await self._gateway.call("lease/grant", {"TTL": seconds}, Granted)).id

    async def _kept_alive(self, lease: int) -> bool:
        return (await self._gateway.call("lease/keepalive", {"ID": lease}, Kept)).result.ttl > 0

    async def _revoked(self, lease: int) -> None:
        """One that nothing hangs on any more; it would run out by itself."""
        if lease:
            with suppress(LeaseGone):
                await self._gateway.call("lease/revoke", {"ID": lease}, Granted)

    # --- presence

    async def announce(self, node: Node, ttl: float, *, now: datetime | None = None) -> None:
        key = self._node(node.id)
        before = await self._found(key)
        await self._present(key, node, ttl, now, unless=[])
        if before is not None:
            await self._revoked(before.lease)

    async def beat(
        self,
        node_id: str,
        ttl: float,
        metrics: dict[str, float] | None = None,
        *,
        started_at: datetime | None = None,
        now: datetime | None = None,
    ) -> bool:
        key, at = self._node(node_id), _micros(now)
        found = await self._found(key)
        if found is None:
            return False
        known = readable(lambda pair: _presence.decode(pair.value), [found])
        if not known or (at is not None and known[0].expires <= at):
            return False
        [presence] = known
        if started_at not in {None, presence.node.started_at}:
            return False
        node = presence.node if metrics is None else replace(presence.node, metrics=metrics)
        if at is None and presence.ttl == whole_seconds(ttl, None):
            return await self._kept_alive(found.lease) and await self._told(key, found, presence, node)
        if not await self._present(key, node, ttl, now, unless=[unchanged(key, found.mod_revision)]):
            return False
        await self._revoked(found.lease)
        return True

    async def _told(self, key: bytes, found: Pair, presence: Presence, node: Node) -> bool:
        """Replace what is known of a node, if there is news, under the lease that its key has."""
        if node == presence.node:
            return True
        value = _encode(replace(presence, node=node))
        words = transaction(
            [unchanged(key, found.mod_revision)],
            [{"request_put": put(key, value, found.lease)}],
            [{"request_range": get(key)}],
        )
        try:
            done = await self._gateway.call("kv/txn", words, Done)
        except LeaseGone:
            return False
        return done.succeeded or done.found(0) is not None

    async def _present(self, key: bytes, node: Node, ttl: float, now: datetime | None, *, unless: list[Words]) -> bool:
        """Write a node's key under a new lease, if what is compared holds."""
        at = now or self._clock.now()
        seconds = whole_seconds(ttl, _micros(now))
        granted = await self._granted(seconds)
        presence = Presence(node, seconds, to_micros(shift(at, ttl)))
        words = transaction(
            unless,
            [{"request_put": put(key, _encode(presence), granted)}],
            [{"request_range": get(key)}],
        )
        done = await self._gateway.call("kv/txn", words, Done)
        if done.succeeded:
            return True
        found = done.found(0)
        return found is not None and found.lease == granted

    async def retire(self, node_id: str) -> None:
        key = self._node(node_id)
        found = await self._found(key)
        if found is not None:
            await self._gateway.call("kv/deleterange", get(key), Written)
            await self._revoked(found.lease)

    async def nodes(self, *, now: datetime | None = None) -> list[Node]:
        at = _micros(now)
        found = await self._gateway.call("kv/range", get(self._node(""), all_below=True), Found)
        known = readable(lambda pair: _presence.decode(pair.value), found.kvs)
        alive = [presence.node for presence in known if at is None or presence.expires > at]
        return sorted(alive, key=lambda node: (node.started_at, node.id))

    # --- shared values

    async def get(self, key: str) -> Item | None:
        found = await self._found(self._shared(key))
        return None if found is None else Item(key, found.value, found.version)

    async def put(self, key: str, value: bytes, expect: int | None = None) -> Item | None:
        where = self._shared(key)
        if expect is None:
            words = put(where, value) | {"prev_kv": True}
            before = (await self._gateway.call("kv/put", words, Written)).prev_kv
            return Item(key, value, 1 if before is None else before.version + 1)
        words = transaction(
            [at_version(where, expect)], [{"request_put": put(where, value)}], [{"request_range": get(where)}]
        )
        done = await self._gateway.call("kv/txn", words, Done)
        found = None if done.succeeded else done.found(0)
        ours = found is not None and (found.version, found.value) == (expect + 1, value)  # the first answer was lost
        return Item(key, value, expect + 1) if done.succeeded or ours else None

    async def watch(self, key: str) -> AsyncIterator[Item]:
        """Waits out an outage. Holds nothing open between two values: one that nobody goes on with costs nothing."""
        where, seen, revision = self._shared(key), 0, 0
        while True:
            pairs, revision = await self._looked(where, revision)
            for pair in pairs:
                if pair.mod_revision > seen:
                    seen = pair.mod_revision
                    yield Item(key, pair.value, pair.version)

    async def _looked(self, key: bytes, revision: int) -> tuple[list[Pair], int]:
        """What was written after that revision (0: what is there), and the revision up to which that is all."""
        try:
            news = await self._gateway.news(key, revision, _LONGEST_SILENCE) if revision else None
            if news is not None:
                return [change.kv for change in news.events if change.type == "PUT"], news.header.revision
            found = await self._gateway.call("kv/range", get(key), Found)
        except BackendUnavailable:
            if not revision:
                raise
            await asyncio.sleep(max(self._gateway.pause, _SHORTEST_PAUSE))
            return [], revision
        return list(found.kvs), found.header.revision

    async def _found(self, key: bytes) -> Pair | None:
        return (await self._gateway.call("kv/range", get(key), Found)).first

    # --- keys

    def _record(self, name: str) -> bytes:
        return f"{self._prefix}leases/{name}".encode()

    def _mark(self, name: str) -> bytes:
        return f"{self._prefix}marks/{name}".encode()

    def _node(self, node_id: str) -> bytes:
        return f"{self._prefix}nodes/{node_id}".encode()

    def _shared(self, key: str) -> bytes:
        return f"{self._prefix}shared/{key}".encode()


def _micros(now: datetime | None) -> int | None:
    return None if now is None else to_micros(now)
