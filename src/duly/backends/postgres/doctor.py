"""The doctor's findings about a server: what it is, what it may lose, and what Duly can promise there."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from ipaddress import ip_address

from msgspec import Struct

from duly.backends.postgres.connection import Connection, Connections
from duly.backends.postgres.migrations import LANE, applied_steps, steps
from duly.backends.postgres.url import Place
from duly.ports import Capabilities, Clock, Finding, Severity

_OK, _WARNING, _PROBLEM = Severity.OK, Severity.WARNING, Severity.PROBLEM
_OLDEST = 130000
_LARGE_OFFSET = 1.0
_NEARLY_FULL = 0.9
_LONG = 300.0
_OLD = 1_500_000_000

_NAMED = {
    "verify-full": (_OK, "TLS; the server's certificate and name are verified"),
    "verify-ca": (_WARNING, "TLS, but the server's name is not verified: use sslmode=verify-full"),
}


def findings(facts: ServerInfo, place: Place, namespace: str) -> list[Finding]:
    """All of them, from the server to the promises."""
    return [
        _server(facts),
        _encryption(facts, place),
        *_role(facts),
        _persistence(facts),
        _replication(facts, place),
        _connections(facts),
        _pooler(facts),
        _schema(facts, namespace),
        _vacuum(facts),
        _clock(facts),
        _promises(facts, place),
    ]


def _server(facts: ServerInfo) -> Finding:
    if facts.number < _OLDEST:
        return Finding(_PROBLEM, "server", f"PostgreSQL {facts.version}: too old, 13 is the first that Duly works on")
    return Finding(_OK, "server", f"PostgreSQL {facts.version}")


def _encryption(facts: ServerInfo, place: Place) -> Finding:
    if place.tls.mode in _NAMED:
        return Finding(_NAMED[place.tls.mode][0], "encryption", _NAMED[place.tls.mode][1])
    if all(_is_here(host) for host, _ in place.addresses):
        return Finding(_OK, "encryption", "none needed: the server is on this machine")
    if facts.encrypted or place.tls.mode == "require":
        return Finding(
            _WARNING, "encryption", "TLS, but the server's certificate is not verified: use sslmode=verify-full"
        )
    return Finding(
        _WARNING,
        "encryption",
        "none: payloads cross the network in the clear; turn ssl on in the server and use sslmode=verify-full",
    )


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or host.startswith("/") or ip_address(host).is_loopback
    except ValueError:
        return False


def _role(facts: ServerInfo) -> Iterator[Finding]:
    if facts.standby:
        yield Finding(
            _PROBLEM, "role", "this server is a standby, it takes no writes: name the primary, or all of them"
        )
    elif facts.read_only:
        yield Finding(_PROBLEM, "role", "transactions are read-only here: look at default_transaction_read_only")


def _persistence(facts: ServerInfo) -> Finding:
    if facts.unlogged:
        return Finding(
            _PROBLEM,
            "persistence",
            f"unlogged: {', '.join(facts.unlogged)}. A crash of the server empties such tables: use ALTER TABLE … SET"
            " LOGGED",
        )
    if facts.synchronous_commit == "off":
        return Finding(
            _WARNING,
            "persistence",
            "synchronous_commit off: a crash forgets what was acknowledged in the last moments. Set it to on for this"
            " user",
        )
    if not facts.fsync:
        return Finding(_PROBLEM, "persistence", "fsync off: power loss may destroy the whole database. Set it to on")
    if not facts.full_page_writes:
        return Finding(
            _WARNING,
            "persistence",
            "full_page_writes off: power loss may tear pages on most file systems. Set it to on",
        )
    return Finding(_OK, "persistence", f"fsync on, synchronous_commit {facts.synchronous_commit}")


def _replication(facts: ServerInfo, place: Place) -> Finding:
    known = f"{facts.standbys} standby server{'' if facts.standbys == 1 else 's'} connected"
    if facts.synchronous_standby_names and facts.synchronous_commit == "local":
        return Finding(
            _WARNING,
            "replication",
            f"{known}, but synchronous_commit local does not wait for them: when one takes over, what was acknowledged"
            " last is lost. Set it to on",
        )
    if facts.synchronous_standby_names:
        return Finding(_OK, "replication", f"{known}, synchronous: {facts.synchronous_standby_names}")
    if not facts.standbys and len(place.addresses) == 1:
        return Finding(_OK, "replication", "none")
    return Finding(
        _WARNING,
        "replication",
        f"{known}, none of them synchronous: when one takes over, what was acknowledged last is lost. Set"
        " synchronous_standby_names",
    )


def _connections(facts: ServerInfo) -> Finding:
    used = f"{facts.connections} of {facts.max_connections} in use"
    if facts.connections > _NEARLY_FULL * facts.max_connections:
        return Finding(_WARNING, "connections", f"{used}: a node needs up to a dozen; raise max_connections")
    return Finding(_OK, "connections", used)


def _pooler(facts: ServerInfo) -> Finding:
    if facts.pooled:
        return Finding(
            _WARNING,
            "pooler",
            "one hands our connections around: no statement is prepared, and new work is looked for every half second"
            " instead of being announced. Go past it for milliseconds of lateness",
        )
    return Finding(_OK, "pooler", "none, or one that leaves a session its connection")


def _schema(facts: ServerInfo, namespace: str) -> Finding:
    at = facts.applied[-1] if facts.applied else "nothing"
    if facts.missing:
        return Finding(
            _WARNING,
            "schema",
            f"{namespace}: {at} applied, {', '.join(facts.missing)} missing: run `duly migrate` when the last node of"
            " the old version is gone",
        )
    owner = "" if facts.may_create else "; this user may not create schemas, which a new namespace would need"
    return Finding(_OK, "schema", f"{namespace}: {at}{owner}")


def _vacuum(facts: ServerInfo) -> Finding:
    if not facts.autovacuum:
        return Finding(_WARNING, "vacuum", "autovacuum off: claims get slower with every run. Set it to on")
    if facts.age > _OLD:
        return Finding(
            _PROBLEM,
            "vacuum",
            f"{facts.age / 2**31:.0%} of the transaction ids are used: find out why vacuum does not freeze rows",
        )
    if (facts.longest or 0.0) > _LONG:
        return Finding(
            _WARNING,
            "vacuum",
            f"a transaction has been open for {facts.longest or 0.0:.0f} s: rows deleted since cannot be vacuumed"
            ", and claims get slower",
        )
    return Finding(_OK, "vacuum", "autovacuum on, no old transaction in its way")


def _clock(facts: ServerInfo) -> Finding:
    offset, trip = facts.clock_offset, facts.round_trip
    difference = f"{abs(offset) * 1000:.0f} ms {'ahead of' if offset >= 0 else 'behind'} this machine's"
    if abs(offset) - trip > _LARGE_OFFSET:
        return Finding(
            _WARNING, "server clock", f"{difference}: due times follow the server's clock, so set both by NTP"
        )
    return Finding(_OK, "server clock", f"{difference} (round trip {trip * 1000:.1f} ms)")


def _promises(facts: ServerInfo, place: Place) -> Finding:
    can = capabilities_of(facts, place)
    at_least = "at_least_once holds" if can.durable else "at_least_once holds but for changes that a crash may lose"
    asynchronous = facts.standbys and not facts.synchronous_standby_names
    at_most = (
        f"at_most_once holds{' as long as none of the standby servers takes over' if asynchronous else ''}"
        if can.durable_start
        else "at_most_once is refused, since acknowledged changes may be lost (accept_data_loss=True allows it)"
    )
    return Finding(_OK, "promises", f"{at_least}; {at_most}; exactly_once holds for effects in this database")


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
    """As it is now.

    `longest` is how many seconds the oldest transaction of another client has been open; `unlogged` are tables of this
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


