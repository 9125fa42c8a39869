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

_LAYOUTS = ("nodes", "scheduler", "queues", "full", "handlers")  # described in `worker_kinds`
_UNLIMITED = 2**53


@click.group(
    cls=Group,
    examples=(
        "duly bench drain --jobs 100000",
        "duly bench submit --url sqlite:///bench.db --json",
        "duly bench recurring --schedules 20000",
        "duly bench shards --schedules 100000 --nodes 4 --shards 8",
        "duly bench growth --sizes 10k,100k --history 0",
    ),
)
def bench() -> None:
    """Measure the performance that users see through the public API, on any backend.

    Each measurement uses a new namespace, so that it changes nothing else in the store.
    """


def _measurement(function: Callable[..., None]) -> click.Command:
    """A subcommand with `--url` and `--json`."""
    url = click.option(
        "--url",
        envvar=("DULY_URL", "DULY_STORE"),
        help="The store to measure, with DULY_QUEUE and DULY_COORDINATOR. Default: a temporary SQLite file.",
    )
    return bench.command()(url(json_option(function)))


def _number(*names: str, default: int, help: str) -> Callable[[Any], Any]:  # noqa: A002  # click's word
    return click.option(*names, default=default, type=click.IntRange(1), show_default=True, help=help)


def _most(name: str, help: str) -> Callable[[Any], Any]:  # noqa: A002  # click's word
    return click.option(name, default=_UNLIMITED, type=click.IntRange(0), help=help)


def _sizes(_context: click.Context, _parameter: click.Parameter, text: str) -> tuple[int, ...]:
    from duly.cli.bench.growth import parse_sizes  # noqa: PLC0415  # imports asyncio and more

    try:
        return parse_sizes(text)
    except ValueError as exc:
        raise click.BadParameter(str(exc)) from exc


def _workers(function: Callable[..., None]) -> Callable[..., None]:
    """`--processes` and `--concurrency`."""
    processes = _number("--processes", "-p", default=1, help="How many worker processes.")
    concurrency = _number("--concurrency", "-c", default=100, help="How many runs a worker executes at a time.")
    decorated: Callable[..., None] = processes(concurrency(function))
    return decorated


@_measurement
@_workers
@_number("--jobs", "-n", default=100_000, help="How many no-op jobs are submitted first.")
def drain(jobs: int, processes: int, **given: Any) -> None:
    """The number of runs per second that workers execute."""
    _measure("noop", given, lambda measures, *context: measures.drain(jobs, processes, *context))


@_measurement
@_number("--jobs", "-n", default=20_000, help="How many submissions, fifty at a time.")
def submit(jobs: int, **given: Any) -> None:
    """The number of submissions per second of one client."""
    _measure("noop", given, lambda measures, *context: measures.submit(jobs, *context))


@_measurement
@_workers
@_number("--jobs", "-n", default=500, help="How many submissions.")
@click.option(
    "--every",
    default="10ms",
    type=duration,
    metavar="DURATION",
    show_default=True,
    help="The time between two submissions. A long one measures the wake-up of idle workers.",
)
@click.option(
    "--layout",
    default="nodes",
    type=click.Choice(_LAYOUTS),
    show_default=True,
    help="The nodes; in all layouts but `nodes` some of them cannot start the runs.",
)
def latency(jobs: int, processes: int, every: float, layout: str, **given: Any) -> None:
    """The time from a submission to the start of its handler."""
    if layout != "nodes" and (given["url"] or "").startswith("memory:"):
        raise click.UsageError(f"--layout {layout} needs several processes, which memory:// does not support")
    _measure("ping", given, lambda measures, *context: measures.latency(layout, jobs, every, processes, *context))


@_measurement
@_workers
@_number("--jobs", "-n", default=1_000, help="How many one-time jobs within ten seconds.")
def lateness(jobs: int, processes: int, **given: Any) -> None:
    """The lateness of one-time jobs that are spread over ten seconds."""
    _measure("alarm", given, lambda measures, *context: measures.lateness(jobs, processes, *context))


@_measurement
@_workers
@_number("--schedules", "-m", default=1_000, help="How many, all due every ten seconds.")
@_number("--periods", default=3, help="How many due times are counted.")
def recurring(processes: int, periods: int, **given: Any) -> None:
    """The lateness of schedules that are due at the same time."""
    _measure("beat", given, lambda measures, *context: measures.recurring(processes, periods, *context))


