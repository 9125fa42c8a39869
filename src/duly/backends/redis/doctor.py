"""The configuration of the server: what it says about it, what Duly can promise there, and the doctor's findings.

Managed servers often forbid CONFIG. Then INFO shows part of the configuration, and the rest is unknown; what is
unknown is not promised.
"""

from __future__ import annotations

import asyncio
import re
import time
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from duly.backends.redis.client import RedisClient
from duly.backends.redis.settings import ConnectionSettings
from duly.errors import BackendError, BackendUnavailable
from duly.model import iso
from duly.ports import Capabilities, Finding, Severity
from duly.rules.sizes import in_words

SETTINGS = (
    "appendonly",
    "appendfsync",
    "no-appendfsync-on-rewrite",
    "save",
    "maxmemory-policy",
    "min-replicas-to-write",
)
# Before the server has been asked, nothing is promised.
UNKNOWN = Capabilities(
    durable=False,
    durable_start=False,
    shared=True,
    transactions=False,
    push=True,
    threads=True,
    pipelined=True,
    reads_ahead=True,
)


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
        """Whether another server may take over that lacks some changes."""
        return self.cluster or bool(self.replicas)

    @property
    def evicts(self) -> bool:
        """Whether the server may delete keys when its memory is full; an unknown policy may.

        Only the policy counts: without a limit nothing is evicted, but `CONFIG SET maxmemory` can set one at any time.
        A policy that evicts only keys with a time to live counts too, because such a key (`request:<node>`) makes it
        safe to repeat a claim.
        """
        return self.policy != "noeviction"


async def read_server_info(client: RedisClient) -> ServerInfo:
    """Ask the server, in one round trip."""
    sent, wall = time.monotonic(), time.time()
    moment, info, *settings = await asyncio.gather(
        client.command("TIME"), _info(client), *(_setting(client, name) for name in SETTINGS)
    )
    round_trip = time.monotonic() - sent
    offset = int(moment[0]) + int(moment[1]) / 1e6 - (wall + round_trip / 2)
    return server_info_of(info, dict(zip(SETTINGS, settings, strict=True)), offset, round_trip)


async def _info(client: RedisClient) -> dict[str, str]:
    text = (await _answer(client, "INFO") or b"").decode(errors="replace")
    lines = (line.partition(":") for line in text.splitlines())
    return {name: value for name, colon, value in lines if colon}


async def _setting(client: RedisClient, name: str) -> str | None:
    found = await _answer(client, "CONFIG", "GET", name)
    return found[1].decode(errors="replace") if found else None


async def _answer(client: RedisClient, *words: str) -> Any:
    """The reply; None if this user may not send the command."""
    try:
        return await client.command(*words)
    except BackendUnavailable:
        raise
    except BackendError:
        return None


def server_info_of(
    info: dict[str, str], settings: dict[str, str | None], offset: float, round_trip: float
) -> ServerInfo:
    """Combine what INFO and CONFIG say."""
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


def _appendonly(info: dict[str, str], settings: dict[str, str | None]) -> bool | None:
    configured = _yes(settings["appendonly"])
    if configured is not None:
        return configured
    enabled = info.get("aof_enabled")
    return None if enabled is None else enabled == "1"


def _yes(text: str | None) -> bool | None:
    return None if text is None else text == "yes"


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def capabilities_of(info: ServerInfo, settings: ConnectionSettings) -> Capabilities:
    """What this deployment can promise.

    Where another server may take over, only what its replicas have confirmed is kept.
    """
    single = settings.service is None and not info.fails_over
    durable = info.appendonly is True and (single or settings.replicas > 0) and not info.evicts
    synced = info.appendfsync == "always" and info.rewrites_unsynced is False
    return replace(UNKNOWN, durable=durable, durable_start=durable and synced)


# --- findings

