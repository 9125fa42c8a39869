"""What `duly run`, `scheduler`, `worker` and `serve` share: loading and configuring a program, and running it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from duly.cli.node_settings import HookPath
from duly.cli.options import debugging
from duly.cli.settings import STORE_SETTINGS, VARIABLES, Settings, Sourced, read_settings
from duly.errors import ConfigurationError, MissingExtra
from duly.model import SchedulerConfig

if TYPE_CHECKING:
    import socket

    from duly.api.rates import Limits
    from duly.api.server import Serving
    from duly.cli.job_files import JobFileProgram
    from duly.scheduler import Scheduler, ShutdownReport
    from duly.scheduler.child_processes import Line
    from duly.scheduler.signals import Signals

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
LOG_FORMATS = ("TEXT", "JSON")

Flags = Mapping[str, Any]

_NODE_FLAGS = {
    "concurrency": "max_concurrent",
    "queues": "queues",
    "labels": "labels",
    "node_id": "node_id",
    "roles": "roles",
    "shutdown_timeout": "shutdown_timeout",
}
_UNFINISHED = "unfinished"
_DRAIN_IN_DEVELOPMENT = 5.0

_log = logging.getLogger("duly.api")


class Program(Struct, frozen=True):
    """A program that is loaded and configured, with the settings around it."""

    scheduler: Scheduler
    settings: Settings
    log_level: str
    log_format: str
    file: JobFileProgram | None = None


def prepare(ctx: click.Context, flags: Flags, node_id: str | None = None) -> Program:
    """Load the program and bind it to its store and settings. `flags` are the command's, by name.

    `node_id` is the id of the node if neither code nor settings name one.
    """
    settings = read_settings()
    log_level, log_format = _logging(flags, settings)
    named = flags["app"] or settings.app
    file = _load_file(named, settings) if named is not None and named.endswith(".toml") else None
    scheduler = file.scheduler if file is not None else _load(ctx, named)
    node_flags = {field: flags.get(name) for name, field in _NODE_FLAGS.items()}
    config = configured(scheduler.config, node_flags, settings)
    scheduler.configure(flags["url"], config=_named(config, node_id))
    _export_store(settings)
    return Program(scheduler, settings, log_level, log_format, file)


def _named(config: SchedulerConfig, node_id: str | None) -> SchedulerConfig:
    from msgspec.structs import replace  # noqa: PLC0415

    return replace(config, node_id=node_id) if config.node_id is None and node_id is not None else config


def _logging(flags: Flags, settings: Settings) -> tuple[str, str]:
    """The log level and the log format."""
    return (
        _one_of("log level", flags["log_level"] or settings.log_level or "INFO", LOG_LEVELS),
        _one_of("log format", flags["log_format"] or settings.log_format or "TEXT", LOG_FORMATS),
    )


def _one_of(what: str, given: str, allowed: tuple[str, ...]) -> str:
    if given.upper() not in allowed:
        raise ConfigurationError(f"invalid {what} {given!r}: expected one of {', '.join(allowed)}")
    return given.upper()


def _load(ctx: click.Context, app: str | None) -> Scheduler:
    if app is None:
        raise click.UsageError("which program? Give APP as module:attribute, for example app:scheduler, or DULY_APP")
    from duly.cli.app import BrokenApp, load_app  # noqa: PLC0415  # `duly run --help` needs no scheduler

    try:
        return load_app(app)
    except BrokenApp as exc:
        if not debugging(ctx):
            click.echo("\n".join(exc.traceback), err=True)
        raise


def _load_file(path: str, settings: Settings) -> JobFileProgram:
    from duly.cli.job_files import JobFileProgram, load  # noqa: PLC0415  # only job files need it

    return JobFileProgram(load(path), settings.field("namespace"))


def configured(code: SchedulerConfig, flags: Flags, settings: Settings) -> SchedulerConfig:
    """The settings in code, overridden by flags; where code keeps a default, the environment or the file decides."""
    defaults = SchedulerConfig()
    kept = {name: each for name, each in settings.node.items() if own_value(code, name) == own_value(defaults, name)}
    chosen = {name: value for name, value in flags.items() if value not in (None, ())}
    kept = {name: each for name, each in kept.items() if name not in chosen}
    return _with(_with_sourced(code, kept), chosen)


def own_value(config: SchedulerConfig, name: str) -> Any:
    """The value of a field of the configuration, or of its retention."""
    part, dot, rest = name.partition(".")
    value = getattr(config, part)
    return getattr(value, rest) if dot else value


def _with_sourced(config: SchedulerConfig, given: Mapping[str, Sourced]) -> SchedulerConfig:
    """The configuration with these values. An error names the source of the wrong one."""
    values = {name: _imported(each) for name, each in given.items()}
    try:
        return _with(config, values)
    except ConfigurationError:
        for name, each in given.items():
            try:
                _with(config, {name: values[name]})
            except ConfigurationError as exc:
                raise ConfigurationError(f"{each.source}: {exc}") from exc
        raise


def _with(config: SchedulerConfig, values: Mapping[str, Any]) -> SchedulerConfig:
    from msgspec.structs import replace  # noqa: PLC0415

    fields = {name: value for name, value in values.items() if "." not in name}
    parts = {name.partition(".")[2]: value for name, value in values.items() if "." in name}
    if parts:
        fields["retention"] = replace(config.retention, **parts)
    return replace(config, **fields) if fields else config


def _imported(given: Sourced) -> Any:
    """The value of a setting; a hook is imported from its path."""
    if not isinstance(given.value, HookPath):
        return given.value
    from duly.cli.app import load_hook  # noqa: PLC0415

    return load_hook(given.source, given.value)


def _export_store(settings: Settings) -> None:
    """Put the store's address into the environment: the library reads it there if code names no store."""
    for name in STORE_SETTINGS:
        value = getattr(settings, name)
        if value is not None:
            os.environ[VARIABLES[name][0]] = value