async def gather(connections: Connections, clock: Clock) -> ServerInfo:
    """Ask the server; `clock` is this machine's."""
    return await connections[LANE].run(partial(_gather, connections, clock))


async def _gather(connections: Connections, clock: Clock, connection: Connection) -> ServerInfo:
    row = await connection.fetchrow(_FACTS, connections.texts.schema)
    assert row is not None
    asked, wall = clock.monotonic(), clock.now()
    seconds = float(await connection.fetchval(_CLOCK))
    trip = clock.monotonic() - asked
    applied = [step.name for step in await applied_steps(connection, connections.texts)]
    return ServerInfo(
        **dict(row) | {"unlogged": tuple(row["unlogged"])},
        pooled=connections.pooled,
        clock_offset=seconds - wall.timestamp() - trip / 2,
        round_trip=trip,
        applied=tuple(applied),
        missing=tuple(step.name for step in steps() if step.name not in applied),
    )


def capabilities_of(facts: ServerInfo, place: Place) -> Capabilities:
    """What Duly can promise on such a server.

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
        reads_ahead=True,
    )


def _failover_loses(facts: ServerInfo, place: Place) -> bool:
    """Where several servers are named, another one may take over, without what it was not sent before the answer."""
    synchronous = facts.synchronous_standby_names and facts.synchronous_commit != "local"
    return len(place.addresses) > 1 and not synchronous
