"""The measurements of a peer: drain, submit, latency, lateness, recurring, crowd, each as Duly's own bench makes it."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from msgspec import Struct

from bench.side_by_side.adapters.notes import PERIOD
from bench.side_by_side.catalogue import Peer, limits_of
from bench.side_by_side.environments import Command
from bench.side_by_side.figures import Measured
from bench.side_by_side.processes import Process, Progress
from duly.cli.bench.report import percentiles

_WARM = 20
_FIRST_BEAT = 180.0


class Sizes(Struct, frozen=True):
    """How large each measurement is."""

    jobs: int = 100_000
    submissions: int = 20_000
    pings: int = 500
    alarms: int = 1_000
    schedules: int = 1_000
    crowd: int = 20_000
    periods: int = 3


class Bench:
    """One peer with its program and its store, ready to be measured."""

    def __init__(self, peer: Peer, program: Command, url: str, progress: Progress) -> None:
        self._peer = peer
        self._program = program
        self._url = url
        self._progress = progress

    def versions(self) -> dict[str, str]:
        with self._process("versions") as process:
            versions: dict[str, str] = process.hear("versions")
            return versions

    def prepare(self) -> None:
        """Make the store empty and ready; what lives in Redis needs nothing but an empty server."""
        if self._peer.server != "redis":
            with self._process("prepare") as process:
                process.wait()

    def measure(self, measure: str, sizes: Sizes) -> Measured:
        return _MEASURES[measure](self, sizes)

    def drain(self, sizes: Sizes) -> Measured:
        jobs = limits_of(sizes.jobs, self._peer)
        with self._client() as client:
            client.order("put", jobs)
        with self._worker("noop") as worker:
            worker.until(jobs, self._progress)
            report = worker.report()
        remarks = _remarks(doubled=report["done"] - jobs)
        return Measured({"drain": jobs / report["seconds"]}, jobs, remarks)

    def submit(self, sizes: Sizes) -> Measured:
        jobs = limits_of(sizes.submissions, self._peer)
        ways = {"single": max(1, jobs // 10), "fifty": jobs, "bulk": jobs * 2}
        figures = {}
        with self._client() as client:
            client.order("single", 1)
            for way, count in ways.items():
                if way not in self._peer.cannot:
                    figures[way] = count / client.order(way, count)
        return Measured(figures, jobs)

    def latency(self, sizes: Sizes) -> Measured:
        with self._worker("ping", jobs=_WARM + sizes.pings) as worker:
            if not self._peer.embedded:
                with self._client() as client:
                    client.order("pings", _WARM)
                    worker.until(_WARM, self._progress)
                    client.order("pings", sizes.pings)
            worker.until(_WARM + sizes.pings, self._progress)
            report = worker.report()
        late = [value for _, value in report["marks"]][_WARM:]
        return _late("latency", late, sizes.pings)

    def lateness(self, sizes: Sizes) -> Measured:
        before = 0 if self._peer.embedded else 1
        with self._worker("alarm", jobs=sizes.alarms) as worker:
            if not self._peer.embedded:
                with self._client() as client:
                    client.order("single", before)
                    worker.until(before, self._progress)  # now it is known to be up
                    client.order("alarms", sizes.alarms)
            worker.until(before + sizes.alarms, self._progress)
            report = worker.report()
        return _late("lateness", [value for _, value in report["marks"]], sizes.alarms, _twice(report["marks"]))

    def recurring(self, sizes: Sizes) -> Measured:
        return self._aligned("recurring", sizes.schedules, sizes.periods)

    def crowd(self, sizes: Sizes) -> Measured:
        return self._aligned("crowd", sizes.crowd, sizes.periods)

    def _aligned(self, measure: str, schedules: int, periods: int) -> Measured:
        """Counted from the first instant at least ten seconds after the first beat, as Duly's own bench does."""
        with self._worker("beat", schedules=schedules) as worker:
            worker.until(1, self._progress, _FIRST_BEAT)
            first = (math.floor(time.time() / PERIOD) + 2) * PERIOD
            last = first + PERIOD * (periods - 1)
            end = last + PERIOD * 0.8
            while time.time() < end:
                self._progress(max(0, round(time.time() - first)), round(end - first))
                time.sleep(0.2)
            report = worker.report()
        beats = [mark for mark in report["marks"] if first <= int(mark[0].partition("@")[2]) <= last]
        expected = schedules * periods
        missed = expected - len({name for name, _ in beats})
        return _late(measure, [value for _, value in beats], schedules, _twice(beats), missed)

    @contextmanager
    def _worker(self, kind: str, jobs: int = 0, schedules: int = 0) -> Iterator[Process]:
        """One worker, and the process beside it that keeps time where this kind of job needs it."""
        told = {"kind": kind, "jobs": jobs, "schedules": schedules}
        with ExitStack() as stack:
            worker = stack.enter_context(self._process("worker", **told))
            worker.hear("ready")
            if kind in self._peer.keeps_time:
                stack.enter_context(self._process("keeper", **told))
            yield worker

    @contextmanager
    def _client(self) -> Iterator[Process]:
        with self._process("client") as client:
            client.hear("ready")
            yield client

    def _process(self, role: str, **told: Any) -> Process:
        return Process(self._program, {"adapter": self._peer.module(), "role": role, "url": self._url, **told})


_MEASURES: Mapping[str, Callable[[Bench, Sizes], Measured]] = {
    "drain": Bench.drain,
    "submit": Bench.submit,
    "latency": Bench.latency,
    "lateness": Bench.lateness,
    "recurring": Bench.recurring,
    "crowd": Bench.crowd,
}


def _late(prefix: str, late: Sequence[float], jobs: int, doubled: int = 0, missed: int = 0) -> Measured:
    told = percentiles(late)
    figures = {f"{prefix}_p50": told["p50_ms"], f"{prefix}_p99": told["p99_ms"]}
    return Measured(figures, jobs, _remarks(early=int(told["early"]), doubled=doubled, missed=missed))


def _twice(marks: Sequence[tuple[Any, float]]) -> int:
    return sum(times - 1 for times in Counter(name for name, _ in marks).values())


def _remarks(**counts: int) -> tuple[str, ...]:
    return tuple(f"{count} {what}" for what, count in counts.items() if count)
