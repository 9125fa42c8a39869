"""What a doctor says about a server: what it is, what it keeps, what it may lose, and what that means for promises."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from ipaddress import ip_address

from msgspec import Struct

from duly.backends.redis.client import RedisClient
from duly.backends.redis.settings import Place
from duly.errors import BackendError, BackendUnavailable
from duly.model import iso
from duly.ports import Capabilities, Finding, Severity

SETTINGS = (
    "appendonly",
    "appendfsync",
    "no-appendfsync-on-rewrite",
    "save",
    "maxmemory-policy",
    "min-replicas-to-write",
)
_KEEPS_ALL = "noeviction"


class ServerInfo(Struct, frozen=True):
    """What the server says about itself. None is unknown. `clock_offset` is how far its clock is ahead, in seconds."""

    kind: str
    version: str
    appendonly: bool | None
    appendfsync: str | None
    rewrites_unsynced: bool | None
    snapshots: bool | None
    writes_fail: bool
    maxmemory: int | None
    used_memory: int | None
    policy: str | None
    evicted: int | None
    role: str | None
    replicas: int | None
    min_replicas: int | None
    cluster: bool
    clock_offset: float
    round_trip: float

    @property
    def fails_over(self) -> bool:
        """Whether another server may take over that has not got everything."""
        return self.cluster or bool(self.replicas)

    @property
    def evicts(self) -> bool:
        """Whether the server may delete keys when its memory is full; an unknown policy may.

        This asks for the policy alone: with no limit nothing is evicted yet, but `CONFIG SET maxmemory` sets one at any
        time. A policy that evicts only keys with a time to live counts too: claims are repeated safely because of such
        a key (`request:<node>`).
        """
        return self.policy != _KEEPS_ALL


async def gather(client: RedisClient) -> ServerInfo:
    """Ask for everything at once."""
    sent, wall = time.monotonic(), time.time()
    moment, info, *settings = await asyncio.gather(
        client.command("TIME"), _info(client), *(_setting(client, name) for name in SETTINGS)
    )
    round_trip = time.monotonic() - sent
    offset = int(moment[0]) + int(moment[1]) / 1e6 - (wall + round_trip / 2)
    return read(info, dict(zip(SETTINGS, settings, strict=True)), offset, round_trip)


def read(info: dict[str, str], settings: dict[str, str | None], offset: float, round_trip: float) -> ServerInfo:
    """Facts from what INFO and CONFIG said."""
    valkey = "valkey_version" in info
    return ServerInfo(
        kind="Valkey" if valkey else "Redis",
        version=info.get("valkey_version" if valkey else "redis_version", "of unknown version"),
        appendonly=_appendonly(info, settings),
        appendfsync=settings["appendfsync"],
        rewrites_unsynced=_yes(settings["no-appendfsync-on-rewrite"]),
        snapshots=None if settings["save"] is None else bool(settings["save"]),
        writes_fail="err" in {info.get("aof_last_write_status"), info.get("rdb_last_bgsave_status")},
        maxmemory=_number(info.get("maxmemory")),
        used_memory=_number(info.get("used_memory")),
        policy=settings["maxmemory-policy"] or info.get("maxmemory_policy"),
        evicted=_number(info.get("evicted_keys")),
        role=info.get("role"),
        replicas=_number(info.get("connected_slaves")),
        min_replicas=_number(settings["min-replicas-to-write"]),
        cluster=info.get("cluster_enabled") == "1",
        clock_offset=offset,
        round_trip=round_trip,
    )


def capabilities_of(facts: ServerInfo, place: Place) -> Capabilities:
    """What this deployment can promise. What is unknown is not promised."""
    alone = place.service is None and not facts.fails_over
    durable = facts.appendonly is True and alone and not facts.evicts
    return Capabilities(
        durable=durable,
        durable_start=durable and facts.appendfsync == "always" and facts.rewrites_unsynced is False,
        shared=True,
        transactions=False,
        push=True,
        threads=True,
        pipelined=True,
    )


def _appendonly(info: dict[str, str], settings: dict[str, str | None]) -> bool | None:
    said = _yes(settings["appendonly"])
    if said is not None:
        return said
    enabled = info.get("aof_enabled")
    return None if enabled is None else enabled == "1"


def _yes(text: str | None) -> bool | None:
    return None if text is None else text == "yes"


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


async def _info(client: RedisClient) -> dict[str, str]:
    try:
        text: bytes = await client.command("INFO")
    except BackendUnavailable:
        raise
    except BackendError:
        return {}  # not allowed here: unknown
    lines = (line.partition(":") for line in text.decode(errors="replace").splitlines())
    return {name: value for name, colon, value in lines if colon}


async def _setting(client: RedisClient, name: str) -> str | None:
    try:
        found = await client.command("CONFIG", "GET", name)
    except BackendUnavailable:
        raise
    except BackendError:
        return None  # not allowed here: unknown
    return found[1].decode(errors="replace") if found else None


_OK, _WARNING, _PROBLEM = Severity.OK, Severity.WARNING, Severity.PROBLEM
_LARGE_OFFSET = 1.0
_NEARLY_FULL = 0.9
_REPLICAS_IN_SCRIPTS = (6, 2, 7)  # since then a script fails, too, when there are fewer replicas than asked for

_SURVIVES = "every acknowledged change survives the death of the server's process"
_ON_DISK = {
    "always": (_OK, "appendfsync always: every acknowledged change survives power loss, and waits for the disk"),
    "everysec": (_OK, f"appendfsync everysec: {_SURVIVES}; power loss may undo the last two seconds"),
    "no": (_WARNING, f"appendfsync no: {_SURVIVES}; power loss may undo half a minute. Use everysec"),
}
_HOW = {
    "empty": "it had forgotten everything",
    "behind": "it had forgotten its latest changes",
}


def findings(facts: ServerInfo, place: Place, incarnation: dict[str, str]) -> list[Finding]:
    """All of them, from the server to the promises."""
    return [
        Finding(_OK, "server", f"{facts.kind} {facts.version}{', a cluster' if facts.cluster else ''}"),
        _encryption(place),
        *_persistence(facts),
        _memory(facts),
        _replication(facts, place),
        _clock(facts),
        _incarnation(incarnation),
        _promises(facts, place),
    ]


def _encryption(place: Place) -> Finding:
    if place.tls is not None:
        if place.tls.verify == "full":
            return Finding(_OK, "encryption", "TLS; the server's certificate and name are verified")
        part = "its name is not" if place.tls.verify == "ca" else "nothing is"
        return Finding(_WARNING, "encryption", f"TLS, but of the server's proof {part} verified (ssl_verify)")
    if all(_is_loopback(host) for host, _ in place.addresses):
        return Finding(_OK, "encryption", "none, and the server is on this machine")
    return Finding(_WARNING, "encryption", "none: passwords and payloads cross the network in the clear; use rediss://")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _persistence(facts: ServerInfo) -> Iterator[Finding]:
    if facts.writes_fail:
        yield Finding(_PROBLEM, "disk", "the server could not write to its disk: look at its log, it may be full")
    if facts.appendonly is None:
        yield Finding(_WARNING, "persistence", "unknown: the server tells neither CONFIG nor INFO persistence")
    elif not facts.appendonly and facts.snapshots:
        yield Finding(
            _WARNING,
            "persistence",
            "snapshots only: a crash forgets everything since the last one. Set appendonly yes to keep what was"
            " acknowledged",
        )
    elif not facts.appendonly:
        kept = "nothing is kept on disk" if facts.snapshots is False else "appendonly no, snapshots unknown"
        yield Finding(_WARNING, "persistence", f"{kept}: a restart forgets everything. Set appendonly yes")
    elif facts.appendfsync == "always" and facts.rewrites_unsynced is not False:
        told = "unknown" if facts.rewrites_unsynced is None else "yes"
        yield Finding(
            _WARNING,
            "persistence",
            f"appendfsync always, but no-appendfsync-on-rewrite {told}: {_SURVIVES}; power loss while the server"
            " rewrites its file may undo half a minute. Set it to no",
        )
    elif facts.appendfsync in _ON_DISK:
        severity, message = _ON_DISK[facts.appendfsync]
        yield Finding(severity, "persistence", message)
    else:
        yield Finding(
            _WARNING,
            "persistence",
            "appendonly yes, appendfsync unknown (the server does not tell CONFIG): how much power loss may undo is"
            " unknown too",
        )


def _memory(facts: ServerInfo) -> Finding:
    if facts.maxmemory is None:
        return Finding(_WARNING, "memory", "unknown: check that maxmemory-policy is noeviction")
    used = f"{_in_words(facts.used_memory)} used, no limit"
    if facts.maxmemory:
        used = f"{_in_words(facts.used_memory)} of {_in_words(facts.maxmemory)} used"
    if facts.evicts:
        return _eviction(facts, f"{used}, maxmemory-policy {facts.policy or 'unknown'}")
    if facts.evicted:
        return Finding(
            _WARNING, "memory", f"{used}, noeviction, but {facts.evicted} keys were evicted since the server's start"
        )
    if facts.maxmemory and (facts.used_memory or 0) > _NEARLY_FULL * facts.maxmemory:
        return Finding(_WARNING, "memory", f"{used}: when it is full, no run can be added or settled")
    return Finding(_OK, "memory", f"{used}, noeviction" if facts.maxmemory else used)


def _eviction(facts: ServerInfo, told: str) -> Finding:
    if not facts.maxmemory and not facts.evicted:
        return Finding(
            _WARNING,
            "memory",
            f"{told}: as soon as a limit is set, the server deletes jobs and runs when it is full. Set noeviction",
        )
    so_far = f" ({facts.evicted} keys evicted since its start)" if facts.evicted else ""
    return Finding(
        _PROBLEM,
        "memory",
        f"{told}: the server deletes jobs and runs when it is full{so_far}. Set noeviction",
    )


def _replication(facts: ServerInfo, place: Place) -> Finding:
    if facts.role is None:
        return Finding(_WARNING, "replication", "unknown: the server does not tell INFO replication")
    if facts.role != "master":
        return Finding(_PROBLEM, "replication", "this server is a replica, it takes no writes: name the master")
    replicas = facts.replicas or 0
    if not replicas and place.service is None:
        return Finding(_OK, "replication", "none")
    known = f"{replicas} replica{'' if replicas == 1 else 's'} connected"
    if facts.min_replicas is None:
        return Finding(_WARNING, "replication", f"{known}, min-replicas-to-write unknown: at least 1 is advised")
    if facts.min_replicas == 0:
        return Finding(
            _WARNING,
            "replication",
            f"{known}, min-replicas-to-write 0: a master that was cut off goes on acknowledging changes, and they are"
            " lost when another takes over. Set it to 1, with min-replicas-max-lag",
        )
    known = f"{known}, min-replicas-to-write {facts.min_replicas}"
    if facts.kind == "Redis" and _numbers(facts.version) < _REPLICAS_IN_SCRIPTS:
        return Finding(
            _WARNING,
            "replication",
            f"{known}, which Redis {facts.version} does not apply to scripts, as all of Duly's changes are: a master"
            " that was cut off goes on acknowledging them. Use Redis 6.2.7 or newer",
        )
    return Finding(_OK, "replication", known)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))


def _clock(facts: ServerInfo) -> Finding:
    offset, trip = facts.clock_offset, facts.round_trip
    told = f"{abs(offset) * 1000:.0f} ms {'ahead of' if offset >= 0 else 'behind'} this machine's"
    if abs(offset) - trip > _LARGE_OFFSET:
        return Finding(
            _WARNING,
            "server clock",
            f"{told}: due times follow the server's clock, so set both by NTP",
        )
    return Finding(_OK, "server clock", f"{told} (round trip {trip * 1000:.1f} ms)")


def _incarnation(kept: dict[str, str]) -> Finding:
    number, lost = kept.get("number", "1"), kept.get("lost")
    if lost is None:
        return Finding(_OK, "incarnation", f"{number}: no loss of data was noticed")
    at = iso(datetime.fromtimestamp(int(lost), UTC))
    return Finding(
        _WARNING,
        "incarnation",
        f"{number}: at {at} a node noticed that {_HOW.get(kept.get('how', ''), 'data was lost')}. Fences went on above"
        " all that were seen",
    )


def _promises(facts: ServerInfo, place: Place) -> Finding:
    can = capabilities_of(facts, place)
    at_least = (
        "at_least_once holds"
        if can.durable
        else "at_least_once holds as long as the server keeps its data"
        if place.service is None and not facts.fails_over
        else "at_least_once holds but for changes that a failover loses"
    )
    at_most = (
        "at_most_once holds"
        if can.durable_start
        else "at_most_once is refused, since acknowledged changes may be lost (accept_data_loss=True allows it)"
    )
    return Finding(_OK, "promises", f"{at_least}; {at_most}; exactly_once is refused: there are no transactions")


def _in_words(size: int | None) -> str:
    if size is None:
        return "unknown"
    value = float(size)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
