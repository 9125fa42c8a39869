"""The coordinator port on PostgreSQL: leases, presence and shared values, each verb one statement.

The server's clock is read after the row is locked, never the start of the transaction: whoever waited for a lock must
not judge by a time that has passed.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from datetime import datetime

import msgspec
from asyncpg import Record
from msgspec.structs import replace

from duly.backends.announced import life_mark
from duly.backends.postgres.connection import Connection, Lanes
from duly.backends.postgres.notify import SHARED, Notifier
from duly.backends.tolerance import readable
from duly.model import Item, Lease, Node, from_micros, to_micros

LANE = "coordinator"

_FOREVER = 100 * 365 * 86_400.0  # seconds
_DAY = 86_400_000_000

# In each statement that takes an instant it is the first parameter, see `texts.NOW`.
_AT = "{now}"

# Takes the lease unless somebody else holds it. The fence is drawn under the row's lock, but for a name that nobody
# knows, whose first row only one can insert. No row comes back when it is held.
_ACQUIRE = f"""
INSERT INTO {{ns}}.leases AS l (name, holder, fence, expires_at)
VALUES ($2, $3, nextval('{{ns}}.fences'), {_AT} + $4)
ON CONFLICT (name) DO UPDATE SET
    holder = $3,
    fence = CASE WHEN l.holder = $3 AND l.expires_at > {_AT} THEN l.fence ELSE nextval('{{ns}}.fences') END,
    expires_at = {_AT} + $4
