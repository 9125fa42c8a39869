"""The runner and the adapters' processes, with a job system that needs neither a server nor an environment."""

import platform
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from bench.side_by_side import environments
from bench.side_by_side.catalogue import Peer
from bench.side_by_side.measures import Bench, Sizes
from bench.side_by_side.processes import Broken, Process

PROGRAM = environments.python_command(Path(sys.executable))
TOY = Peer("toy", "Toy", "none", most=40, cannot={"bulk": "no"}, adapter="tests.bench.toy_adapter")
SIZES = Sizes(jobs=50, submissions=40, pings=5, alarms=10)


@pytest.fixture
def bench(tmp_path):
    return Bench(TOY, PROGRAM, str(tmp_path / "jobs"), lambda done, total: None)


def test_a_drain_is_counted_from_the_first_job_to_the_last_and_kept_within_the_peers_limit(bench):
    measured = bench.measure("drain", SIZES)
    assert measured.jobs == 40
    assert measured.figures["drain"] > 0
    assert measured.remarks == ()


def test_submissions_are_measured_in_every_way_that_the_peer_has(bench):
    assert set(bench.measure("submit", SIZES).figures) == {"single", "fifty"}


@pytest.mark.parametrize("measure", ["latency", "lateness"])
def test_jobs_start_after_they_were_submitted_or_due(bench, measure):
    measured = bench.measure(measure, SIZES)
    assert 0 <= measured.figures[f"{measure}_p50"] <= measured.figures[f"{measure}_p99"]
    assert measured.remarks == ()


def test_an_adapter_tells_the_versions_it_runs_with(bench):
    assert set(bench.versions()) == {"msgspec"}


def test_a_peer_that_does_not_run_says_why():
    with (
        Process(PROGRAM, {"adapter": "bench.side_by_side.adapters.arq", "role": "client", "url": ""}) as process,
        pytest.raises(Broken, match="No module named 'arq'"),
    ):
        process.hear("ready")


def test_a_worker_that_makes_no_headway_is_broken(tmp_path):
    told = {"adapter": TOY.module(), "role": "worker", "url": str(tmp_path)}
    with Process(PROGRAM, told) as worker, pytest.raises(Broken, match="stands still at 0 of 1 jobs"):
        worker.hear("ready")
        worker.until(1, lambda done, total: None, patience=0.01)


def test_an_environment_that_fits_its_requirements_is_taken_as_it_is(tmp_path):
    python = tmp_path / "saq" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    pinned = (environments.REQUIREMENTS / "saq.txt").read_bytes()
    made_from = sha256(pinned + platform.python_version().encode()).hexdigest()
    (tmp_path / "saq" / ".made-from").write_text(made_from)
    assert environments.environment("saq", tmp_path) == python


def test_packages_of_node_that_fit_their_lock_file_are_taken_as_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda program: program)
    (tmp_path / "bullmq" / "node_modules").mkdir(parents=True)
    locked = (environments.REQUIREMENTS / "bullmq" / "package-lock.json").read_bytes()
    (tmp_path / "bullmq" / ".made-from").write_text(sha256(locked).hexdigest())
    assert environments.node_packages("bullmq", tmp_path) == tmp_path / "bullmq"


def test_without_node_its_peers_cannot_be_installed(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda program: None)
    with pytest.raises(environments.CannotInstall, match=r"it needs Node\.js and npm"):
        environments.command("bullmq", "node", tmp_path)
