"""The figures of the README, from one run on this machine: `python bench/figures.py [--url URL] [--markdown] [--json]`.

Every figure is measured by `duly bench` in a process of its own, next to what the bare machine does at that moment: how
late a timer is, how many rows SQLite commits. A machine that is busy with something else shows there first.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Figures = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One line of the table: what is measured by which command, how it is written, and the bar it should reach."""

    what: str
    command: tuple[str, ...]
    shown: Callable[[Figures], str]
    bar: str
    reached: Callable[[Figures], bool]


def rate(name: str) -> Callable[[Figures], str]:
    return lambda figures: f"{figures[name]:,} /s"


def times(figures: Figures) -> str:
    return f"{figures['p50_ms']:.2f} / {figures['p99_ms']:.2f} ms"


def punctual(p50: float, p99: float) -> Callable[[Figures], bool]:
    return lambda found: found["p50_ms"] <= p50 and found["p99_ms"] <= p99 and _complete(found)


def _complete(found: Figures) -> bool:
    return not (found["early"] or found["missed"] or found["doubled"])


SUBMIT = ("submit",)
EMBEDDED = [
    Row(
        "drain, memory",
        ("drain", "--url", "memory://"),
        rate("jobs_per_s"),
        "60,000 /s",
        lambda found: found["jobs_per_s"] >= 60_000,
    ),
    Row("drain, SQLite", ("drain",), rate("jobs_per_s"), "25,000 /s", lambda found: found["jobs_per_s"] >= 25_000),
    Row(
        "submit, one by one",
        SUBMIT,
        rate("single_per_s"),
        "5,000 /s",
        lambda found: found["single_per_s"] >= 5_000,
    ),
    Row(
        "submit, 50 at a time",
        SUBMIT,
        rate("concurrent_per_s"),
        "30,000 /s",
        lambda found: found["concurrent_per_s"] >= 30_000,
    ),
    Row("submit, in bulk", SUBMIT, rate("bulk_per_s"), "100,000 /s", lambda found: found["bulk_per_s"] >= 100_000),
    Row("latency, p50 / p99", ("latency",), times, "1.5 / 5 ms", punctual(1.5, 5)),
    Row("lateness, p50 / p99", ("lateness",), times, "1.5 / 5 ms", punctual(1.5, 5)),
    Row("1,000 schedules at once, p50 / p99", ("recurring",), times, "p99 50 ms", punctual(50, 50)),
    Row("20,000 schedules at once, p50 / p99", ("recurring", "-m", "20000"), times, "p99 900 ms", punctual(900, 900)),
    Row(
        "idle with 20,000 schedules",
        ("idle",),
        lambda found: f"{found['cpu_percent']} % of a core, {found['worker_rss_mb']} MB",
        "1 %, 120 MB",
        lambda found: found["cpu_percent"] <= 1 and found["worker_rss_mb"] <= 120,
    ),
]


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


def machine() -> Iterator[tuple[str, str]]:
    yield "timer of 10 ms, p50 / p99 too late", bare_timer()
    yield "bare SQLite, one row a commit", bare_sqlite(1, 3_000)
    yield "bare SQLite, 100 rows a commit", bare_sqlite(100, 500)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="measure this store instead of a SQLite file that is thrown away")
    parser.add_argument("--markdown", action="store_true", help="write the table as Markdown")
    parser.add_argument("--json", action="store_true", help="write one JSON document")
    options = parser.parse_args()
    before = dict(machine())
    found: dict[tuple[str, ...], Figures] = {}
    for row in EMBEDDED:
        if row.command not in found:
            sys.stderr.write(f"{' '.join(row.command)} …\n")
            found[row.command] = measure(row.command, options.url)
    after = dict(machine())
    if options.json:
        named = {" ".join(command): figures for command, figures in found.items()}
        print(json.dumps({"bare_before": before, "figures": named, "bare_after": after}, indent=2))
    else:
        _write(found, before, after, markdown=options.markdown)
    return 0 if all(row.reached(found[row.command]) for row in EMBEDDED) else 1


def _write(
    found: dict[tuple[str, ...], Figures], before: dict[str, str], after: dict[str, str], *, markdown: bool
) -> None:
    lines = [(row.what, row.shown(found[row.command]), row.bar, _verdict(row, found)) for row in EMBEDDED]
    lines.append(("`import duly`", bare_import(), "80 ms", ""))
    lines += [(f"bare: {what}", f"{before[what]}, then {after[what]}", "", "") for what in before]
    header = ("what", "measured", "bar", "")
    versions = ", ".join(f"{name} {version}" for name, version in next(iter(found.values()))["versions"].items())
    if markdown:
        print("\n".join(f"| {' | '.join(line)} |" for line in (header, ("---",) * 4, *lines)))
        print(f"\n{versions}; {next(iter(found.values()))['cpus']} cores")
        return
    widths = [max(len(line[column]) for line in (header, *lines)) for column in range(3)]
    for line in (header, *lines):
        print("  ".join(part.ljust(width) for part, width in zip(line, (*widths, 0), strict=True)).rstrip())
    print(versions)


def _verdict(row: Row, found: dict[tuple[str, ...], Figures]) -> str:
    return "reached" if row.reached(found[row.command]) else "not reached"


if __name__ == "__main__":
    sys.exit(main())
