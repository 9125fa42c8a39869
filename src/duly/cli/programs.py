"""What the commands that run a program share: its options, how it is loaded and configured, and what it serves."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click
from msgspec import Struct

from duly.cli.durations import duration
from duly.cli.options import debugging
from duly.cli.settings import Settings, read_settings
from duly.cli.stores import stand_in
from duly.errors import ConfigurationError, MissingExtra
from duly.model import SchedulerConfig

if TYPE_CHECKING:
    from duly.api.connections import ConnectionLimits
    from duly.api.rates import Limits
    from duly.api.server import Serving
    from duly.cli.program import JobFileProgram
    from duly.scheduler import Scheduler, ShutdownReport
    from duly.scheduler.signals import Signals

F = TypeVar("F", bound=Callable[..., Any])

_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_FORMATS = ("TEXT", "JSON")

_log = logging.getLogger("duly.api")


def program_options(function: F) -> F:
    """The program and its store, its logs, and how long it takes to stop."""
    options = (
        click.argument("app", required=False),
        click.option(
            "--url", metavar="URL", help="The store, instead of the one in code, DULY_URL, duly.toml or duly.db."
        ),
        click.option("--log-level", type=click.Choice(_LEVELS, case_sensitive=False), help="Default: LOG_LEVEL, INFO."),
        click.option(
            "--log-format", type=click.Choice(_FORMATS, case_sensitive=False), help="Default: LOG_FORMAT, or TEXT."
        ),
    )
    return _apply(options, function)


def node_options(function: F) -> F:
    """What this node is called, and how it stops."""
    options = (
        click.option(
            "--node-id", metavar="ID", help="What this node is called. Default: host, process, a random part."
        ),
        click.option(
            "--shutdown-timeout", type=duration, metavar="DURATION", help="How long running handlers may take to end."
        ),
    )
    return _apply(options, function)


def work_options(function: F) -> F:
    """How much this node does at a time, and of what."""
    options = (
        click.option("--concurrency", "-c", type=click.IntRange(1), help="How many runs at a time."),
        click.option(
            "--label",
            "labels",
            multiple=True,
            metavar="NAME=VALUE",
            help="What jobs may select this node by; repeatable.",
        ),
        click.option(
            "--queue", "-q", "queues", multiple=True, help="Only runs of this queue; repeatable. Default: all."
        ),
    )
    return _apply(options, function)


def port_options(function: F) -> F:
    """Where and to whom the API answers."""
    options = (
        click.option(
            "--http", "http_addr", metavar="ADDR", help="Listen there: host:port, or :8080 for all interfaces."
        ),
        click.option("--no-auth", is_flag=True, help="Ask for no tokens. On a loopback address only."),
        click.option("--tls-cert", metavar="FILE", help="Serve HTTPS with this certificate (and its chain)."),
        click.option("--tls-key", metavar="FILE", help="The key of that certificate."),
    )
    return _apply(options, function)


def _apply(options: tuple[Callable[[F], F], ...], function: F) -> F:
    for option in reversed(options):
        function = option(function)
    return function


class Program(Struct, frozen=True):
    """A program that is loaded and configured, with what is said around it."""

    scheduler: Scheduler
    settings: Settings
    log_level: str
    log_format: str
    file: JobFileProgram | None = None


def prepare(ctx: click.Context, app: str | None, url: str | None, flags: dict[str, Any], logs: Logs) -> Program:
    """Load the program and bind it to its store and settings."""
    settings = read_settings()
    level = _chosen("log level", logs.level or settings.log_level or "INFO", _LEVELS)
    layout = _chosen("log format", logs.layout or settings.log_format or "TEXT", _FORMATS)
    named = app or settings.app
    file = _load_file(named, settings) if named is not None and named.endswith(".toml") else None
    scheduler = file.scheduler if file is not None else _load(ctx, named)
    scheduler.configure(url, config=configured(scheduler.config, flags, settings))
    stand_in(settings)
    return Program(scheduler, settings, level, layout, file)


class Logs(Struct, frozen=True):
    """What the flags say about logs."""

    level: str | None
    layout: str | None


def _load(ctx: click.Context, app: str | None) -> Scheduler:
    if app is None:
        raise click.UsageError("which program? Give APP as module:attribute, for example app:scheduler, or DULY_APP")
    from duly.cli.app import BrokenApp, load_app  # noqa: PLC0415  # `duly run --help` needs no scheduler

    try:
        return load_app(app)
    except BrokenApp as exc:
        if not debugging(ctx):
            click.echo("\n".join(exc.tail), err=True)
        raise


def _load_file(path: str, settings: Settings) -> JobFileProgram:
    from duly.cli.job_files import load  # noqa: PLC0415  # only those who have such a file need it
    from duly.cli.program import JobFileProgram  # noqa: PLC0415

    return JobFileProgram(load(path), settings.namespace)


def configured(code: SchedulerConfig, flags: dict[str, Any], settings: Settings) -> SchedulerConfig:
    """The settings in code, with flags over them, and with what is said around the program where code says nothing."""
    from msgspec.structs import replace  # noqa: PLC0415

    unsaid = SchedulerConfig()
    chosen = {
        name: value
        for name, value in env(settings).items()
        if value is not None and getattr(code, name) == getattr(unsaid, name)
    }
    chosen |= {name: value for name, value in flags.items() if value is not None}
    return replace(code, **chosen) if chosen else code


def env(settings: Settings) -> dict[str, Any]:
    """What is said around the program about its node, by the field it is for."""
    return {
        "max_concurrent": settings.concurrency,
        "queues": settings.queues,
        "node_id": settings.node_id,
        "labels": settings.labels,
        "namespace": settings.namespace,
        "publish_events": settings.publish_events,
        "keep_events": settings.keep_events,
        "audit_key": settings.audit_key,
        "default_handler": settings.default_handler,
    }


def _chosen(what: str, given: str, allowed: tuple[str, ...]) -> str:
    if given.upper() not in allowed:
        raise ConfigurationError(f"{what} {given!r} is not one of {', '.join(allowed)}")
    return given.upper()


class Port(Struct, frozen=True):
    """What the flags say about a port, and where it is by default (None: nowhere)."""

    http_addr: str | None
    no_auth: bool
    tls_cert: str | None
    tls_key: str | None
    default: int | None = None
    vitals_only: bool = False


def serving_for(port: Port, settings: Settings) -> Serving | None:
    """What this process serves, if anything. Without the extra only a port that was asked for is an error."""
    said = port.http_addr or (settings.worker_http_addr if port.vitals_only else settings.http_addr)
    if said is None and port.default is None:
        return None
    try:
        from duly.api import server  # noqa: PLC0415  # an extra
        from duly.api.addresses import Address, parse  # noqa: PLC0415
        from duly.api.config import MAX_BODY  # noqa: PLC0415
    except MissingExtra as exc:
        if said is not None:
            raise
        _log.warning("no port for health and metrics: %s", exc)
        return None
    address = Address("127.0.0.1", port.default or 0, explicit=False) if said is None else parse(said)
    return server.Serving(
        address=address,
        authentication="none" if port.no_auth else settings.auth or "token",
        vitals_only=port.vitals_only,
        max_body_bytes=settings.max_body_bytes or MAX_BODY,
        tls_cert=port.tls_cert or settings.tls_cert,
        tls_key=port.tls_key or settings.tls_key,
        limits=_limits(settings),
        connections=_connections(settings),
        **_given(settings, ("max_streams", "max_streams_per_token")),
        unique_for=_unique_for(settings),
    )


def _given(settings: Settings, names: Sequence[str]) -> dict[str, Any]:
    """Those of these settings that somebody has made."""
    return {name: value for name in names if (value := getattr(settings, name)) is not None}


def _connections(settings: Settings) -> ConnectionLimits:
    """What one client may take of the server."""
    from duly.api.connections import ConnectionLimits  # noqa: PLC0415  # an extra

    return ConnectionLimits(**_given(settings, ConnectionLimits.__struct_fields__))


_UNFINISHED = "unfinished"


def _unique_for(settings: Settings) -> float | None:
    """For how many seconds submissions over HTTP are unique by their key; None: as long as they are unfinished."""
    from duly.api.config import UNIQUE_FOR  # noqa: PLC0415  # an extra
    from duly.rules.durations import seconds_of  # noqa: PLC0415

    if settings.unique_for is None:
        return UNIQUE_FOR
    return None if settings.unique_for == _UNFINISHED else seconds_of(settings.unique_for)


def _limits(settings: Settings) -> Limits:
    """The rate limits that are set, if any."""
    from duly.api import rates  # noqa: PLC0415

    given = settings.handler_rates or {}
    handlers = (
        rates.parse_each(given) if isinstance(given, str) else {name: rates.parse(text) for name, text in given.items()}
    )
    return rates.Limits(None if settings.token_rate is None else rates.parse(settings.token_rate), handlers)


def run_program(program: Program, port: Port, *, node: bool = True) -> None:
    """Run a node, an API, or both, until it is told to stop."""
    from duly.observe import configure_logging  # noqa: PLC0415
    from duly.scheduler.run_forever import run_alone  # noqa: PLC0415
    from duly.scheduler.signals import Signals  # noqa: PLC0415

    configure_logging(program.log_level, program.log_format)
    serving = serving_for(port, program.settings)
    if serving is not None or port.default is not None:
        _publish(program.scheduler)
    with Signals(program.scheduler.patience, program.scheduler.rescue, kept=True) as signals:
        run_alone(_live(program, serving, signals, node=node))


def _publish(scheduler: Scheduler) -> None:
    """A process of a service publishes its events, unless somebody has said that it shall not."""
    from msgspec.structs import replace  # noqa: PLC0415

    if scheduler.config.publish_events is None:
        scheduler.configure(config=replace(scheduler.config, publish_events=True))


async def _live(program: Program, serving: Serving | None, signals: Signals, *, node: bool) -> ShutdownReport:
    from duly.scheduler import run_forever as forever  # noqa: PLC0415

    file = program.file
    if file is not None:
        await file.carry()
    reload = None if file is None else file.reload
    if serving is None:
        return await forever.live(program.scheduler, signals, reload)
    from duly.api import server  # noqa: PLC0415  # an extra

    return await server.live(program.scheduler, serving, signals, node=node, reload=reload)
