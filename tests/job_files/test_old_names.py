"""The names that job files had in 0.1.0 still work for one release, and each use names the new one."""

import importlib

import msgspec
import pytest
from tests.cli.cli_support import ask, document, invoke

from duly.job_files import JobFileError, Problem, read_file, read_text
from duly.model import EPOCH, JobFile, JobRecord, JobSpec, Origin, event
from duly.model.event import JobFileApplied, JobFileOutdated
from duly.rules.job_files import difference
from duly.testing import sim
from duly.testing.sim.cluster import SimCluster

OLD = 'fleet = "ops"\n[jobs.x]\ncommand = ["true"]\n'
RECORD = JobRecord("1", JobSpec("x", "x"), 1, Origin.FILE, EPOCH, EPOCH, job_file="ops")


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("duly.fleet", "FleetFile", JobFile),
        ("duly.fleet", "FleetFileError", JobFileError),
        ("duly.fleet", "Problem", Problem),
        ("duly.fleet", "read_file", read_file),
        ("duly.fleet", "read_text", read_text),
        ("duly.model.event", "FleetApplied", JobFileApplied),
        ("duly.model.event", "FleetOutdated", JobFileOutdated),
        ("duly.testing.sim", "Fleet", SimCluster),
    ],
)
def test_an_old_name_in_a_module_is_the_new_thing(module, old, new):
    with pytest.warns(DeprecationWarning, match=rf"{module}\.{old} is deprecated: use duly\..*{new.__name__}"):
        assert getattr(importlib.import_module(module), old) is new


@pytest.mark.parametrize("module", [event, sim])
def test_other_names_are_missing_as_before(module):
    with pytest.raises(AttributeError, match=f"module '{module.__name__}' has no attribute 'Nothing'"):
        _ = module.Nothing


@pytest.mark.parametrize(
    "having", [JobFileApplied("ops", ()), JobFileOutdated("ops", EPOCH), difference(JobFile("ops", ()), [])]
)
def test_an_old_attribute_has_the_new_value(having):
    with pytest.warns(DeprecationWarning, match="fleet is deprecated: use job_file"):
        assert having.fleet == having.job_file


def test_the_jobs_of_a_file_are_found_under_the_old_attribute():
    file = read_text(OLD)
    with pytest.warns(DeprecationWarning, match="use the job file itself"):
        assert file.fleet.jobs == file.jobs


def test_a_stored_job_keeps_the_old_field():
    """So that nodes of 0.1.0 on the same store know which file a job belongs to."""
    stored = msgspec.json.encode(RECORD)
    assert b'"fleet":"ops"' in stored
    assert msgspec.json.decode(stored, type=JobRecord) == RECORD


def test_the_old_key_of_a_file_is_read_with_a_message():
    file = read_text(OLD)
    assert file.name == "ops"
    assert file.deprecations == ('jobs.toml:1:1: fleet: fleet is deprecated: write name = "ops"',)
    assert read_text(OLD.replace("fleet", "name")).deprecations == ()


def test_a_file_has_one_name():
    with pytest.raises(JobFileError, match=r"jobs\.toml:2:1: fleet: unknown key 'fleet'"):
        read_text(f'name = "ops"\n{OLD}')


def test_commands_say_once_that_a_key_is_deprecated(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs.toml").write_text(OLD)
    said = invoke("check", "jobs.toml")
    assert said.stderr == 'jobs.toml:1:1: fleet: fleet is deprecated: write name = "ops"\n'
    assert said.stdout.startswith("jobs.toml is valid: job file ops, 1 job\n")


def test_documents_have_the_old_key_beside_the_new_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs.toml").write_text(OLD.replace("fleet", "name"))
    ask("sqlite:///duly.db", lambda scheduler: scheduler.jobs())
    [applied, checked] = [document("apply", "jobs.toml", "--yes"), document("check", "jobs.toml")]
    [listed] = document("jobs")
    for found in (applied, checked, listed, document("show", "x")):
        assert (found["job_file"], found["fleet"]) == ("ops", "ops")