_OK, _WARNING, _PROBLEM = Severity.OK, Severity.WARNING, Severity.PROBLEM
_LARGE_OFFSET = 1.0
_NEARLY_FULL = 0.9
_REPLICAS_IN_SCRIPTS = (6, 2, 7)  # since then a script fails, too, when there are fewer replicas than required

_SURVIVES = "every acknowledged change survives the death of the server's process"
_FSYNC = {
    "always": (_OK, "appendfsync always: every acknowledged change survives power loss, and waits for the disk"),
    "everysec": (_OK, f"appendfsync everysec: {_SURVIVES}; power loss may undo the last two seconds"),
    "no": (_WARNING, f"appendfsync no: {_SURVIVES}; power loss may undo half a minute. Use everysec"),
}
_LOSSES = {
    "empty": "it had forgotten everything",
    "behind": "it had forgotten its latest changes",
}

_Finding = tuple[Severity, str]


def findings(info: ServerInfo, settings: ConnectionSettings, incarnation: dict[str, str]) -> list[Finding]:
    """All findings. `incarnation` is the stored record of that name."""
    found = {
        "server": (_OK, f"{info.kind} {info.version}{', a cluster' if info.cluster else ''}"),
        "encryption": _encryption(settings),
        "persistence": _persistence(info),
        "memory": _memory(info),
        "replication": _replication(info, settings),
        "server clock": _clock(info),
        "incarnation": _incarnation(incarnation),
        "promises": _promises(info, settings),
    }
    if info.writes_fail:
        found["disk"] = _PROBLEM, "the server could not write to its disk: read its log, the disk may be full"
    return [Finding(severity, subject, message) for subject, (severity, message) in found.items()]


def _encryption(settings: ConnectionSettings) -> _Finding:
    if settings.tls is not None:
        if settings.tls.verify == "full":
            return _OK, "TLS; the server's certificate and name are verified"
        part = "the server's name is not" if settings.tls.verify == "ca" else "the server's certificate is not"
        return _WARNING, f"TLS, but {part} verified (ssl_verify)"
    if all(_is_local(host) for host, _ in settings.addresses):
        return _OK, "none, and the server is on this machine"
    return _WARNING, "none: passwords and payloads cross the network in the clear; use rediss://"


def _is_local(host: str) -> bool:
    try:
        return host == "localhost" or host.startswith("/") or ip_address(host).is_loopback
    except ValueError:
        return False


def _persistence(info: ServerInfo) -> _Finding:
    if info.appendonly is None:
        return _WARNING, "unknown: the server allows neither CONFIG nor INFO persistence"
    if not info.appendonly and info.snapshots:
        lost = "a crash loses everything since the last one. Set appendonly yes to keep what was acknowledged"
        return _WARNING, f"snapshots only: {lost}"
    if not info.appendonly:
        kept = "nothing is kept on disk" if info.snapshots is False else "appendonly no, snapshots unknown"
        return _WARNING, f"{kept}: a restart loses everything. Set appendonly yes"
    if info.appendfsync == "always" and info.rewrites_unsynced is not False:
        setting = f"no-appendfsync-on-rewrite {'unknown' if info.rewrites_unsynced is None else 'yes'}"
        lost = "power loss while the server rewrites its file may undo half a minute. Set it to no"
        return _WARNING, f"appendfsync always, but {setting}: {_SURVIVES}; {lost}"
    unknown = "appendonly yes, appendfsync unknown (the server forbids CONFIG): power loss may undo an unknown time"
    return _FSYNC.get(info.appendfsync or "", (_WARNING, unknown))


def _memory(info: ServerInfo) -> _Finding:
    if info.maxmemory is None:
        return _WARNING, "unknown: check that maxmemory-policy is noeviction"
    limit = f" of {in_words(info.maxmemory)} used" if info.maxmemory else " used, no limit"
    used = ("unknown" if info.used_memory is None else in_words(info.used_memory)) + limit
    if info.evicts:
        return _eviction(info, f"{used}, maxmemory-policy {info.policy or 'unknown'}")
    if info.evicted:
        return _WARNING, f"{used}, noeviction, but {info.evicted} keys were evicted since the server's start"
    if info.maxmemory and (info.used_memory or 0) > _NEARLY_FULL * info.maxmemory:
        return _WARNING, f"{used}: when it is full, no run can be added or settled"
    return _OK, f"{used}, noeviction" if info.maxmemory else used


