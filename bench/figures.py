"""The figures of the README, from one run on this machine: `python -m bench.figures [--only Redis] [--markdown]`.

Every figure is measured by `duly bench` in a process of its own, next to what the bare machine does at that moment: how
late a timer is, how many rows SQLite commits, how many words redis-py pushes. A machine that is busy with something
else shows there first. With `--awake` no core falls asleep meanwhile (`bench.awake`).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from redis import Redis

from bench.awake import awake
from duly.testing.etcd_servers import etcd_server
from duly.testing.postgres_servers import postgres_server
from duly.testing.servers import redis_server

Figures = dict[str, Any]

SIZED = {"shared_buffers": "512MB", "wal_buffers": "16MB", "max_wal_size": "4GB"}
PUSHES = ((1, 5_000), (50, 1_000), (1_000, 100))  # so many to a pipeline, so many pipelines


@dataclass(frozen=True)
class Row:
    """One line of the table: what is measured by which command, how it is written, and the bar it should reach."""

    what: str
    command: tuple[str, ...]
    shown: Callable[[Figures], str]
    bar: str
    reached: Callable[[Figures], bool]
    merit: Callable[[Figures], float]


def rate(name: str) -> Callable[[Figures], str]:
    return lambda figures: f"{figures[name]:,} /s"


def more(name: str) -> Callable[[Figures], float]:
    return lambda figures: float(figures[name])


def less(name: str) -> Callable[[Figures], float]:
    return lambda figures: -float(figures[name])


def times(figures: Figures) -> str:
    return f"{figures['p50_ms']:.2f} / {figures['p99_ms']:.2f} ms"


def punctual(p50: float, p99: float) -> Callable[[Figures], bool]:
    return lambda found: found["p50_ms"] <= p50 and found["p99_ms"] <= p99 and _complete(found)


def _complete(found: Figures) -> bool:
    return not (found["early"] or found["missed"] or found["doubled"])


def at_least(name: str, bar: int) -> Callable[[Figures], bool]:
    return lambda found: bool(found[name] >= bar)


def drain(what: str, bar: int, *options: str) -> Row:
    return Row(
        what, ("drain", *options), rate("jobs_per_s"), f"{bar:,} /s", at_least("jobs_per_s", bar), more("jobs_per_s")
    )


def submit(single: int, concurrent: int, bulk: int) -> list[Row]:
    ways = (
        ("one by one", "single_per_s", single),
        ("50 at a time", "concurrent_per_s", concurrent),
        ("in bulk", "bulk_per_s", bulk),
    )
    return [
        Row(f"submit, {what}", ("submit",), rate(name), f"{bar:,} /s", at_least(name, bar), more(name))
        for what, name, bar in ways
    ]


def idle(schedules: int, megabytes: int, percent: float = math.inf) -> Row:
    return Row(
        f"idle, {schedules:,} schedule{'s' if schedules > 1 else ''}",
        ("idle", "-m", str(schedules)),
        lambda found: f"{found['cpu_percent']} % of a core, {found['worker_rss_mb']} MB",
        f"{megabytes} MB" if percent == math.inf else f"{percent:g} %, {megabytes} MB",
        lambda found: bool(found["cpu_percent"] <= percent and found["worker_rss_mb"] <= megabytes),
        less("worker_rss_mb"),
    )


def timely(what: str, command: tuple[str, ...], bar: str, reached: Callable[[Figures], bool]) -> Row:
    return Row(what, command, times, bar, reached, less("p99_ms"))


def recovery(seconds: float) -> Row:
    return Row(
        "a killed worker's run begins again",
        ("recovery",),
        lambda found: f"after {found['recovery_s']:.1f} s",
        f"{seconds:g} s",
        lambda found: bool(found["recovery_s"] <= seconds),
        less("recovery_s"),
    )


EMBEDDED = [
    drain("drain, memory", 60_000, "--url", "memory://"),
    drain("drain", 25_000),
    *submit(5_000, 30_000, 100_000),
    timely("latency, p50 / p99", ("latency",), "1.5 / 5 ms", punctual(1.5, 5)),
    timely("lateness, p50 / p99", ("lateness",), "1.5 / 5 ms", punctual(1.5, 5)),
    timely("1,000 schedules at once, p50 / p99", ("recurring",), "p99 50 ms", punctual(50, 50)),
    timely("20,000 schedules at once, p50 / p99", ("recurring", "-m", "20000"), "p99 900 ms", punctual(900, 900)),
    recovery(17),
    idle(20_000, 120, percent=1),
]
REDIS = [
    drain("drain", 40_000),
    *submit(6_000, 60_000, 120_000),
    timely("latency, p50 / p99", ("latency",), "0.8 / 2 ms", punctual(0.8, 2)),
    timely("lateness, p50 / p99", ("lateness",), "1 / 3 ms", punctual(1, 3)),
    timely("1,000 schedules at once, p50 / p99", ("recurring",), "p99 40 ms", punctual(40, 40)),
    timely("20,000 schedules at once, p50 / p99", ("recurring", "-m", "20000"), "p99 600 ms", punctual(600, 600)),
    recovery(17),
    idle(1, 60),
]
REDIS_WITH_LOG = [drain("drain", 30_000)]
POSTGRES = [
    drain("drain", 25_000),
    *submit(1_500, 10_000, 60_000),
    timely("latency, p50 / p99", ("latency",), "3 / 10 ms", punctual(3, 10)),
    timely("lateness, p50 / p99", ("lateness",), "3 / 10 ms", punctual(3, 10)),
    timely("1,000 schedules at once, p50 / p99", ("recurring",), "p99 100 ms", punctual(100, 100)),
    timely("20,000 schedules at once, p50 / p99", ("recurring", "-m", "20000"), "p99 1,000 ms", punctual(1000, 1000)),
    recovery(17),
    idle(1, 70),
]
SPLIT = [
    drain("drain", 12_000),
    timely("latency, p50 / p99", ("latency",), "3 / 10 ms", punctual(3, 10)),
]


@contextmanager
def redis(*, appendonly: bool) -> Iterator[str]:
    """A server of its own on this machine, without persistence or with its log synced every second."""
    with redis_server(appendonly=appendonly, config={"appendfsync": "everysec"}) as server:
        yield server.url


@contextmanager
def postgres() -> Iterator[str]:
    """A server of its own on this machine, with fsync on, and memory as for work (for tests it has little)."""
    with postgres_server(config=SIZED) as server:
        yield server.url


@contextmanager
def split() -> Iterator[str]:
    """PostgreSQL with Redis and etcd beside it, all on this machine; told to `duly bench` as a user would tell it."""
    with postgres_server(config=SIZED) as truth, redis_server() as delivery, etcd_server() as coordination:
        parts = {"DULY_QUEUE": delivery.url, "DULY_COORDINATOR": coordination.url}
        os.environ.update(parts)
        try:
            yield truth.url
        finally:
            for name in parts:
                del os.environ[name]


STORES: dict[str, tuple[list[Row], Callable[[], AbstractContextManager[str | None]]]] = {
    "SQLite": (EMBEDDED, nullcontext),
    "Redis": (REDIS, partial(redis, appendonly=False)),
    "Redis, AOF everysec": (REDIS_WITH_LOG, partial(redis, appendonly=True)),
    "PostgreSQL": (POSTGRES, postgres),
    "split stack": (SPLIT, split),
}


def measure(command: tuple[str, ...], url: str | None) -> Figures:
    """Run one `duly bench`; its words on standard error are for whoever watches."""
    store = () if url is None or "--url" in command else ("--url", url)
    arguments = [sys.executable, "-m", "duly", "bench", *command, *store, "--json"]
    figures: Figures = json.loads(subprocess.run(arguments, stdout=subprocess.PIPE, check=True).stdout)
    return figures


def bare_timer() -> str:
    """How much later than asked for a sleep of 10 ms ends."""
    late = []
    until = time.perf_counter() + 3
    while (begun := time.perf_counter()) < until:
        time.sleep(0.01)
        late.append((time.perf_counter() - begun - 0.01) * 1e3)
    late.sort()
    return f"{late[len(late) // 2]:.2f} / {late[int(len(late) * 0.99)]:.2f} ms"


def bare_sqlite(batch: int, batches: int) -> str:
    """How many rows per second a bare script commits, so many to a transaction."""
    with tempfile.TemporaryDirectory(prefix="duly-bare-") as folder:
        connection = sqlite3.connect(Path(folder) / "bare.db", isolation_level=None)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("CREATE TABLE t (id TEXT PRIMARY KEY, a INTEGER, b BLOB) WITHOUT ROWID")
        begun = time.perf_counter()
        for number in range(batches):
            connection.execute("BEGIN IMMEDIATE")
            rows = [(f"{number:013}{index:013}", index, b"x" * 50) for index in range(batch)]
            connection.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
            connection.execute("COMMIT")
        seconds = time.perf_counter() - begun
        connection.close()
    return f"{batch * batches / seconds:,.0f} rows/s"


def bare_import() -> str:
    """How long `import duly` takes, the best of five."""
    script = "import time; t = time.perf_counter(); import duly; print(time.perf_counter() - t)"
    taken = [float(subprocess.check_output([sys.executable, "-c", script])) for _ in range(5)]
    return f"{min(taken) * 1e3:.0f} ms"


def bare_redis() -> str:
    """How many words per second redis-py pushes, by the size of its pipelines."""
    with redis_server() as server, Redis.from_url(server.url) as client:
        client.ping()
        return " / ".join(f"{_pushed(client, size, times):,.0f}" for size, times in PUSHES) + " /s"


def _pushed(client: Redis, size: int, times: int) -> float:
    word = b"x" * 150
    begun = time.perf_counter()
    for _ in range(times):
        if size == 1:
            client.lpush("bare", word)
            continue
        pipeline = client.pipeline(transaction=False)
        for _ in range(size):
            pipeline.lpush("bare", word)
        pipeline.execute()
    return size * times / (time.perf_counter() - begun)


def machine() -> Iterator[tuple[str, str]]:
    yield "timer of 10 ms, p50 / p99 too late", bare_timer()
    yield "bare SQLite, one row a commit", bare_sqlite(1, 3_000)
    yield "bare SQLite, 100 rows a commit", bare_sqlite(100, 500)
    yield f"redis-py, pipelines of {' / '.join(f'{size:,}' for size, _ in PUSHES)}", bare_redis()


Found = dict[str, dict[tuple[str, ...], list[Figures]]]


def measure_all(chosen: list[str], rounds: int) -> Found:
    """Every figure of these stores, by command, of each round. Rounds go around, so that a noisy minute hits all."""
    found: Found = {store: {row.command: [] for row in STORES[store][0]} for store in chosen}
    for number, store in product(range(rounds), chosen):
        with STORES[store][1]() as url:
            for command, figures in found[store].items():
                sys.stderr.write(f"round {number + 1}, {store}: {' '.join(command)} …\n")
                figures.append(measure(command, url))
    return found


def best(row: Row, figures: list[Figures]) -> Figures:
    """The round in which this row came out best: what disturbs a measurement can only make it worse."""
    return max(figures, key=row.merit)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=STORES, action="append", help="measure this store (again: this one too)")
    parser.add_argument("--rounds", type=int, default=1, help="measure so often, and show the best of each figure")
    parser.add_argument("--awake", action="store_true", help="keep the cores from falling asleep meanwhile")
    parser.add_argument("--markdown", action="store_true", help="write the table as Markdown")
    parser.add_argument("--json", action="store_true", help="write one JSON document")
    options = parser.parse_args()
    with awake(options.awake):
        before = dict(machine())
        found = measure_all(options.only or list(STORES), max(1, options.rounds))
        after = dict(machine())
    if options.json:
        named = {store: {" ".join(command): each for command, each in all_.items()} for store, all_ in found.items()}
        print(json.dumps({"bare_before": before, "figures": named, "bare_after": after}, indent=2))
    else:
        _write(found, before, after, markdown=options.markdown)
    rows = [(row, best(row, all_[row.command])) for store, all_ in found.items() for row in STORES[store][0]]
    return 0 if all(row.reached(figures) for row, figures in rows) else 1


def _write(found: Found, before: dict[str, str], after: dict[str, str], *, markdown: bool) -> None:
    lines = [
        (store, row.what, row.shown(best(row, all_[row.command])), row.bar, _verdict(row, all_[row.command]))
        for store, all_ in found.items()
        for row in STORES[store][0]
    ]
    lines.append(("", "import duly", bare_import(), "80 ms", ""))
    lines += [("bare machine", what, f"{before[what]}; afterwards {after[what]}", "", "") for what in before]
    header = ("store", "what", "measured", "bar", "")
    [some, *_] = next(iter(next(iter(found.values())).values()))
    versions = ", ".join(f"{name} {version}" for name, version in some["versions"].items())
    if markdown:
        print("\n".join(f"| {' | '.join(line)} |" for line in (header, ("---",) * 5, *lines)))
    else:
        widths = [max(len(line[column]) for line in (header, *lines)) for column in range(4)]
        for line in (header, *lines):
            print("  ".join(part.ljust(width) for part, width in zip(line, (*widths, 0), strict=True)).rstrip())
    print(f"\n{versions}; {some['cpus']} cores")


def _verdict(row: Row, figures: list[Figures]) -> str:
    return "" if row.reached(best(row, figures)) else "not reached"


if __name__ == "__main__":
    sys.exit(main())
