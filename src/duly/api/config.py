"""The settings of the API, and the objects that all calls share."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from duly.api.event_tail import EventTail
from duly.api.paging import CursorKeys
from duly.api.permissions import Principal
from duly.api.rates import Limits
from duly.api.threads import RequestThreads
from duly.api.visibility import outside
from duly.errors import BackendUnavailable, ConfigurationError, DulyError
from duly.model import Node
from duly.observe.metrics import MetricsRecorder
from duly.ports import Store, SystemClock
from duly.rules.cluster_settings import InForce
from duly.scheduler import Scheduler
from duly.scheduler.audit_check import Deed, Recorded
from duly.scheduler.client import Client
from duly.scheduler.event_reader import EventReader
from duly.scheduler.known_names import is_known_handler, no_such_handler
from duly.scheduler.submitting import LONGEST_UNIQUE


def _check_ranges(settings: Struct, ranges: Mapping[str, tuple[float, float]]) -> None:
    for name, (least, most) in ranges.items():
        value = getattr(settings, name)
        if not least <= value <= most:
            raise ConfigurationError(f"{name}={value!r}: expected a number from {least} to {most}")


class ApiSettings(Struct, frozen=True):
    """The settings of the API.

    `authentication` is "token", or "none" for callers on the same machine only. `instance_id` is the name of this
    process if no node runs in it; `process` is its number if several processes serve one port. `max_streams` limits the
    streams of events at a time, `max_streams_per_token` those of one token. `unique_for` is how many seconds a
    submission with a dedupe key is unique, unless it says so itself; None means until its run has ended.
    """

    authentication: str = "token"
    max_body_bytes: int = 1 << 20
    instance_id: str | None = None
    process: int | None = None
    limits: Limits = Limits()
    max_streams: int = 100
    max_streams_per_token: int = 10
    unique_for: float | None = 86400.0

    def __post_init__(self) -> None:
        if self.authentication not in {"token", "none"}:
            raise ConfigurationError(f"authentication={self.authentication!r}: expected token or none")
        ranges = {
            "max_body_bytes": (1024, 1 << 30),
            "max_streams": (0, 100_000),
            "max_streams_per_token": (1, 100_000),
        }
        _check_ranges(self, ranges)
        if self.unique_for is not None and not 0 < self.unique_for <= LONGEST_UNIQUE:
            raise ConfigurationError(
                f"unique_for={self.unique_for!r}: expected None, or seconds from 0 to {LONGEST_UNIQUE:.0f}"
            )


class ConnectionLimits(Struct, frozen=True):
    """What one client may use of a server. Times are in seconds.

    `max_header_bytes` is for the whole head of a request, `max_request_line` for its first line. The head must arrive
    within `header_timeout`, the body within `body_timeout` after it. A connection without a request is closed after
    `idle_timeout`, or earlier if `max_connections` are open and another one comes.
    """

    max_connections: int = 1000
    max_header_bytes: int = 32_768
    max_request_line: int = 8192
    max_headers: int = 100
    header_timeout: float = 10.0
    body_timeout: float = 30.0
    idle_timeout: float = 75.0  # longer than the load balancers of the clouds, which close first

    def __post_init__(self) -> None:
        ranges = {
            "max_connections": (1, 1_000_000),
            "max_header_bytes": (1024, 1 << 24),
            "max_request_line": (256, 1 << 20),
            "max_headers": (8, 10_000),
            "header_timeout": (0.1, 3600),
            "body_timeout": (0.1, 3600),
            "idle_timeout": (0.1, 86_400),
        }
        _check_ranges(self, ranges)


class ApiContext:
    """The objects that calls share. Belongs to one event loop. `draining` is set when this process begins to stop."""

    def __init__(self, scheduler: Scheduler, settings: ApiSettings, meters: MetricsRecorder) -> None:
        self.scheduler = scheduler
        self.settings = settings
        self._limits = settings.limits
        self._limits_of: InForce | None = None
        self.meters = meters
        self.draining = False
        self._local = SystemClock()
        self.instance_id = _instance_id(settings, scheduler.config.node_id)
        self.tail = EventTail(self._event_reader, settings.max_streams, settings.max_streams_per_token)
        self.threads = RequestThreads()
        self.cursor_keys = CursorKeys(self.store, self._local.monotonic)

    async def now(self) -> datetime:
        """The store's time; this machine's, as long as the store has never been reached."""
        try:
            return (await self.client()).clock.now()
        except DulyError:
            return self._local.now()

    def drain(self) -> None:
        """Begin to stop: this process is no longer ready, and its streams end."""
        self.draining = True
        self.tail.close()
        self.threads.close()

    def role(self) -> str:
        """The roles of the node in this process, or "api" if there is none."""
        return "+".join(self.scheduler.config.roles) if self.scheduler.is_running else "api"

    async def client(self) -> Client:
        """The scheduler as a client of its store, which is opened on first use; it follows the cluster's settings."""
        client = await self.scheduler.opened()
        client.follow_settings()
        return client

    def limits(self, client: Client) -> Limits:
        """The rate limits in force: the cluster's settings over those of this process."""
        in_force = client.live.in_force
        if in_force is not self._limits_of:
            self._limits_of, self._limits = in_force, self.settings.limits.under(in_force)
        return self._limits

    async def store(self) -> Store:
        return (await self.client()).backend.store

    async def nodes(self) -> list[Node]:
        """The live nodes; none while the coordinator is away, which `/health` reports."""
        try:
            return await (await self.client()).backend.coordinator.nodes()
        except BackendUnavailable as exc:
            if exc.part == "store":
                raise
            return []

    async def _event_reader(self) -> EventReader:
        return EventReader(await self.store())

    async def record_each(self, actor: str, actions: Sequence[tuple[str, str, object, object]]) -> None:
        """Append entries to the audit log: action, target, before, after."""
        if actions:
            now = await self.now()
            await (await self.client()).audit.record_each(
                [Deed(actor, action, target, now, before, after) for action, target, before, after in actions]
            )

    async def audit_entries(self, after: int, limit: int) -> list[Recorded]:
        """Entries of the audit log."""
        return await (await self.client()).audit.read(after, limit)

    async def handler(self, name: str | None, client: Client, principal: Principal, *, force: bool = False) -> str:
        """The name of a registered handler: the given one, or the default handler. `force` accepts any name."""
        chosen = name or self.scheduler.config.default_handler
        if chosen is None:
            raise ConfigurationError("handler: name one, because the server has no default_handler")
        if force or client.knows(chosen) or await is_known_handler(client, chosen):
            return chosen
        if principal.limited:
            raise outside(chosen)
        raise ConfigurationError(await no_such_handler(client, chosen))


def _instance_id(settings: ApiSettings, node_id: str | None) -> str:
    given = settings.instance_id or node_id
    if given is None:
        return f"{socket.gethostname()}-{os.getpid()}-api"
    return given if settings.process is None else f"{given}-{settings.process}"
