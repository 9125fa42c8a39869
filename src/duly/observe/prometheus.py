"""Prometheus: metrics and counts in the format of a scraper. Needs the extra `prometheus`.

`DulyCollector` is a collector for your own registry; `exposition` is the API's response: that collector, and all
metrics in the package's default registry (by default the process's memory, CPU and files).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from datetime import datetime

from msgspec import Struct

from duly.errors import MissingExtra
from duly.model import Counts, State
from duly.observe.metrics import Histogram, MetricsRecorder

try:
    from prometheus_client import REGISTRY, Metric
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.exposition import choose_encoder
except ImportError as exc:
    raise MissingExtra("metrics for Prometheus", "prometheus") from exc

_EVENTS = {
    "leader_changes": "Times this process won or lost the leadership.",
    "shard_changes": "Times this process won or lost the leadership of another shard.",
    "claims_lost": "Leases this process could not keep.",
    "reaped": "Runs of vanished workers that this process took over.",
    "settlements_refused": "Results that arrived too late.",
    "settlements_abandoned": "Outcomes that could not be stored at all.",
    "records_unreadable": "Stored runs and jobs that could not be read.",
    "services_failed": "Failures of a service of this node.",
    "store_away": "Times a service could not reach the store.",
    "data_losses": "Times a service found that the store had lost acknowledged changes.",
    "clock_jumps": "Jumps of the store's clock that were not accepted at once.",
    "loop_stalls": "Times the event loop was blocked for long.",
}


_LIVE = (State.QUEUED, State.PENDING, State.RUNNING)


class Snapshot(Struct, frozen=True):
    """What is known at the time of a scrape; has no counts if the store was not queried.

    `process` is the number of this process if several serve one port: metrics of the process get it as a label, so that
    responses from different processes do not mix.
    """

    meters: MetricsRecorder
    counts: Counts | None = None
    now: datetime | None = None
    leads: bool = False
    busy: int = 0
    shards: int = 0
    process: int | None = None


class DulyCollector:
    """For a registry of `prometheus_client`: `registry.register(DulyCollector(meters))`."""

    def __init__(self, snapshot: MetricsRecorder | Callable[[], Snapshot]) -> None:
        self._snapshot: Callable[[], Snapshot]
        if isinstance(snapshot, MetricsRecorder):
            self._snapshot = lambda: Snapshot(snapshot)
        else:
            self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        snapshot = self._snapshot()
        yield from _of_process(_runs(snapshot.meters), snapshot.process)
        yield from _of_process(_node(snapshot), snapshot.process)
        if snapshot.counts is not None:
            yield from _waiting(snapshot.counts, snapshot.now)


def exposition(snapshot: Snapshot, accept: str) -> tuple[bytes, str]:
    """The text and its content type, according to the scraper's `Accept` header."""
    encoder, content_type = choose_encoder(accept)
    return encoder(_Both(DulyCollector(lambda: snapshot), snapshot.process)), content_type


class _Both:
    """The program's own registry and Duly's metrics as one."""

    def __init__(self, own: DulyCollector, process: int | None) -> None:
        self._own = own
        self._process = process

    def collect(self) -> Iterator[Metric]:
        yield from self._own.collect()
        yield from _of_process(REGISTRY.collect(), self._process)


def _of_process(metrics: Iterable[Metric], process: int | None) -> Iterator[Metric]:
    """Metrics with the number of their process as a label, if it has one."""
    for metric in metrics:
        if process is None:
            yield metric
            continue
        labelled = copy(metric)
        labelled.samples = [
            sample._replace(labels={**sample.labels, "process": str(process)}) for sample in metric.samples
        ]
        yield labelled


