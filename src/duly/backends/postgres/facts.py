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
    has_database_privilege(current_database(), 'CREATE') AS may_create
"""
_CLOCK = "SELECT extract(epoch FROM clock_timestamp())::float8"


class Facts(Struct, frozen=True):
    """As told now. `longest` is how many seconds the oldest transaction of somebody else has been open."""

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
    pooled: bool
    clock_offset: float
    round_trip: float
    applied: tuple[str, ...]
    missing: tuple[str, ...]


async def gather(lanes: Lanes, clock: Clock) -> Facts:
    """Ask the server; `clock` is this machine's."""
    return await lanes[LANE].run(partial(_gather, lanes, clock))


async def _gather(lanes: Lanes, clock: Clock, connection: Connection) -> Facts:
    row = await connection.fetchrow(_FACTS)
    assert row is not None
    asked, wall = clock.monotonic(), clock.now()
    seconds = float(await connection.fetchval(_CLOCK))
    trip = clock.monotonic() - asked
    applied = [step.name for step in await applied_steps(connection, lanes.texts)]
    return Facts(
        **dict(row),
        pooled=lanes.pooled,
        clock_offset=seconds - wall.timestamp() - trip / 2,
        round_trip=trip,
        applied=tuple(applied),
        missing=tuple(step.name for step in steps() if step.name not in applied),
    )


def capabilities_of(facts: Facts, place: Place) -> Capabilities:
    """What can be promised on such a server.

    Every commit is written before it is acknowledged unless `synchronous_commit` is off; it reaches the disk unless
    `fsync` is off too. Where several servers are named, another one may take over, without what it was not sent.
    """
    told_late = facts.synchronous_commit == "off"
    may_lose = len(place.addresses) > 1 and not facts.synchronous_standby_names
    return Capabilities(
        durable=not told_late and not may_lose,
        durable_start=facts.fsync and not told_late and not may_lose,
        shared=True,
        transactions=True,
        push=not facts.pooled,
        threads=True,
    )
