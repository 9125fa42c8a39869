"""`duly run`: loading programs, real processes, signals, and several nodes on one file."""

import json
import os
import signal
import sys

import pytest
from tests.cli.cli_support import document, invoke, run_process, spawn, until

from duly import Scheduler
from duly.cli.app import BrokenApp, load_app
from duly.errors import ConfigurationError

# --- loading


@pytest.fixture
def module(tmp_path, monkeypatch, request):
    """Writes modules that are forgotten after the test."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def write(text: str, name: str = f"prog_{os.getpid()}_{abs(hash(request.node.nodeid))}") -> str:
        (tmp_path / f"{name}.py").write_text(text)
        return name

    yield write
    for name in set(sys.modules) - before:
        if not name.startswith("duly"):
            del sys.modules[name]


def test_an_attribute_is_taken(module):
    name = module("import duly\nclass box: inner = duly.Scheduler()\none = duly.Scheduler()\ntwo = duly.Scheduler()\n")
    assert load_app(f"{name}:one") is sys.modules[name].one
    assert load_app(f"{name}:box.inner") is sys.modules[name].box.inner


def test_the_only_scheduler_is_found(module):
    name = module("from duly import Scheduler\nhere = there = Scheduler()\n")
    assert isinstance(load_app(name), Scheduler)


@pytest.mark.parametrize(
    ("text", "app", "message"),
    [
        (
            "from duly import Scheduler\na = Scheduler()\nb = Scheduler()\n",
            "{}",
            "several schedulers: name one of {0}:a, {0}:b",
        ),
        ("x = 1\n", "{}", "has no Scheduler: write scheduler = Scheduler()"),
        ("from duly import Scheduler\nqueue = Scheduler()\n", "{}:scheduler", "has no 'scheduler': write {0}:queue"),
        ("shceduler = 1\n", "{}:scheduler", "has no Scheduler at all; similar names are shceduler"),
        (
            "from duly import Scheduler\nmain = len\nqueue = Scheduler()\n",
            "{}:main",
            "is a builtin_function_or_method, not a Scheduler",
        ),
        ("", "{}:", "expected module:attribute"),
        ("", "not-a-module", "expected module:attribute"),
        ("", "jobs/app.py:scheduler", "is a file: write its module, jobs.app:scheduler"),
        ("", "./app.py", "is a file: write its module, app"),
        ("", "no_such_module_at_all", "there is no module 'no_such_module_at_all'"),
        ("", "no_such_package_at_all.jobs:x", "there is no module 'no_such_package_at_all'"),
    ],
)
def test_what_is_wrong_is_said_with_the_way_out(module, text, app, message):
    name = module(text)
    with pytest.raises(ConfigurationError) as caught:
        load_app(app.format(name))
    assert message.format(name) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def f():\n    raise KeyError('secret drawer')\nf()\n", "KeyError: 'secret drawer'"),
        ("import no_such_module_either\n", "No module named 'no_such_module_either'"),
        ("x = = 1\n", "SyntaxError"),
    ],
)
def test_a_module_that_breaks_shows_its_own_traceback(module, text, message):
    name = module(text)
    with pytest.raises(BrokenApp) as caught:
        load_app(name)
    assert message in str(caught.value)
    tail = "\n".join(caught.value.traceback)
    assert f"{name}.py" in tail
    assert "importlib" not in tail
    assert "duly/cli" not in tail


def test_the_command_says_what_is_wrong(tmp_path):
    (tmp_path / "broken.py").write_text("raise RuntimeError('out of order')\n")
    code, output, errors = run_process("run", "broken", folder=tmp_path)
    assert (code, output) == (1, "")
    assert 'broken.py", line 1' in errors
    assert errors.splitlines()[-1] == "Error: importing 'broken' failed: RuntimeError: out of order"
    assert "site-packages" not in errors


def test_without_a_program_there_is_nothing_to_run():
    assert "DULY_APP" in invoke("run", code=2).stderr


@pytest.mark.parametrize(
    ("arguments", "environment", "code", "message"),
    [
        (("x", "--shutdown-timeout", "long"), {}, 2, "invalid duration"),
        (("x", "-c", "0"), {}, 2, "0 is not in the range"),
        (("x", "--role", "boss"), {}, 2, "'boss' is not one of"),
        (("x", "--log-level", "loud"), {}, 2, "'loud' is not one of"),
        (("x",), {"LOG_LEVEL": "loud"}, 1, "invalid log level 'loud': expected one of"),
        (("x",), {"DULY_LOG_FORMAT": "xml"}, 1, "invalid log format 'xml': expected one of"),
    ],
)
def test_mistakes(arguments, environment, code, message):
    assert message in invoke("run", *arguments, code=code, **environment).stderr


# --- real processes


def test_a_program_runs_until_it_is_told_to_stop(nodes, tmp_path):
    process = nodes.start("--log-format", "json")
    nodes.ready(process)
    until(lambda: document("runs", "beat", "--state", "completed"), "the job ran")
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    lines = [json.loads(each) for each in errors.splitlines()]
    assert any("stopped" in each["message"] for each in lines)
    assert nodes.alive() == []


def test_a_stop_waits_for_what_runs(nodes, tmp_path):
    process = nodes.start()
    nodes.ready(process)
    run_id = invoke("submit", "linger", "seconds=1", "mark=a").stdout.strip()
    until((tmp_path / "a.begun").exists, "it runs")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert (tmp_path / "a.ended").exists()
    assert document("show", run_id)["state"] == "completed"


def test_a_second_signal_does_not_wait(nodes, tmp_path):
    process = nodes.start()
    nodes.ready(process)
    run_id = invoke("submit", "linger", "seconds=300", "mark=a").stdout.strip()
    until((tmp_path / "a.begun").exists, "it runs")
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    while "second signal stops at once" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert document("show", run_id)["state"] in {"pending", "queued"}


def test_two_nodes_share_the_work(nodes, tmp_path):
    first, second = nodes.start("-c", "1"), nodes.start("-c", "1")
    nodes.ready(first, second)
    invoke("submit", "linger", "seconds=300", "mark=a")
    until((tmp_path / "a.begun").exists, "one of them is busy")
    [busy] = {run["node"] for run in document("runs", "linger")}
    # Whoever is free does the rest.
    pids = {json.loads(invoke("submit", "whoami", "--wait", "--timeout", "30s").stdout) for _ in range(3)}
    free = {str(first.pid), str(second.pid)} - {str(node["pid"]) for node in document("nodes") if node["id"] == busy}
    assert pids == free


def test_a_submission_is_answered(nodes, tmp_path):
    process = nodes.start("-q", "mail", "-q", "default")
    nodes.ready(process)
    code, output, errors = run_process("submit", "greet", "name=Ada", "times=2", "--wait", folder=tmp_path)
    assert (code, json.loads(output)) == (0, "hello Ada hello Ada")
    code, output, errors = run_process("trigger", "explode", "--wait", "--timeout", "30s", folder=tmp_path)
    assert (code, output) == (1, "")
    assert "ValueError: kaboom" in errors.splitlines()[-1]
    assert errors.splitlines()[-1].startswith("Error: run ")
    code, output, errors = run_process("submit", "greet", "nmae=Ada", "--wait", folder=tmp_path)
    assert code == 1
    assert "PayloadError" in errors
    assert "no live worker has the handler 'nobody'" in invoke("submit", "nobody", "--force").stderr


def test_interrupting_a_wait_leaves_the_run_alone(ids, tmp_path):
    waiting = spawn("submit", "greet", "name=Eve", "--wait", folder=tmp_path)
    run = until(lambda: document("runs", "--state", "queued"), "it is submitted")[0]
    assert waiting.stderr is not None
    assert "no worker is alive" in waiting.stderr.readline()
    assert "waiting for run" in waiting.stderr.readline()
    waiting.send_signal(signal.SIGINT)
    output, errors = waiting.communicate(timeout=60)
    assert (waiting.returncode, output) == (130, "")
    assert "Traceback" not in errors
    assert f"the run continues: duly show {run['id']}" in errors
    assert document("show", run["id"])["state"] == "queued"


def test_settings_reach_the_node(nodes, tmp_path):
    (tmp_path / "duly.toml").write_text(
        'url = "sqlite:///toml.db"\napp = "app"\nconcurrency = 4\nlog_format = "JSON"\n'
    )
    nodes.url = f"sqlite:///{tmp_path}/toml.db"
    process = spawn("run", "--role", "worker", folder=tmp_path, WORKER_ID="w7")
    nodes.processes.append(process)
    nodes.ready(process)
    [node] = document("nodes")
    assert (node["id"], node["capacity"], node["roles"]) == ("w7", 4, ["worker"])
    assert json.loads(process.stderr.readline())["level"] == "INFO"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert not (tmp_path / "duly.db").exists()


def test_the_flag_comes_before_the_url_in_code(nodes, tmp_path):
    (tmp_path / "app.py").write_text("from duly import Scheduler\nscheduler = Scheduler('sqlite:///code.db')\n")
    nodes.url = f"sqlite:///{tmp_path}/flag.db"
    process = spawn("run", "app", "--url", nodes.url, folder=tmp_path, DULY_URL="sqlite:///variable.db")
    nodes.processes.append(process)
    nodes.ready(process)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    nodes.url = f"sqlite:///{tmp_path}/code.db"
    process = spawn("run", "app", folder=tmp_path, DULY_URL="sqlite:///variable.db")
    nodes.processes.append(process)
    nodes.ready(process)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert not (tmp_path / "variable.db").exists()


def test_what_the_store_cannot_promise_is_one_line(tmp_path):
    (tmp_path / "app.py").write_text(
        "from duly import Scheduler\nscheduler = Scheduler('memory://')\n"
        "@scheduler.job(delivery='exactly_once')\nasync def once(): ...\n"
    )
    code, _, errors = run_process("run", "app", folder=tmp_path)
    assert code == 1
    assert errors.startswith("Error: job 'once' is exactly_once")
    assert len(errors.splitlines()) == 1