# --- the port


def serving_for(flags: Flags, settings: Settings, default_port: int | None, *, health_only: bool) -> Serving | None:
    """What this process serves, if anything. Without the extra only a port that was asked for is an error."""
    given = flags["http_addr"] or (settings.worker_http_addr if health_only else settings.http_addr)
    if given is None and default_port is None:
        return None
    try:
        from duly.api import server  # noqa: PLC0415  # an extra
        from duly.api.addresses import Address, parse  # noqa: PLC0415
        from duly.api.config import ApiSettings, ConnectionLimits  # noqa: PLC0415
    except MissingExtra as exc:
        if given is not None:
            raise
        _log.warning("no port for health and metrics: %s", exc)
        return None
    api = ApiSettings(
        authentication="none" if flags["no_auth"] else settings.auth or "token",
        limits=_limits(settings),
        **_given(settings, ("max_body_bytes", "max_streams", "max_streams_per_token")),
        **_unique_for(settings),
    )
    return server.Serving(
        address=Address("127.0.0.1", default_port or 0, explicit=False) if given is None else parse(given),
        api=api,
        health_only=health_only,
        tls_cert=flags["tls_cert"] or settings.tls_cert,
        tls_key=flags["tls_key"] or settings.tls_key,
        connections=ConnectionLimits(**_given(settings, ConnectionLimits.__struct_fields__)),
    )


def _given(settings: Settings, names: Iterable[str]) -> dict[str, Any]:
    """Those of these settings that are set."""
    return {name: value for name in names if (value := getattr(settings, name)) is not None}


def _unique_for(settings: Settings) -> dict[str, Any]:
    """How long submissions over HTTP are unique by their key; None means until the run has ended."""
    from duly.rules.durations import seconds_of  # noqa: PLC0415

    given = settings.unique_for
    return {} if given is None else {"unique_for": None if given == _UNFINISHED else seconds_of(given)}


def _limits(settings: Settings) -> Limits:
    from duly.api.rates import Limits  # noqa: PLC0415
    from duly.rules.rate_limits import parse, parse_each  # noqa: PLC0415

    given = settings.handler_rates or {}
    handlers = parse_each(given) if isinstance(given, str) else {name: parse(text) for name, text in given.items()}
    return Limits(None if settings.token_rate is None else parse(settings.token_rate), handlers)


# --- running


def run_program(
    program: Program,
    flags: Flags,
    *,
    node: bool = True,
    default_port: int | None = None,
    health_only: bool = False,
    line: Line | None = None,
) -> None:
    """Run a node, an API, or both, until a signal stops it. Without `default_port` a port is opened only if asked.

    `line` is for a process of a supervisor.
    """
    from duly.observe import configure_logging  # noqa: PLC0415
    from duly.scheduler.run_forever import run_alone  # noqa: PLC0415
    from duly.scheduler.signals import Signals  # noqa: PLC0415

    configure_logging(program.log_level, program.log_format)
    serving = serving_for(flags, program.settings, default_port, health_only=health_only)
    _publish(program.scheduler)
    with Signals(lambda: program.scheduler.patience, program.scheduler.rescue, kept=True) as signals:
        run_alone(_live(program, serving, signals, node=node, line=line))


def _publish(scheduler: Scheduler) -> None:
    """A process of the command line publishes its events, unless the settings say otherwise."""
    from msgspec.structs import replace  # noqa: PLC0415

    if scheduler.config.publish_events is None:
        scheduler.configure(config=replace(scheduler.config, publish_events=True))


