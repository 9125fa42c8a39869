"""`duly init`: the project it writes works as it is, and nothing is overwritten unasked."""

import os
import re
import signal
import subprocess
import sys

import pytest
import yaml
from tests.cli.cli_support import document, invoke, run_process, spawn, until

from duly.cli.init import FILES, content


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A new project, in which the commands are run."""
    folder = tmp_path / "a shop"
    told = invoke("init", str(folder)).stdout
    assert told.splitlines() == [
        *(f"created {folder / name}" for name in FILES),
        f"start it with: cd {folder} && duly run app:scheduler",
    ]
    monkeypatch.chdir(folder)
    return folder


def test_its_tests_pass(project):
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:schemathesis", "-p", "no:valkey"],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST")},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_its_job_file_is_valid(project):
    assert "jobs.toml is valid: job file commands, 2 jobs" in invoke("check", "jobs.toml").stdout


@pytest.mark.parametrize(("program", "job"), [("app:scheduler", "heartbeat"), ("jobs.toml", "tick")])
def test_it_runs(project, program, job):
    log = (project / "log").open("w")
    process = spawn("run", program, "--url", "sqlite:///duly.db", folder=project, stderr=log)
    try:
        until((project / "duly.db").exists, "the store is there")
        until(lambda: re.search(rf"INFO +duly.run: {job} \S+: completed in ", (project / "log").read_text()), "a line")
        url = ("--url", "sqlite:///duly.db")
        assert document("runs", job, "--state", "completed", *url)
        kinds = until(
            lambda: {each["kind"] for each in document("events", *url)} >= {"run.started", "run.ended"} or None
        )
        assert kinds
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        log.close()
    assert process.returncode == 0
    written = (project / "log").read_text()
    assert re.search(rf"^    {job} +every 5 seconds +next \d\d:\d\d:\d\d \(in ", written, re.MULTILINE)
    assert "Traceback" not in written


def test_its_compose_file_is_one(project):
    described = yaml.safe_load((project / "compose.yaml").read_text())
    assert described["services"]["redis"]["ports"] == ["127.0.0.1:6379:6379"]


def test_every_command_of_its_readme_exists(project):
    for command in re.findall(r"`(duly [^`]+)`", (project / "README.md").read_text()):
        assert "Usage: duly" in invoke(command.split()[1], "--help").stdout


def test_files_are_not_overwritten_unasked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").write_text("mine\n")
    (tmp_path / "jobs.toml").symlink_to(tmp_path / "elsewhere.toml")
    refused = invoke("init", code=1)
    assert "already has app.py, jobs.toml, nothing was written" in refused.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["app.py", "jobs.toml"]
    assert (tmp_path / "app.py").read_text() == "mine\n"
    told = invoke("init", "--force").stdout
    assert "overwrote app.py" in told
    assert "created README.md" in told
    assert (tmp_path / "app.py").read_text() == content("app.py")
    assert told.endswith("start it with: duly run app:scheduler\n")


def test_a_place_that_cannot_be_written_to_is_an_error_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    code, output, errors = run_process("init", "file/below", folder=tmp_path)
    assert (code, output) == (1, "")
    assert errors.startswith("Error: cannot write to file/below: ")
    assert len(errors.splitlines()) == 1
