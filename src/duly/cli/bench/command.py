"""The command `duly bench` and its measurements as subcommands."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from duly.cli.options import Group, duration, json_option

_SOME = click.IntRange(1)
_LAYOUTS = ("nodes", "scheduler", "queues", "full", "handlers")  # `layouts` says what they are
_URL = click.option(
    "--url",
    envvar=("DULY_URL", "DULY_STORE"),
    help="The store to measure, with DULY_QUEUE and DULY_COORDINATOR; by default a SQLite file thrown away.",
)
_PROCESSES = click.option(
    "--processes", "-p", default=1, type=_SOME, show_default=True, help="How many worker processes."
)
_CONCURRENCY = click.option(
    "--concurrency", "-c", default=100, type=_SOME, show_default=True, help="Slots of a worker."
)


@click.group(
    cls=Group,
    examples=(
        "duly bench drain --jobs 100000",
        "duly bench submit --url sqlite:///bench.db --json",
        "duly bench recurring --schedules 20000",
    ),
)
def bench() -> None:
    """Measure through the public API what users feel, on any backend.

    Each measurement uses a namespace of its own, so that it touches nothing that is in the store.
    """


@bench.command()
@_URL
@json_option
@_PROCESSES
@_CONCURRENCY
@click.option("--jobs", "-n", default=100_000, type=_SOME, show_default=True, help="How many no-op jobs are put first.")
def drain(url: str | None, as_json: bool, processes: int, concurrency: int, jobs: int) -> None:
    """How many jobs per second workers get through."""
    from duly.cli.bench import measures  # noqa: PLC0415  # imports asyncio and more

    _run("noop", url, as_json, concurrency, 0, lambda a, p: measures.drain(a, jobs, processes, p))


@bench.command()
@_URL
@json_option
@click.option(
    "--jobs", "-n", default=20_000, type=_SOME, show_default=True, help="How many submissions, fifty at a time."
)
def submit(url: str | None, as_json: bool, jobs: int) -> None:
    """How many submissions per second a client makes."""
    from duly.cli.bench import measures  # noqa: PLC0415  # imports asyncio and more

    _run("noop", url, as_json, 100, 0, lambda a, p: measures.submit(a, jobs, p))


@bench.command()
@_URL
@json_option
@_PROCESSES
@_CONCURRENCY
@click.option("--jobs", "-n", default=500, type=_SOME, show_default=True, help="How many submissions.")
@click.option(
    "--every",
    default="10ms",
    type=duration,
    metavar="DURATION",
    show_default=True,
    help="The time between two submissions: a long one shows whether each wakes somebody by itself.",
)
@click.option(
    "--layout",
    default="nodes",
    type=click.Choice(_LAYOUTS),
    show_default=True,
    help="Which nodes there are; all but `nodes` have some that cannot start the runs.",
)
def latency(
    url: str | None, as_json: bool, processes: int, concurrency: int, jobs: int, every: float, layout: str
) -> None:
    """The time from submitting to the handler's start."""
    from duly.cli.bench import measures  # noqa: PLC0415  # imports asyncio and more

    if layout != "nodes" and (url or "").startswith("memory:"):
        raise click.UsageError(f"--layout {layout} needs several processes, which memory:// cannot have")
    _run("ping", url, as_json, concurrency, 0, lambda a, p: measures.latency(a, layout, jobs, every, processes, p))


@bench.command()
@_URL
@json_option
@_PROCESSES
@_CONCURRENCY
@click.option(
    "--jobs", "-n", default=1_000, type=_SOME, show_default=True, help="How many one-time jobs over ten seconds."
)
def lateness(url: str | None, as_json: bool, processes: int, concurrency: int, jobs: int) -> None:
    """How late one-time jobs start, spread over ten seconds."""
    from duly.cli.bench import measures  # noqa: PLC0415  # imports asyncio and more

    _run("alarm", url, as_json, concurrency, 0, lambda a, p: measures.lateness(a, jobs, processes, p))


@bench.command()
@_URL
@json_option
@_PROCESSES
@_CONCURRENCY
@click.option(
    "--schedules", "-m", default=1_000, type=_SOME, show_default=True, help="How many, all due every ten seconds."
)
@click.option("--periods", default=3, type=_SOME, show_default=True, help="How many instants are counted.")
def recurring(url: str | None, as_json: bool, processes: int, concurrency: int, schedules: int, periods: int) -> None:
    """How late schedules fire that are due together."""
    from duly.cli.bench import measures  # noqa: PLC0415  # imports asyncio and more

    _run("beat", url, as_json, concurrency, schedules, lambda a, p: measures.recurring(a, processes, periods, p))


@bench.command()
@_URL
@json_option
@click.option("--seconds", default=5.0, type=click.FloatRange(0), show_default=True, help="How long the handler takes.")
def recovery(url: str | None, as_json: bool, seconds: float) -> None:
    """How soon a killed worker's run begins again."""
    from duly.cli.bench import measures  # noqa: PLC0415  # imports asyncio and more

    _run("linger", url, as_json, 10, 0, lambda a, p: measures.recovery(a, seconds, p))


@bench.command()
@_URL
@json_option
@click.option("--schedules", "-m", default=20_000, type=_SOME, show_default=True, help="How many daily schedules.")
@click.option("--seconds", default=20.0, type=click.FloatRange(1), show_default=True, help="How long to watch.")
def idle(url: str | None, as_json: bool, schedules: int, seconds: float) -> None:
    """What a node costs that has nothing to do."""
    from duly.cli.bench import measures  # noqa: PLC0415  # imports asyncio and more

    _run("idle", url, as_json, 10, schedules, lambda a, p: measures.idle(a, seconds, p))


def _run(
    kind: str, url: str | None, as_json: bool, concurrency: int, schedules: int, measure: Callable[..., Any]
) -> None:
    from duly.cli.bench.report import circumstances, show  # noqa: PLC0415  # imports asyncio and more
    from duly.cli.bench.worker_kinds import Assignment  # noqa: PLC0415
    from duly.scheduler.run_forever import run_alone  # noqa: PLC0415

    with _store(url) as (address, namespace), _bar() as progress:
        assignment = Assignment(kind, address, namespace, concurrency, schedules, *_parts(url))
        figures = run_alone(measure(assignment, progress))
        result = {"bench": click.get_current_context().info_name, **figures, **circumstances(address)}
    click.echo(json.dumps(result) if as_json else show(result))


def _parts(url: str | None) -> tuple[str | None, str | None]:
    """What a store that was named has beside it: the queue and the coordinator."""
    return (None, None) if url is None else (os.environ.get("DULY_QUEUE"), os.environ.get("DULY_COORDINATOR"))


@contextmanager
def _store(url: str | None) -> Iterator[tuple[str, str]]:
    """The store to measure, and a namespace that nobody else uses."""
    import secrets  # noqa: PLC0415

    namespace = f"bench_{secrets.token_hex(4)}"
    if url is not None:
        yield (f"memory://{namespace}" if url == "memory://" else url), namespace
        return
    with tempfile.TemporaryDirectory(prefix="duly-bench-") as folder:
        yield f"sqlite:///{Path(folder) / 'bench.db'}", namespace


@contextmanager
def _bar() -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda _what, _done, _total: None
        return
    from rich.console import Console  # noqa: PLC0415  # only terminals need it
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description:<16}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=max(1, total))