WHERE l.holder IN ($3, '') OR l.expires_at <= {_AT}
RETURNING fence, expires_at
"""  # noqa: S608
# Extends each lease that is still this holder's under this fence.
_RENEW = f"""
UPDATE {{ns}}.leases AS l SET expires_at = {_AT} + $2
FROM unnest($3::text[], $4::text[], $5::bigint[]) AS mine (name, holder, fence)
WHERE l.name = mine.name AND l.holder = mine.holder AND l.fence = mine.fence
RETURNING l.name, l.fence, l.expires_at
"""  # noqa: S608
# Frees each lease that is still this holder's; rings (bell.WORK) if there was one, since leadership may be free.
_RELEASE = """
WITH freed AS (
    UPDATE {ns}.leases AS l SET holder = ''
    FROM unnest($1::text[], $2::text[], $3::bigint[]) AS mine (name, holder, fence)
    WHERE l.name = mine.name AND l.holder = mine.holder AND l.fence = mine.fence
    RETURNING 1
)
SELECT pg_notify({bell}, '1') FROM freed LIMIT 1
"""
_HOLDER = f"""
SELECT holder, fence, expires_at FROM {{ns}}.leases WHERE name = $2 AND holder <> '' AND expires_at > {_AT}
"""  # noqa: S608

# Says that a node lives, and forgets what nobody has asked about for a day.
_ANNOUNCE = f"""
INSERT INTO {{ns}}.nodes (id, expires_at, node, metrics) VALUES ($2, {_AT} + $3, $4, NULL)
ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at, node = excluded.node, metrics = NULL
"""  # noqa: S608
_FORGET = tuple(
    f"DELETE FROM {{ns}}.{table} WHERE {column} < {_AT} - {_DAY}"  # noqa: S608
    for table, column in (("nodes", "expires_at"), ("leases", "expires_at"), ("requests", "at"))
)
_BEAT = f"""
UPDATE {{ns}}.nodes SET expires_at = {_AT} + $3, metrics = coalesce($4, metrics)
WHERE id = $2 AND expires_at > {_AT} AND strpos(node, $5) > 0
RETURNING 1
"""  # noqa: S608
# Rings, since what was this node's may be somebody else's now.
_RETIRE = """
WITH gone AS (DELETE FROM {ns}.nodes WHERE id = $1 RETURNING 1) SELECT pg_notify({bell}, '1') FROM gone
"""
_NODES = f"SELECT node, metrics FROM {{ns}}.nodes WHERE expires_at > {_AT}"  # noqa: S608

_GET = "SELECT value, version FROM {ns}.shared WHERE key = $1"
# Three ways to write a shared value: whatever is there, only if nothing is, only over the version that is expected.
# Each rings for shared values (bell.SHARED).
_PUT = """
WITH written AS (
    INSERT INTO {ns}.shared AS s (key, value, version) VALUES ($1, $2, 1)
    ON CONFLICT (key) DO UPDATE SET value = $2, version = s.version + 1
    RETURNING version
)
SELECT version, pg_notify({bell}, '4') FROM written
"""
_PUT_NEW = """
WITH written AS (
    INSERT INTO {ns}.shared (key, value, version) VALUES ($1, $2, 1) ON CONFLICT (key) DO NOTHING RETURNING version
)
SELECT version, pg_notify({bell}, '4') FROM written
"""
_PUT_OVER = """
WITH written AS (
    UPDATE {ns}.shared SET value = $2, version = version + 1 WHERE key = $1 AND version = $3 RETURNING version
)
SELECT version, pg_notify({bell}, '4') FROM written
"""

_node = msgspec.json.Decoder(Node)
_metrics = msgspec.json.Decoder(dict[str, float])


class PostgresCoordinator:
    """Who is alive, and who holds which right."""

    def __init__(self, lanes: Lanes, notifier: Notifier) -> None:
        self._lanes = lanes
        self._notifier = notifier
        self._texts = lanes.texts

    # --- leases

    async def acquire(self, name: str, holder: str, ttl: float, *, now: datetime | None = None) -> Lease | None:
        row = await self._row(_ACQUIRE, self._lanes.moment(now), name, holder, _micros(ttl))
        return None if row is None else Lease(name, holder, row[0], from_micros(row[1]))

    async def renew(self, leases: Sequence[Lease], ttl: float, *, now: datetime | None = None) -> list[Lease | None]:
        if not leases:
            return []
        rows = await self._rows(_RENEW, self._lanes.moment(now), _micros(ttl), *_rights(leases))
        renewed = {(name, fence): from_micros(expires_at) for name, fence, expires_at in rows}
        return [
            replace(lease, expires_at=renewed[lease.name, lease.fence])
            if (lease.name, lease.fence) in renewed
            else None
            for lease in leases
        ]

    async def release(self, leases: Sequence[Lease]) -> None:
        if leases:
            await self._rows(_RELEASE, *_rights(leases))

    async def holder(self, name: str, *, now: datetime | None = None) -> Lease | None:
        row = await self._row(_HOLDER, self._lanes.moment(now), name)
        return None if row is None else Lease(name, row[0], row[1], from_micros(row[2]))

    # --- presence

    async def announce(self, node: Node, ttl: float, *, now: datetime | None = None) -> None:
        at, said = self._lanes.moment(now), msgspec.json.encode(node).decode()

        async def work(connection: Connection) -> None:
            await connection.execute(self._texts[_ANNOUNCE], at, node.id, _micros(ttl), said)
            for forget in _FORGET:
                await connection.execute(self._texts[forget], at)

        await self._lanes[LANE].run(work)

    async def beat(
        self,
        node_id: str,
        ttl: float,
        metrics: dict[str, float] | None = None,
        *,
        started_at: datetime | None = None,
        now: datetime | None = None,
    ) -> bool:
        said = None if metrics is None else msgspec.json.encode(metrics).decode()
        mark = life_mark(started_at)
        return await self._row(_BEAT, self._lanes.moment(now), node_id, _micros(ttl), said, mark) is not None

    async def retire(self, node_id: str) -> None:
        await self._rows(_RETIRE, node_id)

    async def nodes(self, *, now: datetime | None = None) -> list[Node]:
        alive = readable(
            lambda row: _met(_node.decode(row[0]), row[1]), await self._rows(_NODES, self._lanes.moment(now))
        )
        return sorted(alive, key=lambda node: (node.started_at, node.id))

    # --- shared values

    async def get(self, key: str) -> Item | None:
        row = await self._row(_GET, key)
        return None if row is None else Item(key, row[0], row[1])

    async def put(self, key: str, value: bytes, expect: int | None = None) -> Item | None:
        match expect:
            case None:
                row = await self._row(_PUT, key, value)
            case 0:
                row = await self._row(_PUT_NEW, key, value)
            case _:
                row = await self._row(_PUT_OVER, key, value, expect)
        return None if row is None else Item(key, value, row[0])

    async def watch(self, key: str) -> AsyncIterator[Item]:
        await self._notifier.listen()
        seen = 0
        heard = self._notifier.rings[SHARED]
        while True:
            item = await self.get(key)
            if item is not None and item.version > seen:
                seen = item.version
                yield item
            heard = await self._notifier.wait(SHARED, heard, math.inf)

    # --- statements

    async def _rows(self, sql: str, *values: object) -> list[Record]:
        return await self._lanes[LANE].run(lambda connection: connection.fetch(self._texts[sql], *values))

    async def _row(self, sql: str, *values: object) -> Record | None:
        return await self._lanes[LANE].run(lambda connection: connection.fetchrow(self._texts[sql], *values))


def _micros(seconds: float) -> int:
    return round(min(seconds, _FOREVER) * 1_000_000)


def _instant(now: datetime | None) -> int | None:
    return None if now is None else to_micros(now)


def _rights(leases: Sequence[Lease]) -> tuple[list[str], list[str], list[int]]:
    return [lease.name for lease in leases], [lease.holder for lease in leases], [lease.fence for lease in leases]


def _met(node: Node, metrics: str | None) -> Node:
    return node if metrics is None else replace(node, metrics=_metrics.decode(metrics))
