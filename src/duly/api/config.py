"""What all calls of the API share: the scheduler, settings, metrics and the tail of events."""

from __future__ import annotations

import os
import socket
from datetime import datetime

from msgspec import Struct

from duly.api.computing import Computing
from duly.api.event_tail import EventTail
from duly.api.permissions import Principal
from duly.api.rates import Limits
from duly.api.sealing import Seals
from duly.api.visibility import outside
from duly.errors import BackendUnavailable, ConfigurationError, DulyError
from duly.model import Node
from duly.observe.metrics import MetricsRecorder
from duly.ports import Store, SystemClock
from duly.rules.cluster_settings import InForce
from duly.scheduler import Scheduler
from duly.scheduler.audit_check import Recorded
from duly.scheduler.client import Client
from duly.scheduler.event_reader import EventReader
from duly.scheduler.submitting import LONGEST_UNIQUE

MAX_BODY = 1 << 20
MAX_STREAMS = 100
MAX_STREAMS_PER_TOKEN = 10
UNIQUE_FOR = 86400.0


class ApiSettings(Struct, frozen=True):
    """How the API behaves.

    `authentication` is "token", or "none", which only callers on the same machine should ever meet. `instance_id` is
    what this process is called where no node runs in it. `max_streams` is how many may follow events at a time,
    `max_streams_per_token` how many of them with one token. `unique_for` is for how many
    seconds a submission is unique that has a dedupe key and does not say so itself; None is for as long as its run is
    unfinished.
    """

    authentication: str = "token"
    max_body_bytes: int = MAX_BODY
    instance_id: str | None = None
    limits: Limits = Limits()
    max_streams: int = MAX_STREAMS
    max_streams_per_token: int = MAX_STREAMS_PER_TOKEN
    unique_for: float | None = UNIQUE_FOR

    def __post_init__(self) -> None:
        if self.authentication not in {"token", "none"}:
            raise ConfigurationError(f"authentication={self.authentication!r}: token or none is needed")
        if not 1024 <= self.max_body_bytes <= 1 << 30:
            raise ConfigurationError(f"max_body_bytes={self.max_body_bytes!r}: from 1024 to {1 << 30} is needed")
        if not 0 <= self.max_streams <= 100_000:
            raise ConfigurationError(f"max_streams={self.max_streams!r}: from 0 to 100000 is needed")
        if not 1 <= self.max_streams_per_token <= 100_000:
            given = self.max_streams_per_token
            raise ConfigurationError(f"max_streams_per_token={given!r}: expected a number from 1 to 100000")
        if self.unique_for is not None and not 0 < self.unique_for <= LONGEST_UNIQUE:
            raise ConfigurationError(
                f"unique_for={self.unique_for!r}: None, or seconds from 0 to {LONGEST_UNIQUE:.0f} are needed"
            )


class ApiContext:
    """Belongs to one event loop. `draining` is set when this process begins to stop."""

    def __init__(self, scheduler: Scheduler, settings: ApiSettings, meters: MetricsRecorder) -> None:
        self.scheduler = scheduler
        self.settings = settings
        self.meters = meters
        self.draining = False
        self._local = SystemClock()
        self.instance_id = (
            settings.instance_id or scheduler.config.node_id or f"{socket.gethostname()}-{os.getpid()}-api"
        )
        self.tail = EventTail(self._published, settings.max_streams, settings.max_streams_per_token)
        self.computing = Computing()
        self._limits = settings.limits
        self._limits_of: InForce | None = None
        self.seals = Seals(self._store, self._local.monotonic)

    async def now(self) -> datetime:
        """The store's time; while that has never been reached, this machine's."""
        try:
            return (await self.client()).clock.now()
        except DulyError:
            return self._local.now()

    def drain(self) -> None:
        """This process is about to stop: it is no longer ready, and whoever follows events shall do so elsewhere."""
        self.draining = True
        self.tail.close()
        self.computing.close()

    def role(self) -> str:
        """What this process is: a node's roles, or the API alone."""
        return "+".join(self.scheduler.config.roles) if self.scheduler.is_running else "api"

    async def client(self) -> Client:
        """The store, opened if need be. From then on this process follows the cluster's settings."""
        client = await self.scheduler.opened()
        client.follow_settings()
        return client

    async def limits(self) -> Limits:
        """The rate limits in force: the cluster's settings over those of this process."""
        live = (await self.client()).live
        if live.in_force is not self._limits_of:
            self._limits_of, self._limits = live.in_force, self.settings.limits.under(live.in_force)
        return self._limits

    async def nodes(self) -> list[Node]:
        """The nodes that are known to live: none while the coordinator is away, which health tells."""
        try:
            return await (await self.client()).backend.coordinator.nodes()
        except BackendUnavailable as exc:
            if exc.part == "store":
                raise
            return []

    async def _store(self) -> Store:
        return (await self.client()).backend.store

    async def _published(self) -> EventReader:
        return EventReader((await self.client()).backend.store)

    async def record(self, actor: str, action: str, target: str, before: object, after: object) -> None:
        """Append to the audit log."""
        await (await self.client()).audit.record(actor, action, target, await self.now(), before, after)

    async def deeds(self, after: int, limit: int) -> list[Recorded]:
        """Entries of the audit log."""
        return await (await self.client()).audit.read(after, limit)

    async def handler(self, name: str | None, client: Client, principal: Principal) -> str:
        """The handler that is meant: a name that somebody registered, else the default one."""
        chosen = name or self.scheduler.config.default_handler
        if chosen is None:
            raise ConfigurationError("handler: which one? The server has no default_handler, so name one")
        if client.knows(chosen) or await _is_known(chosen, client):
            return chosen
        if principal.limited:
            raise outside(chosen)
        raise ConfigurationError(f"handler={chosen!r}: no such handler is registered; {_known_ones(client)}")


async def _is_known(name: str, client: Client) -> bool:
    """Whether a job in the store or a live node has that name. Names are looked up, never imported."""
    if await client.backend.store.job(name) is not None:
        return True
    return any(name in node.handlers for node in await client.backend.coordinator.nodes())


def _known_ones(client: Client) -> str:
    names = sorted(client.handlers())
    return f"registered here are {', '.join(names[:20])}" if names else "this server has none of its own"
