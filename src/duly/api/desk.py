"""The desk: what all calls share, the scheduler first of all."""

from __future__ import annotations

import os
import socket
from datetime import datetime

from msgspec import Struct

from duly.api.rates import Limits
from duly.api.tail import Tail
from duly.errors import ConfigurationError
from duly.observe.meters import Meters
from duly.ports import SystemClock
from duly.scheduler import Scheduler
from duly.scheduler.audit import Audit, Recorded
from duly.scheduler.client import Client
from duly.scheduler.published import Published
from duly.scheduler.submitting import LONGEST_UNIQUE

MAX_BODY = 1 << 20
MAX_STREAMS = 100
UNIQUE_FOR = 86400.0


class ApiSettings(Struct, frozen=True):
    """How the API behaves.

    `authentication` is "token", or "none", which only callers on the same machine should ever meet. `instance_id` is
    what this process is called where no node runs in it. `max_streams` is how many may follow events at a time.
    `unique_for` is for how many seconds a submission is unique that has a dedupe key and does not say so itself; None
    is for as long as its run is unfinished.
    """

    authentication: str = "token"
    max_body_bytes: int = MAX_BODY
    instance_id: str | None = None
    limits: Limits = Limits()
    max_streams: int = MAX_STREAMS
    unique_for: float | None = UNIQUE_FOR

    def __post_init__(self) -> None:
        if self.authentication not in {"token", "none"}:
            raise ConfigurationError(f"authentication={self.authentication!r}: token or none is needed")
        if not 1024 <= self.max_body_bytes <= 1 << 30:
            raise ConfigurationError(f"max_body_bytes={self.max_body_bytes!r}: from 1024 to {1 << 30} is needed")
        if not 0 <= self.max_streams <= 100_000:
            raise ConfigurationError(f"max_streams={self.max_streams!r}: from 0 to 100000 is needed")
        if self.unique_for is not None and not 0 < self.unique_for <= LONGEST_UNIQUE:
            raise ConfigurationError(
                f"unique_for={self.unique_for!r}: None, or seconds from 0 to {LONGEST_UNIQUE:.0f} are needed"
            )


class Desk:
    """Belongs to one event loop. `draining` is set when this process begins to stop."""

    def __init__(self, scheduler: Scheduler, settings: ApiSettings, meters: Meters) -> None:
        self.scheduler = scheduler
        self.settings = settings
        self.meters = meters
        self.draining = False
        self._clock = SystemClock()
        self.instance_id = (
            settings.instance_id or scheduler.config.node_id or f"{socket.gethostname()}-{os.getpid()}-api"
        )
        self.tail = Tail(self._published, settings.max_streams)
        self._audit: tuple[Client, Audit] | None = None

    def now(self) -> datetime:
        return self._clock.now()

    def drain(self) -> None:
        """This process is about to stop: it is no longer ready, and whoever follows events shall do so elsewhere."""
        self.draining = True
        self.tail.close()

    def role(self) -> str:
        """What this process is: a node's roles, or the API alone."""
        return "+".join(self.scheduler.config.roles) if self.scheduler.is_running else "api"

    async def client(self) -> Client:
        """The store, opened if need be."""
        return await self.scheduler.opened()

    async def _published(self) -> Published:
        return Published((await self.client()).backend.store)

    async def _log(self) -> Audit:
        client = await self.client()
        if self._audit is None or self._audit[0] is not client:
            self._audit = (client, Audit(client.backend.store))
        return self._audit[1]

    async def record(self, actor: str, action: str, target: str, before: object, after: object) -> None:
        """Append to the audit log."""
        await (await self._log()).record(actor, action, target, self.now(), before, after)

    async def deeds(self, after: int, limit: int) -> list[Recorded]:
        """Entries of the audit log."""
        return await (await self._log()).read(after, limit)

    async def handler(self, name: str | None, client: Client) -> str:
        """The handler that is meant: a name that somebody registered, else the default one."""
        chosen = name or self.scheduler.config.default_handler
        if chosen is None:
            raise ConfigurationError("handler: which one? The server has no default_handler, so name one")
        if client.knows(chosen) or await _is_known(chosen, client):
            return chosen
        raise ConfigurationError(f"handler={chosen!r}: no such handler is registered; {_known_ones(client)}")


async def _is_known(name: str, client: Client) -> bool:
    """Whether a job in the store or a live node has that name. Names are looked up, never imported."""
    if await client.backend.store.job(name) is not None:
        return True
    return any(name in node.handlers for node in await client.backend.coordinator.nodes())


def _known_ones(client: Client) -> str:
    names = sorted(client.handlers())
    return f"registered here are {', '.join(names[:20])}" if names else "this server has none of its own"
