"""What a doctor says about a server: what it is, what it keeps, what it may lose, and what that means for promises."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address

from duly.backends.postgres.server_info import ServerInfo, capabilities_of
from duly.backends.postgres.url import Place
from duly.ports import Finding, Severity

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
            _WARNING, "encryption", "TLS, but nothing of the server's proof is verified: use sslmode=verify-full"
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
            f"transaction ids are used up to {facts.age / 2**31:.0%}: look why vacuum does not freeze",
        )
    if (facts.longest or 0.0) > _LONG:
        return Finding(
            _WARNING,
            "vacuum",
            f"somebody's transaction is open for {facts.longest or 0.0:.0f} s: nothing that ended since can be swept"
            " away, and claims get slower",
        )
    return Finding(_OK, "vacuum", "autovacuum on, no old transaction in its way")


def _clock(facts: ServerInfo) -> Finding:
    offset, trip = facts.clock_offset, facts.round_trip
    told = f"{abs(offset) * 1000:.0f} ms {'ahead of' if offset >= 0 else 'behind'} this machine's"
    if abs(offset) - trip > _LARGE_OFFSET:
        return Finding(_WARNING, "server clock", f"{told}: due times follow the server's clock, so set both by NTP")
    return Finding(_OK, "server clock", f"{told} (round trip {trip * 1000:.1f} ms)")


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