def serve_program(ctx: click.Context, flags: Flags, default_port: int) -> None:
    """Run the API alone, in this process or in several that this one supervises."""
    from duly.api import processes  # noqa: PLC0415  # an extra
    from duly.scheduler.child_processes import Line, inherited  # noqa: PLC0415

    settings = read_settings()
    if settings.http_addr is None and flags["http_addr"] is None:  # its only purpose: a port in use is an error here
        flags = {**flags, "http_addr": f"127.0.0.1:{default_port}"}
    mine = inherited()
    count = _processes(flags["processes"] or settings.processes or 1, processes.MOST)
    if mine is None and count > 1:
        ctx.exit(_supervise(flags, settings, count))
    line = None if mine is None else Line(mine)
    run_program(prepare(ctx, flags), flags, node=False, line=line)


def run_node(ctx: click.Context, flags: Flags) -> None:
    """Run a node, in this process or in one that this one supervises."""
    from duly.scheduler.child_processes import Line, inherited  # noqa: PLC0415

    mine = inherited()
    if flags["reload"] and flags["supervise"]:
        raise click.UsageError("--reload is for development, --supervise for production: choose one")
    if mine is None and (flags["reload"] or flags["supervise"]):
        ctx.exit(_supervise_node(flags))
    if mine is None:
        run_program(prepare(ctx, flags), flags)
    else:
        run_program(prepare(ctx, flags, mine.node_id), flags, line=Line(mine))


def _supervise_node(flags: Flags) -> int:
    """Run this command line as a node that is supervised; returns the exit code."""
    import asyncio  # noqa: PLC0415
    import random  # noqa: PLC0415

    from duly.observe import configure_logging  # noqa: PLC0415
    from duly.runtime.environment import new_node_id  # noqa: PLC0415
    from duly.scheduler.child_processes import own_command  # noqa: PLC0415
    from duly.scheduler.node_supervisor import NodeSupervisor, Supervision  # noqa: PLC0415

    settings = read_settings()
    configure_logging(*_logging(flags, settings))
    app = flags["app"] or settings.app or ""
    is_file, watches = app.endswith(".toml"), flags["reload"]
    how = Supervision(
        command=own_command(),
        node_id=new_node_id(random.Random()),
        sockets=_opened_port(flags, settings),
        reads_again=is_file,
        drain=_DRAIN_IN_DEVELOPMENT if watches else None,
        watches=watches,
        files=(os.path.abspath(app),) if is_file else (),  # noqa: PTH100  # it may not exist
    )

    async def run() -> int:
        return await NodeSupervisor(how).run()

    return asyncio.run(run())


def _opened_port(flags: Flags, settings: Settings) -> list[socket.socket]:
    """The listening socket of a node that serves the API; it stays open while processes are replaced."""
    serving = serving_for(flags, settings, None, health_only=False)
    if serving is None:
        return []
    from duly.api.server import open_port  # noqa: PLC0415  # an extra

    serving.tls()
    return open_port(serving.address)


def _processes(given: int, most: int) -> int:
    if not 1 <= given <= most:
        raise ConfigurationError(f"processes={given}: expected a number from 1 to {most}")
    return given


def _supervise(flags: Flags, settings: Settings, count: int) -> int:
    """Run this command line in several processes on one port; returns the exit code."""
    import asyncio  # noqa: PLC0415

    from duly.api.processes import Supervisor  # noqa: PLC0415
    from duly.observe import configure_logging  # noqa: PLC0415
    from duly.scheduler.child_processes import own_command  # noqa: PLC0415

    configure_logging(*_logging(flags, settings))
    serving = serving_for(flags, settings, None, health_only=False)
    assert serving is not None
    serving.tls()
    app = flags["app"] or settings.app or ""

    async def run() -> int:
        supervisor = Supervisor(own_command(), serving.address, count, reloads=app.endswith(".toml"))
        return await supervisor.run(lambda bound: _log.info("the API on %s: %d processes", serving.url(bound), count))

    return asyncio.run(run())


async def _live(
    program: Program, serving: Serving | None, signals: Signals, *, node: bool, line: Line | None
) -> ShutdownReport:
    from duly.scheduler import run_forever  # noqa: PLC0415

    file = program.file
    if file is not None:
        await file.carry()
    reload = None if file is None else file.reload
    started = run_forever.attach(program.scheduler, line) if node and line is not None else lambda: None
    if serving is None:
        return await run_forever.live(program.scheduler, signals, reload, started)
    from duly.api import server  # noqa: PLC0415  # an extra

    return await server.live(program.scheduler, serving, signals, node=node, reload=reload, line=line, started=started)
