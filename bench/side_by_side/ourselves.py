"""Duly in the table: its own bench, through its own command line, on the same server."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from bench.side_by_side.figures import Measured
from bench.side_by_side.measures import Sizes
from bench.side_by_side.processes import Broken

_PATIENCE = 900.0
_KEYS: Mapping[str, Mapping[str, str]] = {
    "drain": {"drain": "jobs_per_s"},
    "submit": {"single": "single_per_s", "fifty": "concurrent_per_s", "bulk": "bulk_per_s"},
    "latency": {"latency_p50": "p50_ms", "latency_p99": "p99_ms"},
    "lateness": {"lateness_p50": "p50_ms", "lateness_p99": "p99_ms"},
    "recurring": {"recurring_p50": "p50_ms", "recurring_p99": "p99_ms"},
    "crowd": {"crowd_p50": "p50_ms", "crowd_p99": "p99_ms"},
}


def knows_redis() -> bool:
    """Whether this version of Duly can open the server that the others use."""
    return any(entry.name == "redis" for entry in importlib.metadata.entry_points(group="duly.backends"))


class Duly:
    """Measured like the peers, in processes of its own. Without a URL it uses a SQLite file that it throws away."""

    def __init__(self, url: str | None) -> None:
        self._url = url
        self.told: dict[str, str] = {}

    def measure(self, measure: str, sizes: Sizes) -> Measured:
        result = self._run(measure, sizes)
        self.told = result["versions"]
        figures = {key: float(result[told]) for key, told in _KEYS[measure].items()}
        remarks = tuple(f"{result[what]} {what}" for what in ("early", "doubled", "missed") if result.get(what))
        return Measured(figures, result.get("jobs", result.get("schedules", 0)), remarks)

    def _run(self, measure: str, sizes: Sizes) -> dict[str, Any]:
        kind = "recurring" if measure == "crowd" else measure
        command = [sys.executable, "-m", "duly", "bench", kind, "--json", *_size(measure, sizes)]
        if self._url is not None:
            command += ["--url", self._url]
        try:
            ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            raise Broken(f"duly bench {measure} did not end within {_PATIENCE:g} s") from None
        if ended.returncode:
            raise Broken(" ".join(ended.stderr.split())[-300:] or f"duly bench ended with {ended.returncode}")
        result: dict[str, Any] = json.loads(ended.stdout)
        return result


def _size(measure: str, sizes: Sizes) -> list[str]:
    match measure:
        case "drain":
            return ["--jobs", str(sizes.jobs)]
        case "submit":
            return ["--jobs", str(sizes.submissions)]
        case "latency":
            return ["--jobs", str(sizes.pings)]
        case "lateness":
            return ["--jobs", str(sizes.alarms)]
        case "crowd":
            return ["--schedules", str(sizes.crowd), "--periods", str(sizes.periods)]
        case _:
            return ["--schedules", str(sizes.schedules), "--periods", str(sizes.periods)]
