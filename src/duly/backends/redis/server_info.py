"""Facts about the server as it is configured, asked for in one round trip, and what follows from them for promises.

Managed servers often forbid CONFIG; then INFO says what it can, and the rest is unknown, which promises nothing.
"""

from __future__ import annotations

import asyncio
import time

from msgspec import Struct

from duly.backends.redis.client import RedisClient
from duly.backends.redis.url import Place
from duly.errors import BackendError, BackendUnavailable
from duly.ports import Capabilities

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
