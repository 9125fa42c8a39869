"""A session at an etcd cluster that coordinates, for a backend that keeps its runs elsewhere."""

from __future__ import annotations

from typing import Self

from msgspec.structs import replace

from duly.backends.etcd.coordinator import EtcdCoordinator
from duly.backends.etcd.gateway import Gateway
from duly.backends.etcd.messages import Members, Status
from duly.backends.etcd.settings import ConnectionSettings, parse
from duly.backends.url_parts import checked_namespace
from duly.ports import Clock, Coordinator, Finding, Opening, Severity

_FEW = 3


class EtcdSession:
    """Has separate connections, from `open` to `close`. Constructing one does no I/O."""

    coordinator: Coordinator

    def __init__(self, settings: ConnectionSettings, namespace: str, clock: Clock) -> None:
        self.url = settings.safe_url
        self._settings = settings
        self._namespace = checked_namespace(namespace, "etcd")
        self._clock = clock
        self._gateway = Gateway(settings)
        self.coordinator = EtcdCoordinator(self._gateway, f"duly/{namespace}/", clock)

    async def open(self) -> None:
        await self._gateway.open()

    async def close(self) -> None:
        await self._gateway.close()

    def session(self, timeout: float | None = None) -> Self:
        settings = self._settings
        if timeout is not None:
            settings = replace(settings, timeout=min(timeout, settings.timeout))
        return type(self)(settings, self._namespace, self._clock)

    async def examine(self) -> list[Finding]:
        status = await self._gateway.call("maintenance/status", {}, Status)
        members = await self._gateway.call("cluster/member/list", {}, Members)
        return findings(status, len(members.members), self._settings)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r}, namespace={self._namespace!r})"

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


def findings(status: Status, members: int, settings: ConnectionSettings) -> list[Finding]:
    """What an operator should know about the cluster as it is configured."""
    found = [(Severity.OK, f"etcd {status.version}, {members} members")]
    if members < _FEW:
        found.append((Severity.WARNING, f"etcd has {members} members: none may fail; three allow for one failure"))
    if len(settings.hosts) < min(members, _FEW):
        named = f"the URL names {len(settings.hosts)} of etcd's {members} members"
        found.append((Severity.WARNING, f"{named}: the others are not used"))
    if settings.tls is None and settings.login is not None:
        found.append((Severity.WARNING, "the password for etcd travels in clear: use etcds://"))
    if status.leader == 0:
        found.append((Severity.PROBLEM, "this member of etcd has no leader"))
    found += [(Severity.PROBLEM, f"etcd reports: {error}") for error in status.errors]
    return [Finding(severity, "coordinator", message) for severity, message in found]


def open_url(url: str, opening: Opening) -> EtcdSession:
    """`etcd://` and `etcds://`; see docs/etcd.md. etcd's own clock decides about leases."""
    return EtcdSession(parse(url), opening.namespace, opening.clock)