@_measurement
@_number("--schedules", "-m", default=100_000, help="How many, all due every minute.")
@_number("--nodes", default=4, help="How many scheduler nodes.")
@_number("--shards", default=8, help="How many shards their planning is spread over.")
def shards(nodes: int, shards: int, **given: Any) -> None:
    """The processor time of planning on one node and on several, and the takeover from a node that is killed."""
    if (given["url"] or "").startswith("memory:"):
        raise click.UsageError("several nodes need several processes, which memory:// does not support")

    def measure(_: Any, *context: Any) -> Any:
        from duly.cli.bench import sharding  # noqa: PLC0415  # as `measures`

        return sharding.shards(nodes, shards, *context)

    _measure("minute", given, measure)


@_measurement
@click.option("--seconds", default=5.0, type=click.FloatRange(0), show_default=True, help="How long the handler takes.")
def recovery(seconds: float, **given: Any) -> None:
    """The time until the run of a killed worker starts again."""
    _measure("linger", given, lambda measures, *context: measures.recovery(seconds, *context))


@_measurement
@_number("--schedules", "-m", default=20_000, help="How many daily schedules.")
@click.option("--seconds", default=20.0, type=click.FloatRange(1), show_default=True, help="How long to measure.")
def idle(seconds: float, **given: Any) -> None:
    """The processor time and memory of an idle node."""
    _measure("idle", given, lambda measures, *context: measures.idle(seconds, *context))


@_measurement
@click.option(
    "--sizes",
    default="10k,100k,1M",
    callback=_sizes,
    show_default=True,
    help="The sizes to fill the store to, the smallest first.",
)
@_most("--schedules", help="The most schedules; 0 for none. Default: each size.")
@_most("--waiting", help="The most waiting runs; 0 for none. Default: each size.")
@_most("--history", help="The most ended runs; 0 for none. Default: each size.")
@click.option("--seconds", default=10.0, type=click.FloatRange(1), show_default=True, help="How long a leader is idle.")
def growth(sizes: tuple[int, ...], seconds: float, as_json: bool, **given: Any) -> None:
    """The costs of readings and of an idle leader while a store grows.

    Fills a new namespace with schedules, waiting runs and ended runs, and measures at each size. Fails if a cost more
    than doubles when the store has ten times as much, or exceeds its bar: 50 ms for the first screens, 200 ms for any
    other reading, 2 % of a core and 200 MB for an idle leader, 10 ms for one call of the server.

    What it writes stays in the store: use one that you can delete.
    """
    from duly.cli.bench.costs import as_document  # noqa: PLC0415
    from duly.cli.bench.filling import Amounts  # noqa: PLC0415
    from duly.cli.bench.growth import Plan, show  # noqa: PLC0415
    from duly.cli.bench.growth import growth as measure  # noqa: PLC0415

    plan = Plan(sizes, Amounts(*(given.pop(kind) for kind in ("schedules", "waiting", "history"))), seconds)
    result = _measured("growth", given, lambda _, *context: measure(plan, *context))
    click.echo(json.dumps(as_document(result)) if as_json else show(result))
    if result["failed"]:
        raise SystemExit(1)


def _measure(kind: str, given: dict[str, Any], measure: Callable[..., Any]) -> None:
    """Run a measurement and write its result."""
    from duly.cli.bench.report import write_result  # noqa: PLC0415

    result = _measured(kind, given, measure)
    if given["as_json"]:
        click.echo(json.dumps(result))
    else:
        write_result(result)


def _measured(kind: str, given: dict[str, Any], measure: Callable[..., Any]) -> dict[str, Any]:
    """Run a measurement with workers of this kind. `given` has the options that all share."""
    from duly.cli.bench import measures  # noqa: PLC0415  # imports asyncio and more
    from duly.cli.bench.report import circumstances  # noqa: PLC0415
    from duly.cli.bench.worker_kinds import Assignment  # noqa: PLC0415
    from duly.scheduler.run_forever import run_alone  # noqa: PLC0415

    url = given["url"]
    parts = (None, None) if url is None else (os.environ.get("DULY_QUEUE"), os.environ.get("DULY_COORDINATOR"))
    with _store(url) as (address, namespace), _bar() as progress:
        concurrency, schedules = given.get("concurrency", 10), given.get("schedules", 0)
        assignment = Assignment(kind, address, namespace, concurrency, schedules, *parts)
        figures = run_alone(measure(measures, assignment, progress))
        return {"bench": click.get_current_context().info_name, **figures, **circumstances(address)}


@contextmanager
def _store(url: str | None) -> Iterator[tuple[str, str]]:
    """The address of the store to measure, and a new namespace in it."""
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
