"""The coordinator port on SQLite: leases, presence and shared values as rows. Fences are the store's."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from functools import partial

import msgspec
from msgspec.structs import replace

from duly.backends.announced import life_mark
from duly.backends.rows import to_json
from duly.backends.sqlite.session import Session
from duly.backends.sqlite.unit_of_work import SHARED, WORK, UnitOfWork
from duly.backends.tolerance import readable
from duly.model import Item, Lease, Node, from_micros, shift, to_micros

# What lapsed so long ago is forgotten when a node announces itself.
_MEMORY = 86_400_000_000

_LEASE = "SELECT name, holder, fence, expires_at FROM {ns}_leases WHERE name = ?"
_SET_LEASE = """
INSERT INTO {ns}_leases (name, holder, fence, expires_at) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (name) DO UPDATE SET holder = ?2, fence = ?3, expires_at = ?4
"""
_EXTEND = "UPDATE {ns}_leases SET expires_at = ? WHERE name = ? AND holder = ? AND fence = ?"
_RELEASE = "DELETE FROM {ns}_leases WHERE name = ? AND holder = ? AND fence = ?"

_ANNOUNCE = """
INSERT INTO {ns}_nodes (id, expires_at, node) VALUES (?1, ?2, ?3)
ON CONFLICT (id) DO UPDATE SET expires_at = ?2, node = ?3
"""
_FORGET_NODES = "DELETE FROM {ns}_nodes WHERE expires_at < ?"
_FORGET_REQUESTS = "DELETE FROM {ns}_requests WHERE at < ?"
_BEAT = "UPDATE {ns}_nodes SET expires_at = ?2 WHERE id = ?1 AND expires_at > ?3 AND instr(node, ?4) > 0"
_NODE = "SELECT node FROM {ns}_nodes WHERE id = ?"
_SET_NODE = "UPDATE {ns}_nodes SET node = ? WHERE id = ?"
_RETIRE = "DELETE FROM {ns}_nodes WHERE id = ?"
_NODES = "SELECT node FROM {ns}_nodes WHERE expires_at > ?"

_SHARED = "SELECT key, value, version FROM {ns}_shared WHERE key = ?"
_SET_SHARED = """
INSERT INTO {ns}_shared (key, value, version) VALUES (?1, ?2, ?3)
ON CONFLICT (key) DO UPDATE SET value = ?2, version = ?3
"""

_node = msgspec.json.Decoder(Node)


class SqliteCoordinator:
    """Who is alive, and who holds which right."""

    def __init__(self, session: Session) -> None:
        self._session = session

    # --- leases

    async def acquire(self, name: str, holder: str, ttl: float, *, now: datetime | None = None) -> Lease | None:
        return await self._session.write(partial(_acquire, name, holder, ttl, now))

    async def renew(self, leases: Sequence[Lease], ttl: float, *, now: datetime | None = None) -> list[Lease | None]:
        return await self._session.write(partial(_renew, leases, ttl, now))

    async def release(self, leases: Sequence[Lease]) -> None:
        await self._session.write(partial(_release, leases))

    async def holder(self, name: str, *, now: datetime | None = None) -> Lease | None:
        def work(unit: UnitOfWork) -> Lease | None:
            present = _lease(unit, name)
            return present if present and to_micros(present.expires_at) > unit.at(now) else None

        return await self._session.read(work)

    # --- presence

    async def announce(self, node: Node, ttl: float, *, now: datetime | None = None) -> None:
        await self._session.write(partial(_announce, node, ttl, now))

    async def beat(
        self,
        node_id: str,
        ttl: float,
        metrics: dict[str, float] | None = None,
        *,
        started_at: datetime | None = None,
        now: datetime | None = None,
    ) -> bool:
        return await self._session.write(partial(_beat, node_id, ttl, metrics, life_mark(started_at), now))

    async def retire(self, node_id: str) -> None:
        await self._session.write(partial(_retire, node_id))

    async def nodes(self, *, now: datetime | None = None) -> list[Node]:
        def work(unit: UnitOfWork) -> list[Node]:
            alive = readable(lambda row: _node.decode(row[0]), unit.all(_NODES, unit.at(now)))
            return sorted(alive, key=lambda node: (node.started_at, node.id))

        return await self._session.read(work)

    # --- shared values

    async def get(self, key: str) -> Item | None:
        return await self._session.read(lambda unit: _shared(unit, key))

    async def put(self, key: str, value: bytes, expect: int | None = None) -> Item | None:
        return await self._session.write(partial(_put, key, value, expect))

    async def watch(self, key: str) -> AsyncIterator[Item]:
        notifier = self._session.gear.notifier
        notifier.listen()
        seen = 0
        heard = notifier.rings[SHARED]
        while True:
            item = await self.get(key)
            if item is not None and item.version > seen:
                seen = item.version
                yield item
            heard = await notifier.wait(SHARED, heard, math.inf)


# --- on the session's threads


def _expiry(unit: UnitOfWork, ttl: float, now: datetime | None) -> int:
    return to_micros(shift(from_micros(unit.at(now)), ttl))


def _lease(unit: UnitOfWork, name: str) -> Lease | None:
    row = unit.one(_LEASE, name)
    return None if row is None else Lease(row[0], row[1], row[2], from_micros(row[3]))


def _acquire(name: str, holder: str, ttl: float, now: datetime | None, unit: UnitOfWork) -> Lease | None:
    at = unit.at(now)
    present = _lease(unit, name)
    held = present is not None and to_micros(present.expires_at) > at
    if present is not None and held and present.holder != holder:
        return None
    fence = present.fence if present is not None and held else unit.fences(1)
    expires_at = _expiry(unit, ttl, from_micros(at))
    unit.run(_SET_LEASE, name, holder, fence, expires_at)
    return Lease(name, holder, fence, from_micros(expires_at))


def _renew(leases: Sequence[Lease], ttl: float, now: datetime | None, unit: UnitOfWork) -> list[Lease | None]:
    expires_at = _expiry(unit, ttl, now)
    until = from_micros(expires_at)
    return [
        replace(lease, expires_at=until)
        if unit.run(_EXTEND, expires_at, lease.name, lease.holder, lease.fence)
        else None
        for lease in leases
    ]


def _release(leases: Sequence[Lease], unit: UnitOfWork) -> None:
    for lease in leases:
        if unit.run(_RELEASE, lease.name, lease.holder, lease.fence):
            unit.rings |= WORK


def _announce(node: Node, ttl: float, now: datetime | None, unit: UnitOfWork) -> None:
    at = unit.at(now)
    unit.run(_ANNOUNCE, node.id, _expiry(unit, ttl, from_micros(at)), to_json(node))
    unit.run(_FORGET_NODES, at - _MEMORY)
    unit.run(_FORGET_REQUESTS, at - _MEMORY)


def _beat(
    node_id: str, ttl: float, metrics: dict[str, float] | None, mark: str, now: datetime | None, unit: UnitOfWork
) -> bool:
    at = unit.at(now)
    if not unit.run(_BEAT, node_id, _expiry(unit, ttl, from_micros(at)), at, mark):
        return False
    if metrics is not None:
        known = readable(lambda row: _node.decode(row[0]), unit.all(_NODE, node_id))
        if not known:
            return False  # it announces itself again
        unit.run(_SET_NODE, to_json(replace(known[0], metrics=metrics)), node_id)
    return True


def _retire(node_id: str, unit: UnitOfWork) -> None:
    unit.run(_RETIRE, node_id)
    unit.rings |= WORK


def _shared(unit: UnitOfWork, key: str) -> Item | None:
    row = unit.one(_SHARED, key)
    return None if row is None else Item(*row)


def _put(key: str, value: bytes, expect: int | None, unit: UnitOfWork) -> Item | None:
    present = _shared(unit, key)
    version = present.version if present else 0
    if expect is not None and expect != version:
        return None
    unit.run(_SET_SHARED, key, value, version + 1)
    unit.rings |= SHARED
    return Item(key, value, version + 1)
