"""What a server says about itself, as far as it tells this user, and what that lets the backend promise."""

from __future__ import annotations

from functools import partial

from msgspec import Struct

from duly.backends.postgres.connection import Connection, Lanes
from duly.backends.postgres.migrating import LANE, applied_steps, steps
from duly.backends.postgres.url import Place
from duly.ports import Capabilities, Clock

_FACTS = """
SELECT
    current_setting('server_version') AS version,
    current_setting('server_version_num')::int AS number,
    current_setting('fsync') = 'on' AS fsync,
    current_setting('full_page_writes') = 'on' AS full_page_writes,
    current_setting('synchronous_commit') AS synchronous_commit,
    current_setting('synchronous_standby_names') AS synchronous_standby_names,
    current_setting('autovacuum') = 'on' AS autovacuum,
    current_setting('max_connections')::int AS max_connections,
    current_setting('transaction_read_only') = 'on' AS read_only,
    (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')::int AS connections,
    (SELECT count(*) FROM pg_stat_replication)::int AS standbys,
    pg_is_in_recovery() AS standby,
    coalesce((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false) AS encrypted,
    (SELECT max(extract(epoch FROM clock_timestamp() - xact_start)) FROM pg_stat_activity
        WHERE state <> 'idle' AND pid <> pg_backend_pid() AND datname = current_database())::float8 AS longest,
    (SELECT age(datfrozenxid) FROM pg_database WHERE datname = current_database())::bigint AS age,
    has_database_privilege(current_database(), 'CREATE') AS may_create,
    coalesce((SELECT array_agg(relname::text ORDER BY relname) FROM pg_class
        WHERE relnamespace = to_regnamespace($1) AND relpersistence = 'u' AND relkind IN ('r', 'p', 'S')),
        '{}') AS unlogged
"""
_CLOCK = "SELECT extract(epoch FROM clock_timestamp())::float8"


class ServerInfo(Struct, frozen=True):
    """As told now.

    `longest` is how many seconds the oldest transaction of somebody else has been open; `unlogged` are tables of this
    namespace that a crash of the server empties.
    """

    version: str
    number: int
    fsync: bool
    full_page_writes: bool
    synchronous_commit: str
    synchronous_standby_names: str
    autovacuum: bool
    max_connections: int
    read_only: bool
    connections: int
    standbys: int
    standby: bool
    encrypted: bool
    longest: float | None
    age: int
    may_create: bool
    unlogged: tuple[str, ...]
    pooled: bool
    clock_offset: float
    round_trip: float
    applied: tuple[str, ...]
    missing: tuple[str, ...]


async def gather(lanes: Lanes, clock: Clock) -> ServerInfo:
    """Ask the server; `clock` is this machine's."""
    return await lanes[LANE].run(partial(_gather, lanes, clock))


async def _gather(lanes: Lanes, clock: Clock, connection: Connection) -> ServerInfo:
    row = await connection.fetchrow(_FACTS, lanes.texts.schema)
    assert row is not None
    asked, wall = clock.monotonic(), clock.now()
    seconds = float(await connection.fetchval(_CLOCK))
    trip = clock.monotonic() - asked
    applied = [step.name for step in await applied_steps(connection, lanes.texts)]
    return ServerInfo(
        **dict(row) | {"unlogged": tuple(row["unlogged"])},
        pooled=lanes.pooled,
        clock_offset=seconds - wall.timestamp() - trip / 2,
        round_trip=trip,
        applied=tuple(applied),
        missing=tuple(step.name for step in steps() if step.name not in applied),
    )


def capabilities_of(facts: ServerInfo, place: Place) -> Capabilities:
    """What can be promised on such a server.

    Every commit is written before it is acknowledged unless `synchronous_commit` is off; it reaches the disk unless
    `fsync` is off too, and survives there unless `full_page_writes` is off. A crash empties unlogged tables.
    """
    durable = facts.synchronous_commit != "off" and not facts.unlogged and not _failover_loses(facts, place)
    return Capabilities(
        durable=durable,
        durable_start=durable and facts.fsync and facts.full_page_writes,
        shared=True,
        transactions=True,
        push=not facts.pooled,
        threads=True,
    )


def _failover_loses(facts: ServerInfo, place: Place) -> bool:
    """Where several servers are named, another one may take over, without what it was not sent before the answer."""
    synchronous = facts.synchronous_standby_names and facts.synchronous_commit != "local"
    return len(place.addresses) > 1 and not synchronous
