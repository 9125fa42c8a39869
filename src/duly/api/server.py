"""The server: the API on a port, together with a node or alone. Needs the extra `server`.

The port is opened first and closed last: while a node drains it still answers, and says that it is not ready. On
addresses other than loopback nothing is served without tokens.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from duly.api import tokens as access
from duly.api.addresses import Address, bind, bound_to
from duly.api.app import Api
from duly.api.config import ApiSettings, ConnectionLimits
from duly.api.http import HttpServer
from duly.api.routes import HEALTH_ROUTES, ROUTES
from duly.errors import ConfigurationError
from duly.observe.metrics import watch_loop
from duly.ports import Backend, Store
from duly.scheduler import Scheduler
from duly.scheduler.child_processes import LISTENING, Line
from duly.scheduler.following import store_moved
from duly.scheduler.run_forever import start_and_list
from duly.scheduler.signals import Deadline, Reload, Signals, Signs
from duly.scheduler.views import ShutdownReport

_log = logging.getLogger("duly.api")
_PEM_CERTIFICATE = b"-----BEGIN CERTIFICATE-----"
_PEM_KEY = b"PRIVATE KEY-----"


class Serving(Struct, frozen=True):
    """What a process serves: the address, the settings, and whether it is the whole API or only health and metrics."""

    address: Address
    api: ApiSettings = ApiSettings()
    health_only: bool = False
    tls_cert: str | None = None
    tls_key: str | None = None
    connections: ConnectionLimits = ConnectionLimits()

    def __post_init__(self) -> None:
        if self.api.authentication == "none" and not self.address.loopback:
            raise ConfigurationError(
                f"{self.address} can be reached from other machines, where authentication is required:"
                f" create a token with `duly token create`, or listen on 127.0.0.1:{self.address.port}"
            )
        if (self.tls_cert is None) is not (self.tls_key is None):
            raise ConfigurationError("TLS needs both a certificate and its key: give tls_cert and tls_key")

    def url(self, bound: Address) -> str:
        """The URL of the address on which it listens."""
        return f"{'http' if self.tls_cert is None else 'https'}://{bound}"

    def tls(self) -> ssl.SSLContext | None:
        """The TLS context for HTTPS, None for plain HTTP. An error names the file that cannot be used."""
        if self.tls_cert is None or self.tls_key is None:
            return None
        return server_context(self.tls_cert, self.tls_key)


async def live(
    scheduler: Scheduler,
    serving: Serving,
    signals: Signals,
    *,
    node: bool = True,
    reload: Reload | None = None,
    line: Line | None = None,
    started: Callable[[], None] = lambda: None,
) -> ShutdownReport:
    """Run a process with a port until the first signal, then stop it gracefully.

    `line` is for a process of a supervisor: it uses the socket that the supervisor has opened. `started` is called when
    the node has started.
    """
    serving.tls()  # with unusable files the process ends before it opens anything
    inherited = None if line is None else line.mine.listening
    sockets = open_port(serving.address) if inherited is None else [socket.socket(fileno=inherited)]
    report = ShutdownReport()
    signs = Signs(signals, scheduler.hurry, reload)
    async with scheduler.client(), _port(scheduler, serving, sockets, signals.deadline, line) as api:
        if not node or await signs.until_stop(start_and_list(scheduler, started)):
            moved = await store_moved(signs.stop(scheduler.wait() if node else None))
            if api is not None:
                api.context.drain()
            if node:
                _log.info("stopping: waiting for running handlers; a second signal stops at once")
                report = await scheduler.stop()
            if moved is not None:
                raise moved
    signals.stopped()
    return report


def open_port(address: Address) -> list[socket.socket]:
    """The sockets of an address. A default address that is in use is only a warning."""
    try:
        return bind(address)
    except OSError as exc:
        if address.explicit:
            raise ConfigurationError(f"cannot listen on {address}: {exc.strerror}; choose another address") from exc
        way_out = "choose another with --http or its variable"
        _log.warning(
            "cannot listen on the default address %s (%s): continuing without it; %s", address, exc.strerror, way_out
        )
        return []


@asynccontextmanager
async def _port(
    scheduler: Scheduler, serving: Serving, sockets: Sequence[socket.socket], deadline: Deadline, line: Line | None
) -> AsyncIterator[Api | None]:
    """Serve the API on these sockets inside the block; None without sockets."""
    if not sockets:
        yield None
        return
    client = await scheduler.opened()
    await _check_tokens(client.backend.store, serving, client.clock.now())
    several = line is not None and line.mine.of > 1
    settings = replace(serving.api, process=line.mine.number) if line is not None and several else serving.api
    api = Api(scheduler, settings, routes=HEALTH_ROUTES if serving.health_only else ROUTES)
    if line is not None:
        await _wait_for_others(client.backend, line)
    async with listening(api, serving, sockets, deadline):
        if line is not None:
            line.say(LISTENING)
        if not several:
            what = "health and metrics" if serving.health_only else "the API"
            _log.info("%s on %s", what, serving.url(bound_to(serving.address, sockets)))
        watching = asyncio.get_running_loop().create_task(watch_loop(api.context.meters))
        try:
            yield api
        finally:
            watching.cancel()


async def _wait_for_others(backend: Backend, line: Line) -> None:
    """Let this process listen when all processes of the port are prepared."""
    if line.mine.of > 1 and not backend.capabilities.shared:
        raise ConfigurationError(
            f"processes={line.mine.of}: processes cannot share {backend.url}: use another store, or one process"
        )
    await line.permission()


async def _check_tokens(store: Store, serving: Serving, now: datetime) -> None:
    """Refuse to start without a token, except on loopback, where it is a warning."""
    if serving.api.authentication == "none":
        _log.warning("%s: no authentication; every program on this machine has all permissions", serving.address)
        return
    if any(token.status(now) == "active" for token in await access.tokens(store)):
        return
    way_out = "create one with `duly token create --role admin`"
    if not serving.address.loopback:
        raise ConfigurationError(
            f"{serving.address} can be reached from other machines, and no token exists: {way_out}"
        )
    _log.warning("no token exists yet, so only health can be read: %s, or serve with --no-auth", way_out)


@asynccontextmanager
async def listening(
    api: Api, serving: Serving, sockets: Sequence[socket.socket], deadline: Deadline | None = None
) -> AsyncIterator[None]:
    """Serve calls inside the block. At its end, calls in progress may finish until the deadline."""
    server = HttpServer(api, serving.connections, serving.tls())
    await server.start(sockets)
    try:
        yield
    finally:
        api.context.drain()
        await server.stop(lambda: None if deadline is None else deadline.left)


# --- TLS


def server_context(cert: str, key: str) -> ssl.SSLContext:
    """The TLS context of the server. `ConfigurationError` names the file that cannot be used, and why."""
    _check_pem(cert, "certificate", _PEM_CERTIFICATE)
    _check_pem(key, "private key", _PEM_KEY)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert, key, password=lambda: _refuse_encrypted(key))
    except ssl.SSLError as exc:
        if exc.reason == "KEY_VALUES_MISMATCH":
            raise ConfigurationError(f"TLS: {key} is not the key of the certificate {cert}") from exc
        raise ConfigurationError(f"TLS: {cert} and {key} cannot be used: {exc.reason or exc}") from exc
    return context


def _check_pem(path: str, what: str, marker: bytes) -> None:
    try:
        content = Path(path).read_bytes()
    except OSError as exc:
        raise ConfigurationError(f"TLS: the {what} {path} cannot be read: {exc.strerror}") from exc
    if marker not in content:
        raise ConfigurationError(f"TLS: {path} contains no {what} in PEM format")


def _refuse_encrypted(key: str) -> str:
    """A server cannot ask for a passphrase."""
    raise ConfigurationError(f"TLS: the private key {key} is encrypted: give one without a passphrase")
