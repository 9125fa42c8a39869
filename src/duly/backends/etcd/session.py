"""A seat at an etcd cluster: one session that coordinates, for a backend that keeps its runs elsewhere."""

from __future__ import annotations

from typing import Self

from msgspec.structs import replace

from duly.backends.etcd.coordinator import EtcdCoordinator
from duly.backends.etcd.gateway import Gateway
from duly.backends.etcd.messages import Members, Status
from duly.backends.etcd.url import Place, parse, prefix_of
from duly.ports import Clock, Coordinator, Finding, Opening, Severity

_FEW = 3


class EtcdSession:
    """Connections of its own, from `open` to `close`. Constructing one does no I/O."""

    coordinator: Coordinator

    def __init__(self, place: Place, namespace: str, clock: Clock) -> None:
        self.url = place.shown
        self._place = place
        self._namespace = namespace
        self._clock = clock
        self._gateway = Gateway(place)
        self.coordinator = EtcdCoordinator(self._gateway, prefix_of(namespace), clock)

    async def open(self) -> None:
        await self._gateway.open()

    async def close(self) -> None:
        await self._gateway.close()

    def session(self, timeout: float | None = None) -> Self:
        place = self._place if timeout is None else replace(self._place, timeout=min(timeout, self._place.timeout))
        return type(self)(place, self._namespace, self._clock)

    async def examine(self) -> list[Finding]:
        status = await self._gateway.call("maintenance/status", {}, Status)
        members = await self._gateway.call("cluster/member/list", {}, Members)
        return findings(status, len(members.members), self._place)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r}, namespace={self._namespace!r})"

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


def findings(status: Status, members: int, place: Place) -> list[Finding]:
    """What an operator should know about the cluster as it is configured."""
    found = [Finding(Severity.OK, "coordinator", f"etcd {status.version}, {members} members")]
    if members < _FEW:
        found.append(
            Finding(Severity.WARNING, "coordinator", f"{members} of etcd's members: none may fail; three allow for one")
        )
    if len(place.hosts) < min(members, _FEW):
        found.append(
            Finding(
                Severity.WARNING,
                "coordinator",
                f"the URL names {len(place.hosts)} of etcd's {members} members: others are never found",
            )
        )
    if place.tls is None and place.login is not None:
        found.append(Finding(Severity.WARNING, "coordinator", "the password for etcd travels in clear: use etcds://"))
    if status.leader == 0:
        found.append(Finding(Severity.PROBLEM, "coordinator", "this member of etcd has no leader"))
    return found + [Finding(Severity.PROBLEM, "coordinator", f"etcd says: {error}") for error in status.errors]


def open_url(url: str, opening: Opening) -> EtcdSession:
    """`etcd://` and `etcds://`; see docs/etcd.md. etcd's own clock decides about leases."""
    place = parse(url)
    return EtcdSession(place, opening.namespace, opening.clock)