def _eviction(info: ServerInfo, state: str) -> _Finding:
    deletes = "the server deletes jobs and runs when it is full"
    if not info.maxmemory and not info.evicted:
        return _WARNING, f"{state}: as soon as a limit is set, {deletes}. Set noeviction"
    so_far = f" ({info.evicted} keys evicted since its start)" if info.evicted else ""
    return _PROBLEM, f"{state}: {deletes}{so_far}. Set noeviction"


def _replication(info: ServerInfo, settings: ConnectionSettings) -> _Finding:
    if info.role is None:
        return _WARNING, "unknown: the server does not allow INFO replication"
    if info.role != "master":
        return _PROBLEM, "this server is a replica, it takes no writes: name the master"
    replicas = info.replicas or 0
    if settings.replicas > replicas:
        state = f"{replicas} connected, but the URL asks for replicas={settings.replicas}"
        return _PROBLEM, f"{state}: no change counts as stored until there are enough"
    if settings.replicas:
        return _OK, f"{replicas} connected; a change counts as stored when all of them have it"
    if not replicas and settings.service is None:
        return _OK, "none"
    state = f"{replicas} replica{'' if replicas == 1 else 's'} connected, min-replicas-to-write"
    if info.min_replicas is None:
        return _WARNING, f"{state} unknown: at least 1 is advised"
    lost = "a master that was cut off goes on acknowledging changes, and they are lost when another takes over"
    if info.min_replicas == 0:
        return _WARNING, f"{state} 0: {lost}. Set it to 1, with min-replicas-max-lag, or add replicas=1 to the URL"
    state = f"{state} {info.min_replicas}"
    if info.kind == "Redis" and _version(info.version) < _REPLICAS_IN_SCRIPTS:
        ignored = f"which Redis {info.version} does not apply to scripts, and all of Duly's changes are scripts"
        return _WARNING, f"{state}, {ignored}: {lost}. Use Redis 6.2.7 or newer"
    return _OK, state


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text))


def _clock(info: ServerInfo) -> _Finding:
    offset, trip = info.clock_offset, info.round_trip
    state = f"{abs(offset) * 1000:.0f} ms {'ahead of' if offset >= 0 else 'behind'} this machine's"
    if abs(offset) - trip > _LARGE_OFFSET:
        return _WARNING, f"{state}: due times follow the server's clock, so synchronise both by NTP"
    return _OK, f"{state} (round trip {trip * 1000:.1f} ms)"


def _incarnation(stored: dict[str, str]) -> _Finding:
    number, lost = stored.get("number", "1"), stored.get("lost")
    if lost is None:
        return _OK, f"{number}: no loss of data was noticed"
    at = iso(datetime.fromtimestamp(int(lost), UTC))
    loss = _LOSSES.get(stored.get("how", ""), "data was lost")
    return _WARNING, f"{number}: at {at} a node noticed that {loss}. Later fences are above all that nodes had seen"


def _promises(info: ServerInfo, settings: ConnectionSettings) -> _Finding:
    can = capabilities_of(info, settings)
    at_least = "at_least_once holds"
    if (settings.service is not None or info.fails_over) and not settings.replicas:
        at_least += " but for changes that a failover loses"
    elif not can.durable:
        at_least += " as long as the server keeps its data"
    at_most = (
        "at_most_once holds"
        if can.durable_start
        else "at_most_once is refused, since acknowledged changes may be lost (accept_data_loss=True allows it)"
    )
    return _OK, f"{at_least}; {at_most}; exactly_once is refused: there are no transactions"