def _runs(meters: MetricsRecorder) -> Iterator[Metric]:
    started = CounterMetricFamily("duly_runs_started", "Attempts started here.", labels=["job", "queue"])
    for labels, count in meters.started.copy().items():
        started.add_metric(labels, count)
    yield started
    ended = CounterMetricFamily("duly_runs_ended", "Attempts ended here.", labels=["job", "queue", "outcome"])
    for (job, queue, outcome), count in meters.ended.copy().items():
        ended.add_metric([job, queue, outcome], count)
    yield ended
    yield _histograms("duly_run_duration_seconds", "How long attempts took.", "job", meters.seconds)
    yield _histograms("duly_run_lateness_seconds", "How long after being ready a run started.", "job", meters.lateness)


def _node(snapshot: Snapshot) -> Iterator[Metric]:
    meters = snapshot.meters
    yield GaugeMetricFamily("duly_is_leader", "Whether this process is the leader.", value=float(snapshot.leads))
    yield GaugeMetricFamily(
        "duly_shards_led", "Shards that this process leads and plans.", value=float(snapshot.shards)
    )
    yield GaugeMetricFamily("duly_slots_busy", "Handlers running in this process.", value=float(snapshot.busy))
    for name, words in _EVENTS.items():
        yield CounterMetricFamily(f"duly_{name}", words, value=float(meters.events[name]))
    yield _histogram("duly_claim_batch_runs", "Runs per claim.", meters.claimed)
    yield _histogram("duly_settle_batch_runs", "Results per settlement.", meters.settled)
    yield _histogram("duly_loop_lag_seconds", "Lag of the event loop.", meters.loop_lag)
    yield _histograms("duly_store_latency_seconds", "How long calls to the store took.", "call", meters.store)


def _waiting(counts: Counts, now: datetime | None) -> Iterator[Metric]:
    runs = GaugeMetricFamily("duly_runs", "Runs that have not ended, by state.", labels=["state"])
    more = GaugeMetricFamily("duly_runs_at_least", "Whether duly_runs is a lower bound.", labels=["state"])
    total = CounterMetricFamily("duly_runs_final", "Runs ended since the store was created.", labels=["state"])
    for state in State:
        if state in _LIVE:
            runs.add_metric([state.value], counts.states.get(state, 0))
            more.add_metric([state.value], float(state in counts.at_least))
        else:
            total.add_metric([state.value], counts.states.get(state, 0))
    yield from (runs, more, total)
    yield from _queues(counts, now)


def _queues(counts: Counts, now: datetime | None) -> Iterator[Metric]:
    by_state = ["queue", "state"]
    depth = GaugeMetricFamily("duly_queue_runs", "Runs of a queue, by state.", labels=by_state)
    more = GaugeMetricFamily("duly_queue_runs_at_least", "Whether duly_queue_runs is a lower bound.", labels=by_state)
    oldest = GaugeMetricFamily("duly_queue_oldest_seconds", "How long the oldest due run has waited.", labels=["queue"])
    paused = GaugeMetricFamily("duly_queue_paused", "Whether a queue is paused.", labels=["queue"])
    for name, queue in counts.queues.items():
        for state, count in zip(_LIVE, (queue.queued, queue.pending, queue.running), strict=True):
            depth.add_metric([name, state.value], count)
            more.add_metric([name, state.value], float(state in queue.at_least))
        age = 0.0 if queue.oldest is None or now is None else max(0.0, (now - queue.oldest).total_seconds())
        oldest.add_metric([name], age)
        paused.add_metric([name], float(queue.paused))
    yield from (depth, more, oldest, paused)


def _histogram(name: str, words: str, histogram: Histogram) -> Metric:
    family = HistogramMetricFamily(name, words)
    family.add_metric([], histogram.cumulated(), histogram.total)
    return family


def _histograms(name: str, words: str, label: str, histograms: Mapping[str, Histogram]) -> Metric:
    family = HistogramMetricFamily(name, words, labels=[label])
    for key, histogram in _stable(histograms):
        family.add_metric([key], histogram.cumulated(), histogram.total)
    return family


def _stable(histograms: Mapping[str, Histogram]) -> Iterable[tuple[str, Histogram]]:
    """A copy: the loop may add a job while a scraper's thread reads."""
    return tuple(histograms.items())
