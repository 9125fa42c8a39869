"""The coordinator port on etcd: every write compares with what was read, and reads again after a lost comparison.

Presence depends on etcd leases, so a silent node vanishes by etcd's clock. `expires_at` of an answer is by this
process's clock, for people and for timers; nothing is decided by it.
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
from duly.backends.etcd.lease_records import LeaseState, Record, lease_state_of, whole_seconds
from duly.backends.etcd.messages import (
    KeepAliveReply,
    KeyValue,
    LeaseReply,
    PutReply,
    RangeReply,
    Request,
    TransactionReply,
    at_version,
    get,
    put,
    put_if,
    unchanged,
)
from duly.backends.tolerance import readable
from duly.errors import BackendUnavailable
from duly.model import Item, Lease, Node, from_micros, shift, to_micros
from duly.ports import Clock

_MAX_RACES = 50
_LONGEST_SILENCE = 3.0  # seconds until a watch without changes is checked by a read
_SHORTEST_PAUSE = 0.01

_encode = msgspec.json.encode


class Presence(Struct, frozen=True):
    """A node as it is stored. `expires` is used only where a test passes the time."""

    node: Node
    ttl: int
    expires: int


_presence = msgspec.json.Decoder(Presence)


class EtcdCoordinator:
    """Who is alive, and who holds which lease."""

    def __init__(self, gateway: Gateway, prefix: str, clock: Clock) -> None:
        self._gateway = gateway
        self._prefix = prefix
        self._clock = clock

    # --- leases

    async def acquire(self, name: str, holder: str, ttl: float, *, now: datetime | None = None) -> Lease | None:
        for _ in range(_MAX_RACES):
            state = await self._lease_state(name)
            if state.held(_micros(now)):
                if state.record.holder != holder:
                    return None
                lease = await self._extend(name, state, ttl, now)
            else:
                lease = await self._write_lease(name, holder, state.record.fence + 1, state, ttl, now)
            if lease is not None:
                return lease
        raise BackendUnavailable(f"the lease {name!r} changes too fast to be acquired")

    async def renew(self, leases: Sequence[Lease], ttl: float, *, now: datetime | None = None) -> list[Lease | None]:
        return [await self._renew(lease, ttl, now) for lease in leases]

    async def _renew(self, lease: Lease, ttl: float, now: datetime | None) -> Lease | None:
        for _ in range(_MAX_RACES):
            state = await self._lease_state(lease.name)
            if not state.belongs_to(lease.holder, lease.fence):
                return None
            if (renewed := await self._extend(lease.name, state, ttl, now)) is not None:
                return renewed
        raise BackendUnavailable(f"the lease {lease.name!r} changes too fast to be renewed")

    async def _extend(self, name: str, state: LeaseState, ttl: float, now: datetime | None) -> Lease | None:
        """Extend the lease of the present holder; None if the record changed meanwhile."""
        record = state.record
        sent = self._clock.now()
        same_ttl = now is None and state.marked and record.ttl == whole_seconds(ttl, None)
        if same_ttl and await self._keep_alive(record.lease):
            return Lease(name, record.holder, record.fence, shift(sent, ttl))
        return await self._write_lease(name, record.holder, record.fence, state, ttl, now)

    async def _write_lease(
        self, name: str, holder: str, fence: int, state: LeaseState, ttl: float, now: datetime | None
    ) -> Lease | None:
        """Write record and mark under a new etcd lease; None if the record changed meanwhile."""
        expires_at = shift(now or self._clock.now(), ttl)
        seconds = whole_seconds(ttl, _micros(now))
        granted = await self._grant(seconds)
        record = Record(holder, fence, granted, seconds, to_micros(expires_at))
        key = self._record(name)
        written, found = await self._put_if(
            unchanged(key, state.revision), put(key, _encode(record)), put(self._mark(name), b"", granted)
        )
        # The comparison also fails if our own write succeeded and its answer was lost.
        if written or (found is not None and lease_state_of(found, None).record.lease == granted):
            await self._revoke(state.record.lease)
            return Lease(name, holder, fence, expires_at)
        await self._revoke(granted)
        return None

    async def release(self, leases: Sequence[Lease]) -> None:
        for lease in leases:
            await self._release(lease)

    async def _release(self, lease: Lease) -> None:
        for _ in range(_MAX_RACES):
            state = await self._lease_state(lease.name)
            if not state.belongs_to(lease.holder, lease.fence):
                return
            key = self._record(lease.name)
            request = put_if([unchanged(key, state.revision)], put(key, _encode(Record(fence=lease.fence))))
            request["success"].append({"request_delete_range": get(self._mark(lease.name))})
            if (await self._gateway.call("kv/txn", request, TransactionReply)).succeeded:
                await self._revoke(state.record.lease)
                return
        raise BackendUnavailable(f"the lease {lease.name!r} changes too fast to be released")

    async def holder(self, name: str, *, now: datetime | None = None) -> Lease | None:
        state = await self._lease_state(name)
        if not state.held(_micros(now)):
            return None
        record = state.record
        if now is not None:
            return Lease(name, record.holder, record.fence, from_micros(record.expires))
        asked = self._clock.now()
        left = await self._gateway.call("lease/timetolive", {"ID": record.lease}, LeaseReply)
        return None if left.ttl < 0 else Lease(name, record.holder, record.fence, shift(asked, left.ttl))

    async def _lease_state(self, name: str) -> LeaseState:
        """Record and mark, both at one moment."""
        steps = [{"request_range": get(self._record(name))}, {"request_range": get(self._mark(name))}]
        reply = await self._gateway.call("kv/txn", {"success": steps}, TransactionReply)
        return lease_state_of(reply.found(0), reply.found(1))

    # --- requests to etcd

    async def _grant(self, seconds: int) -> int:
        return (await self._gateway.call("lease/grant", {"TTL": seconds}, LeaseReply)).id

    async def _keep_alive(self, lease: int) -> bool:
        return (await self._gateway.call("lease/keepalive", {"ID": lease}, KeepAliveReply)).result.ttl > 0

    async def _revoke(self, lease: int) -> None:
        """Revoke an etcd lease without keys early; otherwise it would expire."""
        if lease:
            with suppress(LeaseGone):
                await self._gateway.call("lease/revoke", {"ID": lease}, LeaseReply)

    async def _read(self, key: bytes) -> KeyValue | None:
        return (await self._gateway.call("kv/range", get(key), RangeReply)).first

    async def _put_if(self, compare: Request | None, *puts: Request) -> tuple[bool, KeyValue | None]:
        """Whether these were written; if not, what the first key has instead.

        False also if the etcd lease expired before the write: it took longer than the lease lasts.
        """
        request = put_if([] if compare is None else [compare], *puts)
        try:
            reply = await self._gateway.call("kv/txn", request, TransactionReply)
        except LeaseGone:
            return False, None
        return reply.succeeded, None if reply.succeeded else reply.found(0)

    # --- presence

    async def announce(self, node: Node, ttl: float, *, now: datetime | None = None) -> None:
        key = self._node(node.id)
        before = await self._read(key)
        if not await self._write_node(key, node, ttl, now, None):
            raise BackendUnavailable(f"node {node.id!r} was not announced: that took longer than {ttl:g} s")
        if before is not None:
            await self._revoke(before.lease)

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
        found = await self._read(key)
        known = readable(lambda pair: _presence.decode(pair.value), [] if found is None else [found])
        if found is None or not known or (at is not None and known[0].expires <= at):
            return False
        [presence] = known
        if started_at not in {None, presence.node.started_at}:
            return False
        node = presence.node if metrics is None else replace(presence.node, metrics=metrics)
        if at is None and presence.ttl == whole_seconds(ttl, None):
            return await self._keep_alive(found.lease) and await self._update_node(key, found, presence, node)
        if not await self._write_node(key, node, ttl, now, unchanged(key, found.mod_revision)):
            return False
        await self._revoke(found.lease)
        return True

    async def _update_node(self, key: bytes, found: KeyValue, presence: Presence, node: Node) -> bool:
        """Replace the record of a node, if it changed, under the etcd lease that its key has."""
        if node == presence.node:
            return True
        value = _encode(replace(presence, node=node))
        written, other = await self._put_if(unchanged(key, found.mod_revision), put(key, value, found.lease))
        return written or other is not None

    async def _write_node(
        self, key: bytes, node: Node, ttl: float, now: datetime | None, compare: Request | None
    ) -> bool:
        """Write the record of a node under a new etcd lease, if the comparison holds."""
        at = now or self._clock.now()
        seconds = whole_seconds(ttl, _micros(now))
        granted = await self._grant(seconds)
        presence = Presence(node, seconds, to_micros(shift(at, ttl)))
        written, other = await self._put_if(compare, put(key, _encode(presence), granted))
        return written or (other is not None and other.lease == granted)

    async def retire(self, node_id: str) -> None:
        key = self._node(node_id)
        found = await self._read(key)
        if found is not None:
            await self._gateway.call("kv/deleterange", get(key), dict)
            await self._revoke(found.lease)

    async def nodes(self, *, now: datetime | None = None) -> list[Node]:
        at = _micros(now)
        found = await self._gateway.call("kv/range", get(self._node(""), prefix=True), RangeReply)
        known = readable(lambda pair: _presence.decode(pair.value), found.kvs)
        alive = [presence.node for presence in known if at is None or presence.expires > at]
        return sorted(alive, key=lambda node: (node.started_at, node.id))

    # --- shared values

    async def get(self, key: str) -> Item | None:
        found = await self._read(self._shared(key))
        return None if found is None else Item(key, found.value, found.version)

    async def put(self, key: str, value: bytes, expect: int | None = None) -> Item | None:
        where = self._shared(key)
        if expect is None:
            request = put(where, value) | {"prev_kv": True}
            before = (await self._gateway.call("kv/put", request, PutReply)).prev_kv
            return Item(key, value, 1 if before is None else before.version + 1)
        written, found = await self._put_if(at_version(where, expect), put(where, value))
        # The comparison also fails if our own write succeeded and its answer was lost.
        ours = found is not None and (found.version, found.value) == (expect + 1, value)
        return Item(key, value, expect + 1) if written or ours else None

    async def watch(self, key: str) -> AsyncIterator[Item]:
        """Waits through an outage. Holds no connection between two values, so an abandoned watch costs nothing."""
        where, seen, revision = self._shared(key), 0, 0
        while True:
            pairs, revision = await self._changes(where, revision)
            for pair in pairs:
                if pair.mod_revision > seen:
                    seen = pair.mod_revision
                    yield Item(key, pair.value, pair.version)

    async def _changes(self, key: bytes, revision: int) -> tuple[list[KeyValue], int]:
        """The changes after that revision (0: the present value), and the revision up to which they are complete."""
        try:
            news = await self._gateway.next_change(key, revision, _LONGEST_SILENCE) if revision else None
            if news is not None:
                return [event.kv for event in news.events if event.type == "PUT"], news.header.revision
            found = await self._gateway.call("kv/range", get(key), RangeReply)
        except BackendUnavailable:
            if not revision:
                raise
            await asyncio.sleep(max(self._gateway.pause, _SHORTEST_PAUSE))
            return [], revision
        return list(found.kvs), found.header.revision

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
