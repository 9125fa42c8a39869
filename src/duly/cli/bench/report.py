"""The result of a benchmark: figures, and the circumstances of the measurement."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import resource
import sqlite3
from collections.abc import Sequence
from typing import Any

from duly.cli.output import write_pairs
from duly.scheduler.run_forever import fastest_loop
from duly.version import __version__


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """p50, p99 and the maximum in milliseconds, and the number of early starts."""
    if not seconds:
        return {"p50_ms": float("nan"), "p99_ms": float("nan"), "max_ms": float("nan"), "early": 0}
    ordered = sorted(seconds)
    return {
        "p50_ms": round(rank(ordered, 0.50) * 1e3, 3),
        "p99_ms": round(rank(ordered, 0.99) * 1e3, 3),
        "max_ms": round(ordered[-1] * 1e3, 3),
        "early": sum(value < 0 for value in ordered),
    }


def rank(ordered: Sequence[float], share: float) -> float:
    """The value at this share of sorted values."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def circumstances(url: str) -> dict[str, Any]:
    """The machine and the versions with which a figure was measured."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    loop = fastest_loop()
    return {
        "backend": url.partition(":")[0],
        "cpu_seconds": round(own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime, 3),
        "rss_mb": round(max(own.ru_maxrss, children.ru_maxrss) / 1e3, 1),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "versions": {
            "duly": __version__,
            "python": platform.python_version(),
            "msgspec": importlib.metadata.version("msgspec"),
            "sqlite": sqlite3.sqlite_version,
            "loop": "asyncio" if loop is None else f"uvloop {importlib.metadata.version('uvloop')}",
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        },
    }


def write_result(result: dict[str, Any]) -> None:
    """Write a result as text, the figures first."""
    figures = [(key, _written(value)) for key, value in result.items() if key != "versions"]
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    write_pairs([*figures, ("versions", versions)])


def _written(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
