"""The coordinator port on SQL: leases, presence and shared values as rows. Fences are the store's."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from duly.backends.announced import life_mark
from duly.backends.codec import optional_json, to_json
from duly.backends.sql.notify import SHARED, WORK
from duly.backends.sql.unit import COORDINATING, Row, Session, Unit, Update, columns
from duly.backends.tolerance import readable
from duly.model import Item, Lease, Node, from_micros

_FOREVER = 100 * 365 * 86_400.0  # seconds
_DAY = 86_400_000_000

# In each statement that takes an instant it is the first parameter: see `{now}`. On a server it is read after the row
# is locked: a statement that waited for a lock must not use an outdated time.
_LEASE = columns(fence="bigint", name="text", holder="text")
_RENEW = Update("leases", _LEASE, columns(expires_at="bigint"))
# A released lease keeps its row for a while without a holder, so that its next fence is taken under the row's lock.
_RELEASE = Update("leases", _LEASE, (), constants="{released}")
_HOLDER = "SELECT holder, fence, expires_at FROM {ns}.leases WHERE name = $2 AND holder <> '' AND expires_at > {now}"

_ANNOUNCE = """
INSERT INTO {ns}.nodes (id, expires_at, node) VALUES ($2, {now} + $3, $4)
ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at, node = excluded.node {no_metrics}
"""
# When a node announces itself, rows that expired a day ago are deleted.
_FORGET = tuple(
    f"DELETE FROM {{ns}}.{table} WHERE {column} < {{now}} - {_DAY}"
    for table, column in (("nodes", "expires_at"), ("leases", "expires_at"), ("requests", "at"))
)
_BEAT = """
UPDATE {ns}.nodes SET expires_at = {now} + $3, {set_metrics}
WHERE id = $2 AND expires_at > {now} AND strpos(node, $5) > 0
RETURNING 1
"""
_RETIRE = "DELETE FROM {ns}.nodes WHERE id = $1 RETURNING 1"
_NODES = "SELECT node, {metrics} FROM {ns}.nodes WHERE expires_at > {now}"

_GET = "SELECT key, value, version FROM {ns}.shared WHERE key = $1"
_PUT = """
INSERT INTO {ns}.shared (key, value, version) VALUES ($1, $2, $3)
ON CONFLICT (key) DO UPDATE SET value = excluded.value, version = excluded.version
"""

_node = msgspec.json.Decoder(Node)
_metrics = msgspec.json.Decoder(dict[str, float])


class SqlCoordinator:
    """Who is alive, and who holds which lease."""

    def __init__(self, session: Session[Unit]) -> None:
        self._session = session

    # --- leases

    async def acquire(self, name: str, holder: str, ttl: float, *, now: datetime | None = None) -> Lease | None:
        async def task(unit: Unit) -> Row | None:
            return await unit.dialect.acquire(unit, name, holder, _micros(ttl), now)

        row = await self._session.write_each(COORDINATING, task)
        return None if row is None else Lease(name, holder, row[0], from_micros(row[1]))

    async def renew(self, leases: Sequence[Lease], ttl: float, *, now: datetime | None = None) -> list[Lease | None]:
        async def task(unit: Unit) -> list[Lease | None]:
            until = await unit.at(now) + _micros(ttl)
            renewed = await unit.change(_RENEW, [(*_key(lease), until) for lease in leases])
            return [replace(each, expires_at=from_micros(until)) if each.fence in renewed else None for each in leases]

        return await self._session.write_each(COORDINATING, task) if leases else []

    async def release(self, leases: Sequence[Lease]) -> None:
        async def task(unit: Unit) -> None:
            freed = await unit.change(_RELEASE, [_key(lease) for lease in leases])
            unit.rings |= WORK if freed else 0  # leadership may be free

        if leases:
            await self._session.write(COORDINATING, task)

    async def holder(self, name: str, *, now: datetime | None = None) -> Lease | None:
        row = await self._session.read(lambda unit: unit.one(_HOLDER, unit.moment(now), name))
        return None if row is None else Lease(name, row[0], row[1], from_micros(row[2]))

    # --- presence

    async def announce(self, node: Node, ttl: float, *, now: datetime | None = None) -> None:
        async def task(unit: Unit) -> None:
            await unit.run(_ANNOUNCE, unit.moment(now), node.id, _micros(ttl), to_json(node))
            for forget in _FORGET:
                await unit.run(forget, unit.moment(now))

        await self._session.write_each(COORDINATING, task)

    async def beat(
        self,
        node_id: str,
        ttl: float,
        metrics: dict[str, float] | None = None,
        *,
        started_at: datetime | None = None,
        now: datetime | None = None,
    ) -> bool:
        said, mark = optional_json(metrics), life_mark(started_at)

        async def task(unit: Unit) -> Row | None:
            return await unit.one(_BEAT, unit.moment(now), node_id, _micros(ttl), said, mark)

        return await self._session.write_each(COORDINATING, task) is not None

    async def retire(self, node_id: str) -> None:
        async def task(unit: Unit) -> None:
            gone = await unit.one(_RETIRE, node_id)
            unit.rings |= 0 if gone is None else WORK  # other nodes may take over what this node had

        await self._session.write(COORDINATING, task)

    async def nodes(self, *, now: datetime | None = None) -> list[Node]:
        rows = await self._session.read(lambda unit: unit.all(_NODES, unit.moment(now)))
        alive = readable(_read_node, rows)
        return sorted(alive, key=lambda node: (node.started_at, node.id))

    # --- shared values

    async def get(self, key: str) -> Item | None:
        return await self._session.read(lambda unit: _get(unit, key))

    async def put(self, key: str, value: bytes, expect: int | None = None) -> Item | None:
        async def task(unit: Unit) -> Item | None:
            await unit.locks.one(f"shared {key}")
            present = await _get(unit, key)
            version = present.version if present else 0
            if expect is not None and expect != version:
                return None
            await unit.run(_PUT, key, value, version + 1)
            unit.rings |= SHARED
            return Item(key, value, version + 1)

        return await self._session.write(COORDINATING, task)

    async def watch(self, key: str) -> AsyncIterator[Item]:
        notifier = self._session.notifier
        await notifier.listen()
        seen = 0
        heard = notifier.rings[SHARED]
        while True:
            item = await self.get(key)
            if item is not None and item.version > seen:
                seen = item.version
                yield item
            heard = await notifier.wait(SHARED, heard, math.inf)


async def _get(unit: Unit, key: str) -> Item | None:
    row = await unit.one(_GET, key)
    return None if row is None else Item(*row)


def _micros(seconds: float) -> int:
    return round(min(seconds, _FOREVER) * 1_000_000)


def _key(lease: Lease) -> tuple[int, str, str]:
    return lease.fence, lease.name, lease.holder


def _read_node(row: Row) -> Node:
    node = _node.decode(row[0])
    return node if row[1] is None else replace(node, metrics=_metrics.decode(row[1]))
