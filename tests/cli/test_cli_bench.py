"""The measurements, in small: what they report is what happened. How fast it was is nobody's business here."""

import json

import pytest
from tests.cli.cli_support import document, invoke

ALWAYS = {"bench", "backend", "versions", "cpu_seconds", "rss_mb", "cpus"}
TIMES = {"p50_ms", "p99_ms", "max_ms", "early", "missed", "doubled"}


def test_drain_counts_every_job_once():
    figures = document("bench", "drain", "-n", "300", "-p", "2", "-c", "10")
    assert {*figures} >= ALWAYS | {"jobs_per_s", "missed", "doubled"}
    assert (figures["jobs"], figures["processes"], figures["missed"], figures["doubled"]) == (300, 2, 0, 0)
    assert figures["jobs_per_s"] > 0


def test_drain_on_memory_stays_in_one_process():
    figures = document("bench", "drain", "-n", "300", "--url", "memory://")
    assert (figures["backend"], figures["missed"], figures["doubled"]) == ("memory", 0, 0)


def test_submit_measures_three_ways():
    figures = document("bench", "submit", "-n", "100")
    assert {*figures} >= ALWAYS | {"single_per_s", "concurrent_per_s", "bulk_per_s"}
    assert all(figures[way] > 0 for way in ("single_per_s", "concurrent_per_s", "bulk_per_s"))


def test_latency_is_that_of_every_submission():
    figures = document("bench", "latency", "-n", "20")
    assert {*figures} >= ALWAYS | TIMES
    assert (figures["early"], figures["missed"], figures["doubled"]) == (0, 0, 0)
    assert 0 < figures["p50_ms"] <= figures["p99_ms"] <= figures["max_ms"]


@pytest.mark.parametrize("layout", ["scheduler", "queues", "full", "handlers"])
def test_latency_is_measured_where_some_nodes_cannot_start_the_runs(layout):
    figures = document("bench", "latency", "-n", "5", "--layout", layout)
    assert (figures["layout"], figures["jobs"], figures["missed"], figures["doubled"]) == (layout, 5, 0, 0)
    assert figures["processes"] == (3 if layout == "scheduler" else 2)


def test_memory_has_no_layouts():
    message = invoke("bench", "latency", "--url", "memory://", "--layout", "full", code=2).stderr
    assert "--layout full needs several processes, which memory:// does not support" in message


def test_memory_has_no_several_scheduler_nodes():
    message = invoke("bench", "shards", "--url", "memory://", code=2).stderr
    assert "several nodes need several processes, which memory:// does not support" in message


def test_memory_cannot_lose_a_worker():
    message = invoke("bench", "recovery", "--url", "memory://", "--seconds", "0.1", code=1).stderr
    assert "memory:// has only one process" in message


def test_another_store_can_be_measured_and_nothing_in_it_is_touched(tmp_path):
    url = f"sqlite:///{tmp_path / 'mine.db'}"
    document("bench", "submit", "-n", "50", "--url", url)
    assert json.loads(invoke("runs", "--json", "--url", url).stdout) == []


@pytest.mark.parametrize("arguments", [("drain", "-n", "0"), ("recurring", "-m", "-1"), ("drain", "-p", "0")])
def test_nothing_is_no_measurement(arguments):
    assert "is not in the range" in invoke("bench", *arguments, code=2).stderr
