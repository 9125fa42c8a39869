"""`duly run`: a node as a program."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from duly.cli.durations import duration
from duly.cli.options import command, debugging
from duly.cli.settings import Settings, read_labels, read_settings
from duly.errors import ConfigurationError
from duly.model import Role, SchedulerConfig

if TYPE_CHECKING:
    from duly.cli.program import FleetProgram
    from duly.scheduler import Scheduler

_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_FORMATS = ("TEXT", "JSON")


@command(
    "duly run app:scheduler",
    "duly run app -c 50 -q mail -q default",
    "duly run jobs.toml --url redis://cache.example.org",
    "DULY_URL=sqlite:////var/lib/shop/duly.db duly run shop.jobs --log-format JSON",
)
@click.argument("app", required=False)
@click.option("--url", metavar="URL", help="The store, instead of the one in code or around it.")
@click.option("--concurrency", "-c", type=click.IntRange(1), help="How many runs at a time.")
@click.option("--queue", "-q", "queues", multiple=True, help="Only runs of this queue; repeatable. Default: all.")
@click.option(
    "--label", "labels", multiple=True, metavar="NAME=VALUE", help="What jobs may select this node by; repeatable."
)
@click.option("--node-id", metavar="ID", help="What this node is called. Default: host, process and a random part.")
@click.option(
    "--role", "roles", multiple=True, type=click.Choice([each.value for each in Role]), help="Only this; default both."
)
@click.option(
    "--shutdown-timeout", type=duration, metavar="DURATION", help="How long running handlers may take to end."
)
@click.option("--log-level", type=click.Choice(_LEVELS, case_sensitive=False), help="Default: LOG_LEVEL, or INFO.")
@click.option("--log-format", type=click.Choice(_FORMATS, case_sensitive=False), help="Default: LOG_FORMAT, or TEXT.")
@click.pass_context
def run(
    ctx: click.Context,
    app: str | None,
    url: str | None,
    concurrency: int | None,
    queues: tuple[str, ...],
    labels: tuple[str, ...],
    node_id: str | None,
    roles: tuple[str, ...],
    shutdown_timeout: float | None,
    log_level: str | None,
    log_format: str | None,
) -> None:
    """Run a node of APP (module:attribute, or jobs.toml; default DULY_APP): plan and work until SIGINT or SIGTERM.

    Start it as often as you like on one store. The first signal lets running handlers end, a second one does not wait.
    Without an attribute the module's only Scheduler is taken. The current folder is importable. A file of jobs runs
    plain commands; SIGHUP reads it again.

    Where code names no store, it is DULY_URL (or DULY_STORE, DULY_QUEUE, DULY_COORDINATOR), else POSTGRES_DSN,
    REDIS_URL and ETCD_ENDPOINTS, else duly.toml, else duly.db.
    """
    settings = read_settings()
    level = _chosen("log level", log_level or settings.log_level or "INFO", _LEVELS)
    layout = _chosen("log format", log_format or settings.log_format or "TEXT", _FORMATS)
    named = app or settings.app
    file = _load_file(named, settings) if named is not None and named.endswith(".toml") else None
    scheduler = file.scheduler if file is not None else _load(ctx, named)
    flags = {
        "max_concurrent": concurrency,
        "queues": queues or None,
        "labels": read_labels("--label", labels) or None,
        "node_id": node_id,
        "roles": roles or None,
        "shutdown_timeout": shutdown_timeout,
    }
    scheduler.configure(url, config=configured(scheduler.config, flags, settings))
    _stand_in(settings)
    if file is not None:
        file.run_forever(level, layout)
    else:
        scheduler.run_forever(log_level=level, log_format=layout)


def _load_file(path: str, settings: Settings) -> FleetProgram:
    from duly.cli.fleets import load  # noqa: PLC0415  # only those who have such a file need it
    from duly.cli.program import FleetProgram  # noqa: PLC0415

    return FleetProgram(load(path), settings.namespace)


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


def configured(code: SchedulerConfig, flags: dict[str, Any], settings: Settings) -> SchedulerConfig:
    """The settings in code, with flags over them, and with what is said around the program where code says nothing."""
    from msgspec.structs import replace  # noqa: PLC0415

    around = {
        "max_concurrent": settings.concurrency,
        "queues": settings.queues,
        "node_id": settings.node_id,
        "labels": settings.labels,
    }
    unsaid = SchedulerConfig()
    chosen = {
        name: value
        for name, value in around.items()
        if value is not None and getattr(code, name) == getattr(unsaid, name)
    }
    chosen |= {name: value for name, value in flags.items() if value is not None}
    return replace(code, **chosen) if chosen else code


def _stand_in(settings: Settings) -> None:
    """Let what is said around the program stand in for the library's variables: arguments in code come before both."""
    for variable, url in (
        ("DULY_URL", settings.url),
        ("DULY_QUEUE", settings.queue),
        ("DULY_COORDINATOR", settings.coordinator),
    ):
        if url is not None:
            os.environ[variable] = url


def _chosen(what: str, given: str, allowed: tuple[str, ...]) -> str:
    if given.upper() not in allowed:
        raise ConfigurationError(f"{what} {given!r} is not one of {', '.join(allowed)}")
    return given.upper()
