"""`duly run`, `scheduler`, `worker` and `serve`: the processes of a deployment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from duly.cli.node_settings import read_labels
from duly.cli.options import F, command, duration
from duly.cli.programs import LOG_FORMATS, LOG_LEVELS, prepare, run_node, run_program, serve_program
from duly.model import Role

API_PORT = 8080
WORKER_PORT = 9090


def _options(*options: Callable[[F], F]) -> Callable[[F], F]:
    """One decorator for several options, in the order of the help."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def _read_labels(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, str] | None:
    return read_labels("--label", given) or None


_program_options = _options(
    click.argument("app", required=False),
    click.option("--url", metavar="URL", help="The store, instead of the one in code, DULY_URL, duly.toml or duly.db."),
    click.option("--log-level", type=click.Choice(LOG_LEVELS, case_sensitive=False), help="Default: LOG_LEVEL, INFO."),
    click.option(
        "--log-format", type=click.Choice(LOG_FORMATS, case_sensitive=False), help="Default: LOG_FORMAT, or TEXT."
    ),
)
_work_options = _options(
    click.option("--concurrency", "-c", type=click.IntRange(1), help="How many runs at a time."),
    click.option(
        "--label",
        "labels",
        multiple=True,
        metavar="NAME=VALUE",
        callback=_read_labels,
        help="A label by which jobs can select this node; repeatable.",
    ),
    click.option("--queue", "-q", "queues", multiple=True, help="Only runs of this queue; repeatable. Default: all."),
)
_node_options = _options(
    click.option("--node-id", metavar="ID", help="The name of this node. Default: host, process, a random part."),
    click.option(
        "--shutdown-timeout", type=duration, metavar="DURATION", help="How long running handlers may take to end."
    ),
)
_port_options = _options(
    click.option("--http", "http_addr", metavar="ADDR", help="Listen on host:port, or on :8080 for all interfaces."),
    click.option("--no-auth", is_flag=True, help="Require no tokens. Only on a loopback address."),
    click.option("--tls-cert", metavar="FILE", help="Serve HTTPS with this certificate (and its chain)."),
    click.option("--tls-key", metavar="FILE", help="The private key of the certificate."),
)


@command(
    "duly run app:scheduler",
    "duly run app -c 50 -q mail -q default",
    "duly run jobs.toml --url redis://cache.example.org",
    "DULY_URL=sqlite:////var/lib/shop/duly.db duly run shop.jobs --log-format JSON",
    "duly run app --http 127.0.0.1:8080",
    "duly run app --reload",
    "duly run app --supervise",
)
@_program_options
@_work_options
@_node_options
@click.option(
    "--role", "roles", multiple=True, type=click.Choice([each.value for each in Role]), help="Only this; default both."
)
@_port_options
@click.option("--reload", is_flag=True, help="For development: start a new process when a source file changes.")
@click.option("--supervise", is_flag=True, help="Restart the process when it dies; SIGHUP replaces it without a gap.")
@click.pass_context
def run(ctx: click.Context, /, **flags: Any) -> None:
    """Run a node of APP (module:attribute, or jobs.toml; default DULY_APP): plan and work until SIGINT or SIGTERM.

    Run any number of these against one store. The first signal lets running handlers end, a second one does not wait.
    Without an attribute the module's only Scheduler is used. The current folder is importable. A job file runs plain
    commands; SIGHUP reloads it. With --http or HTTP_ADDR it also serves the API.

    With --supervise a small parent process restarts the node when it dies, and gives back its runs at once instead of
    after lock_ttl. On SIGHUP it starts a new process, and stops the old one when the new one works. --reload does that
    when a source file changes.

    If code names no store, it is DULY_URL (or DULY_STORE, DULY_QUEUE, DULY_COORDINATOR), else POSTGRES_DSN,
    REDIS_URL and ETCD_ENDPOINTS, else duly.toml, else duly.db.
    """
    run_node(ctx, flags)


@command("duly scheduler app:scheduler", "HTTP_ADDR=:8080 duly scheduler app:scheduler")
@_program_options
@_node_options
@_port_options
@click.pass_context
def scheduler(ctx: click.Context, /, **flags: Any) -> None:
    """Plan for APP and serve its API until SIGINT or SIGTERM; workers execute the runs.

    Start several: one leads, the others stand by, all serve the API. It is on --http, HTTP_ADDR, or 127.0.0.1:8080.
    """
    program = prepare(ctx, {**flags, "roles": (Role.SCHEDULER.value,)})
    run_program(program, flags, default_port=API_PORT)


@command("duly worker app:scheduler -c 50", "WORKER_ID=worker-1 WORKER_HTTP_ADDR=:9091 duly worker app:scheduler")
@_program_options
@_work_options
@_node_options
@_port_options
@click.pass_context
def worker(ctx: click.Context, /, **flags: Any) -> None:
    """Execute runs of APP until SIGINT or SIGTERM; a `duly scheduler` plans them.

    Health and metrics are on --http, WORKER_HTTP_ADDR, or 127.0.0.1:9090. Its name is --node-id or WORKER_ID.
    """
    program = prepare(ctx, {**flags, "roles": (Role.WORKER.value,)})
    run_program(program, flags, default_port=WORKER_PORT, health_only=True)


@command(
    "duly serve app:scheduler",
    "duly serve app:scheduler --http :8443 --tls-cert cert.pem --tls-key key.pem",
    "duly serve app:scheduler --processes 4",
)
@_program_options
@_port_options
@click.option("--processes", type=click.IntRange(1), metavar="N", help="Serve the port with N processes. Default: 1.")
@click.pass_context
def serve(ctx: click.Context, /, **flags: Any) -> None:
    """Serve the API of APP until SIGINT or SIGTERM, without planning or working.

    It is on --http, HTTP_ADDR, or 127.0.0.1:8080. One process uses one core at most. With --processes a supervisor
    starts N of them, replaces one that ends, and stops all of them on SIGINT or SIGTERM; limits such as
    max_connections are for each process.
    """
    serve_program(ctx, flags, API_PORT)
