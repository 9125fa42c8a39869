"""The server: an API on a port, beside a node or alone. Needs the extra `server`.

The port is taken before anything else happens, and given back last: while a node drains it still answers, and says that
it is not ready. Off loopback nothing is served without tokens.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime

from msgspec import Struct

from duly.api import tokens as access
from duly.api.addresses import Address, bind, bound_to
from duly.api.app import Api
from duly.api.config import MAX_BODY, MAX_STREAMS, MAX_STREAMS_PER_TOKEN, UNIQUE_FOR, ApiSettings
from duly.api.connections import ConnectionLimits
from duly.api.http import HttpServer
from duly.api.rates import Limits
from duly.api.routes import ROUTES, VITALS
from duly.api.tls import server_context
from duly.errors import ConfigurationError
from duly.observe.metrics import watch_loop
from duly.ports import Store
from duly.scheduler import Scheduler
from duly.scheduler.signals import Deadline, Reload, Signals, Signs
from duly.scheduler.views import ShutdownReport

_log = logging.getLogger("duly.api")
_AT_THE_END = 0.6  # seconds before the process exits, when calls under way are waited for no longer
_LOOK_AGAIN = 0.1


class Serving(Struct, frozen=True):
    """What a process serves: where, to whom, and whether the whole API or only health and metrics."""

    address: Address
    authentication: str = "token"
    vitals_only: bool = False
    max_body_bytes: int = MAX_BODY
    tls_cert: str | None = None
    tls_key: str | None = None
    limits: Limits = Limits()
    connections: ConnectionLimits = ConnectionLimits()
    max_streams: int = MAX_STREAMS
    max_streams_per_token: int = MAX_STREAMS_PER_TOKEN
    unique_for: float | None = UNIQUE_FOR

    def __post_init__(self) -> None:
        if self.authentication == "none" and not self.address.loopback:
            raise ConfigurationError(
                f"{self.address} can be reached from other machines: authentication cannot be none there;"
                f" make a token with `duly token create`, or listen on 127.0.0.1:{self.address.port}"
            )
        if (self.tls_cert is None) is not (self.tls_key is None):
            raise ConfigurationError("TLS needs both a certificate and its key: give tls_cert and tls_key")

    def tls(self) -> ssl.SSLContext | None:
        """What HTTPS is served with, None for plain HTTP. Files that cannot be used are named."""
        if self.tls_cert is None or self.tls_key is None:
            return None
        return server_context(self.tls_cert, self.tls_key)


async def live(
    scheduler: Scheduler, serving: Serving, signals: Signals, *, node: bool = True, reload: Reload | None = None
) -> ShutdownReport:
    """One life of a process with a port: until the first signal, and what remains of it after that."""
    serving.tls()  # before anything is opened or taken: with bad files there is nothing to serve
    sockets = take_port(serving.address)
    report = ShutdownReport()
    signs = Signs(signals, scheduler.hurry, reload)
    async with scheduler.client(), _port(scheduler, serving, sockets, signals.deadline) as api:
        if not node or await signs.until_stop(scheduler.start()):
            await signs.stop()
            if api is not None:
                api.context.drain()
            if node:
                _log.info("stopping: waiting for running handlers; a second signal stops at once")
                report = await scheduler.stop()
    signals.stopped()
    return report


def take_port(address: Address) -> list[socket.socket]:
    """The sockets of an address. A default one that is taken is only a warning."""
    try:
        return bind(address)
    except OSError as exc:
        if address.explicit:
            raise ConfigurationError(f"cannot listen on {address}: {exc.strerror}; choose another address") from exc
        way_out = "choose another with --http or its variable"
        _log.warning(
            "cannot listen on the default address %s (%s): going on without; %s", address, exc.strerror, way_out
        )
        return []


@asynccontextmanager
async def _port(
    scheduler: Scheduler, serving: Serving, sockets: Sequence[socket.socket], deadline: Deadline
) -> AsyncIterator[Api | None]:
    """The API on its sockets for the block; None where there are none."""
    if not sockets:
        yield None
        return
    client = await scheduler.opened()
    await _check_tokens(client.backend.store, serving, client.clock.now())
    settings = ApiSettings(
        authentication=serving.authentication,
        max_body_bytes=serving.max_body_bytes,
        limits=serving.limits,
        max_streams=serving.max_streams,
        max_streams_per_token=serving.max_streams_per_token,
        unique_for=serving.unique_for,
    )
    api = Api(scheduler, settings, routes=VITALS if serving.vitals_only else ROUTES)
    where = bound_to(serving.address, sockets)
    async with listening(api, serving, sockets, deadline):
        scheme = "http" if serving.tls_cert is None else "https"
        _log.info("%s on %s://%s", "health and metrics" if serving.vitals_only else "the API", scheme, where)
        watching = asyncio.get_running_loop().create_task(watch_loop(api.context.meters))
        try:
            yield api
        finally:
            watching.cancel()


async def _check_tokens(store: Store, serving: Serving, now: datetime) -> None:
    """Whether anybody could call. Off loopback that is a reason not to start."""
    if serving.authentication == "none":
        _log.warning("%s: no authentication; whoever is on this machine may do everything", serving.address)
        return
    if any(token.status(now) == "active" for token in await access.tokens(store)):
        return
    way_out = "make a token with `duly token create --role admin`"
    if not serving.address.loopback:
        raise ConfigurationError(
            f"{serving.address} can be reached from other machines, and no token exists: {way_out}"
        )
    _log.warning("no token exists yet, so only health is answered: %s, or serve with --no-auth", way_out)


@asynccontextmanager
async def listening(
    api: Api, serving: Serving, sockets: Sequence[socket.socket], deadline: Deadline | None = None
) -> AsyncIterator[None]:
    """Serve calls for the block; at its end those under way may finish, as long as the process has time."""
    server = HttpServer(api, serving.connections, serving.tls())
    running = asyncio.get_running_loop().create_task(server.serve(sockets=list(sockets)))
    await _started(server, running)
    try:
        yield
    finally:
        api.context.drain()
        server.should_exit = True
        while not running.done():
            left = None if deadline is None else deadline.left
            server.force_exit = left is not None and left < _AT_THE_END
            await asyncio.wait([running], timeout=_LOOK_AGAIN)
        running.result()


async def _started(server: HttpServer, running: asyncio.Task[None]) -> None:
    """Return when the sockets are listened to; raise what kept the server from it."""
    up = asyncio.get_running_loop().create_task(server.is_up.wait())
    await asyncio.wait([up, running], return_when=asyncio.FIRST_COMPLETED)
    up.cancel()
    if running.done():
        await running
