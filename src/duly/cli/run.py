"""`duly run`, `scheduler`, `worker` and `serve`: the processes of a deployment."""

from __future__ import annotations

import click

from duly.cli.options import command
from duly.cli.programs import (
    Logs,
    Port,
    node_options,
    port_options,
    prepare,
    program_options,
    run_program,
    work_options,
)
from duly.cli.settings import read_labels
from duly.model import Role

API_PORT = 8080
WORKER_PORT = 9090


@command(
    "duly run app:scheduler",
    "duly run app -c 50 -q mail -q default",
    "duly run jobs.toml --url redis://cache.example.org",
    "DULY_URL=sqlite:////var/lib/shop/duly.db duly run shop.jobs --log-format JSON",
    "duly run app --http 127.0.0.1:8080",
)
@program_options
@work_options
@node_options
@click.option(
    "--role", "roles", multiple=True, type=click.Choice([each.value for each in Role]), help="Only this; default both."
)
@port_options
@click.pass_context
def run(
    ctx: click.Context,
    app: str | None,
    url: str | None,
    log_level: str | None,
    log_format: str | None,
    concurrency: int | None,
    queues: tuple[str, ...],
    labels: tuple[str, ...],
    node_id: str | None,
    shutdown_timeout: float | None,
    roles: tuple[str, ...],
    http_addr: str | None,
    no_auth: bool,
    tls_cert: str | None,
    tls_key: str | None,
) -> None:
    """Run a node of APP (module:attribute, or jobs.toml; default DULY_APP): plan and work until SIGINT or SIGTERM.

    Start it as often as you like on one store. The first signal lets running handlers end, a second one does not wait.
    Without an attribute the module's only Scheduler is taken. The current folder is importable. A file of jobs runs
    plain commands; SIGHUP reads it again. With --http or HTTP_ADDR it serves the API, too.

    Where code names no store, it is DULY_URL (or DULY_STORE, DULY_QUEUE, DULY_COORDINATOR), else POSTGRES_DSN,
    REDIS_URL and ETCD_ENDPOINTS, else duly.toml, else duly.db.
    """
    flags = {
        "max_concurrent": concurrency,
        "queues": queues or None,
        "labels": read_labels("--label", labels) or None,
        "node_id": node_id,
        "roles": roles or None,
        "shutdown_timeout": shutdown_timeout,
    }
    program = prepare(ctx, app, url, flags, Logs(log_level, log_format))
    run_program(program, Port(http_addr, no_auth, tls_cert, tls_key))


@command("duly scheduler app:scheduler", "HTTP_ADDR=:8080 duly scheduler app:scheduler")
@program_options
@node_options
@port_options
@click.pass_context
def scheduler(
    ctx: click.Context,
    app: str | None,
    url: str | None,
    log_level: str | None,
    log_format: str | None,
    node_id: str | None,
    shutdown_timeout: float | None,
    http_addr: str | None,
    no_auth: bool,
    tls_cert: str | None,
    tls_key: str | None,
) -> None:
    """Plan for APP and serve its API until SIGINT or SIGTERM; workers do the work.

    Start several: one leads, the others follow, all answer. The API is on --http, HTTP_ADDR, or 127.0.0.1:8080.
    """
    flags = {"node_id": node_id, "roles": (Role.SCHEDULER.value,), "shutdown_timeout": shutdown_timeout}
    program = prepare(ctx, app, url, flags, Logs(log_level, log_format))
    run_program(program, Port(http_addr, no_auth, tls_cert, tls_key, default=API_PORT))


@command("duly worker app:scheduler -c 50", "WORKER_ID=worker-1 WORKER_HTTP_ADDR=:9091 duly worker app:scheduler")
@program_options
@work_options
@node_options
@port_options
@click.pass_context
def worker(
    ctx: click.Context,
    app: str | None,
    url: str | None,
    log_level: str | None,
    log_format: str | None,
    concurrency: int | None,
    queues: tuple[str, ...],
    labels: tuple[str, ...],
    node_id: str | None,
    shutdown_timeout: float | None,
    http_addr: str | None,
    no_auth: bool,
    tls_cert: str | None,
    tls_key: str | None,
) -> None:
    """Work for APP until SIGINT or SIGTERM; a `duly scheduler` plans.

    Health and metrics are on --http, WORKER_HTTP_ADDR, or 127.0.0.1:9090. Its name is --node-id or WORKER_ID.
    """
    flags = {
        "max_concurrent": concurrency,
        "queues": queues or None,
        "labels": read_labels("--label", labels) or None,
        "node_id": node_id,
        "roles": (Role.WORKER.value,),
        "shutdown_timeout": shutdown_timeout,
    }
    program = prepare(ctx, app, url, flags, Logs(log_level, log_format))
    run_program(program, Port(http_addr, no_auth, tls_cert, tls_key, default=WORKER_PORT, vitals_only=True))


@command("duly serve app:scheduler", "duly serve app:scheduler --http :8443 --tls-cert cert.pem --tls-key key.pem")
@program_options
@port_options
@click.pass_context
def serve(
    ctx: click.Context,
    app: str | None,
    url: str | None,
    log_level: str | None,
    log_format: str | None,
    http_addr: str | None,
    no_auth: bool,
    tls_cert: str | None,
    tls_key: str | None,
) -> None:
    """Serve the API of APP until SIGINT or SIGTERM, without planning or working.

    It is on --http, HTTP_ADDR, or 127.0.0.1:8080.
    """
    program = prepare(ctx, app, url, {}, Logs(log_level, log_format))
    if program.settings.http_addr is None and http_addr is None:
        http_addr = f"127.0.0.1:{API_PORT}"  # to serve is all it is for: a port that is taken is no warning here
    run_program(program, Port(http_addr, no_auth, tls_cert, tls_key), node=False)
