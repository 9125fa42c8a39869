"""`duly check` and `duly apply`: what they say, what they change, and with which code they end."""

import json
import os
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.cli.cli_support import ask, document, invoke, run_on_terminal, run_process, spawn, until

from duly import Every, Job, Scheduler
from duly.cli import cli
from duly.cli import job_files as commands

FILE = """name = "ops"
timezone = "Europe/Berlin"

[jobs.backup]
cron = "30 2 * * *"
command = ["pg_dump", "shop"]
timeout = "10m"

[jobs.report]
every = "1h"
command = "report | mail"
shell = true
environment = { TOKEN = "s3cret" }
"""
BROKEN = FILE.replace("30 2", "30 25").replace("10m", "10x")


@pytest.fixture
def file(tmp_path):
    """A file of jobs, and an empty store in the current folder."""
    ask("sqlite:///duly.db", lambda scheduler: scheduler.jobs())
    path = tmp_path / "jobs.toml"
    path.write_text(FILE)
    return path


def names():
    return [job["name"] for job in document("jobs")]


# --- check


def test_check_shows_when_jobs_are_due_and_needs_no_store(tmp_path):
    (tmp_path / "jobs.toml").write_text(FILE)
    said = invoke("check", "jobs.toml").stdout
    assert said.startswith("jobs.toml is valid: job file ops, 2 jobs\n")
    assert "at 02:30 every day, Europe/Berlin: pg_dump shop" in said
    assert said.count("\n  next ") == 2
    assert not (tmp_path / "duly.db").exists()
    [backup, _] = document("check", "jobs.toml", "-n", "7")["jobs"]
    assert len(backup["next"]) == 7


@pytest.mark.parametrize("arguments", [("check",), ("apply", "--yes"), ("run",)])
def test_all_that_is_wrong_is_told_and_nothing_is_changed(file, arguments):
    invoke("apply", "jobs.toml")
    file.write_text(BROKEN.replace("[jobs.report]", "[jobs.other]"))
    result = invoke(*arguments, "jobs.toml", code=2)
    assert result.stdout == ""
    [first, *rest] = result.stderr.splitlines()
    assert first.startswith("jobs.toml:5:8: job backup, cron: cron expression '30 25 * * *': 25 is outside 0-23")
    assert rest == [
        "jobs.toml:7:11: job backup, timeout: invalid duration '10x': expected e.g. 90s, 10m, 1h30m or 500ms",
        "Error: jobs.toml has 2 problems, nothing was changed",
    ]
    assert names() == ["backup", "report"]


@pytest.mark.parametrize("arguments", [("check",), ("apply",), ("run",)])
def test_a_file_that_is_not_there_is_wrong_usage(arguments):
    assert "nowhere.toml cannot be read: No such file" in invoke(*arguments, "nowhere.toml", code=2).stderr


# --- apply


def test_apply_shows_the_difference_and_then_applies_it(file):
    assert "2 added, 0 changed, 0 removed, 0 unchanged" in invoke("apply", "jobs.toml").stdout
    file.write_text(FILE.replace("10m", "20m").replace("s3cret", "n3w") + '[jobs.new]\ncommand = ["true"]\n')
    said = invoke("apply", "jobs.toml").stdout
    assert said.startswith("job file ops on sqlite:///duly.db: 1 added, 2 changed, 0 removed, 0 unchanged\n")
    assert "+ new: when submitted: true\n" in said
    assert "~ backup: at 02:30 every day, Europe/Berlin: pg_dump shop\n    timeout: 600 s → 1200 s\n    next 2" in said
    assert "environment.TOKEN: set → set anew" in said
    assert "s3cret" not in said
    assert "n3w" not in said
    assert said.endswith("applied\n")
    file.write_text(FILE.partition("[jobs.report]")[0].replace("10m", "20m"))
    said = invoke("apply", "jobs.toml").stdout
    assert "- report: every hour: report | mail\n    no longer 2" in said
    assert names() == ["backup"]
    assert invoke("apply", "jobs.toml").stdout.endswith("0 added, 0 changed, 0 removed, 1 unchanged\n")


def test_apply_says_which_runs_appear_vanish_and_move(file):
    said = invoke("apply", "jobs.toml", "--dry-run").stdout
    assert "    appear: 720 runs in the next 30 days: 2" in said
    invoke("apply", "jobs.toml")
    file.write_text(FILE.replace("30 2 * * *", "30 4 * * *").replace("1h", "2h"))
    said = invoke("apply", "jobs.toml", "--dry-run").stdout
    assert " runs in the next 30 days, 2 hours later: 2" in said
    assert "    vanish: 360 runs in the next 30 days: 2" in said
    found = document("apply", "jobs.toml", "--dry-run")
    runs = {entry["name"]: entry["runs"] for entry in found["changed"]}
    assert (runs["report"]["vanish"], runs["report"]["stay"], runs["report"]["complete"]) == (360, 360, True)
    assert runs["backup"]["move"] >= 29
    assert len(runs["backup"]["moving"]) == 3
    file.write_text(FILE.replace("10m", "20m"))
    assert " runs in the next 30 days, as before\n" in invoke("apply", "jobs.toml", "--dry-run").stdout


def test_a_schedule_of_every_second_is_summed_up(file):
    invoke("apply", "jobs.toml")
    file.write_text(FILE.replace('"1h"', '"1s"'))
    said = invoke("apply", "jobs.toml", "--dry-run").stdout
    assert "in 30 days): 2" in said
    assert "(about 25" in said


def test_many_changed_jobs_are_summed_up(file):
    jobs = "".join(f'[jobs.job{number}]\nevery = "1d"\ncommand = ["true"]\n' for number in range(60))
    file.write_text(f'name = "ops"\n{jobs}')
    said = invoke("apply", "jobs.toml", "--dry-run").stdout
    assert said.count("appear:") == 50
    assert "… and 10 more jobs (10 added), of whose runs 300 appear, 0 vanish, 0 move; --json shows all" in said


def test_check_compares_with_a_store_and_writes_nothing(file):
    invoke("apply", "jobs.toml")
    file.write_text(FILE.replace("10m", "20m"))
    for arguments in (("--diff",), ("--url", "sqlite:///duly.db")):
        said = invoke("check", "jobs.toml", *arguments).stdout
        assert said.startswith("job file ops on sqlite:///duly.db: 0 added, 1 changed, 0 removed, 1 unchanged\n")
        assert "timeout: 600 s → 1200 s" in said
    assert document("check", "jobs.toml", "--diff")["applied"] is False
    assert invoke("check", "jobs.toml").stdout.startswith("jobs.toml is valid")
    assert document("show", "backup")["timeout"] == 600.0


def test_what_was_applied_is_in_the_audit_log_without_secrets(file):
    invoke("apply", "jobs.toml")
    file.write_text(FILE.partition("[jobs.report]")[0].replace("10m", "20m").replace("s3cret", "n3w"))
    invoke("apply", "jobs.toml")
    invoke("apply", "jobs.toml")
    entries = document("audit", "list")
    assert [(each["deed"]["action"], each["deed"]["target"]) for each in entries] == [("apply", "job file ops")] * 2
    assert all(each["deed"]["actor"].startswith("cli ") for each in entries)
    first, second = (each["deed"] for each in entries)
    assert (first["before"], list(first["after"])) == ({}, ["backup", "report"])
    assert second["before"]["report"] == {"schedule": "every hour", "command": "report | mail"}
    assert second["before"]["backup"]["timeout"] == "600 s"
    assert second["after"]["backup"]["timeout"] == "1200 s"
    assert "s3cret" not in str(entries)
    assert "n3w" not in str(entries)
    assert "none was changed" in invoke("audit", "verify").stdout


def test_a_dry_run_changes_nothing(file):
    said = invoke("apply", "jobs.toml", "--dry-run").stdout
    assert "+ backup" in said
    assert said.endswith("nothing was changed: --dry-run\n")
    assert names() == []
    assert document("apply", "jobs.toml", "--dry-run")["applied"] is False


def test_the_document_of_an_apply_has_it_all(file):
    invoke("apply", "jobs.toml")
    file.write_text(FILE.replace("10m", "20m").replace("jobs.report", "jobs.other"))
    found = document("apply", "jobs.toml")
    assert (found["job_file"], found["applied"], found["unchanged"], found["lost"]) == ("ops", True, [], [])
    assert [entry["name"] for entry in found["added"]] == ["other"]
    assert [entry["name"] for entry in found["removed"]] == ["report"]
    [changed] = found["changed"]
    assert changed["fields"] == [{"field": "timeout", "old": "600 s", "new": "1200 s"}]
    assert len(changed["next"]) == 3


def test_a_paused_job_stays_so_and_is_told_so(file):
    invoke("apply", "jobs.toml")
    invoke("pause", "backup")
    file.write_text(FILE.replace("10m", "20m"))
    assert "paused, and stays paused" in invoke("apply", "jobs.toml").stdout
    assert document("show", "backup")["status"] == "paused"


def test_a_clash_names_both_and_changes_nothing(file):
    async def define(scheduler: Scheduler) -> None:
        await scheduler.register(Job(handler=_nothing, name="backup", schedule=Every(hours=1)))

    ask("sqlite:///duly.db", define)
    for arguments in (("apply",), ("apply", "--dry-run"), ("run",)):
        result = invoke(*arguments, "jobs.toml", code=1)
        assert "job 'backup' of job file 'ops' is defined by code already" in result.stderr
    assert names() == ["backup"]


def _nothing() -> None: ...


def test_a_lost_race_is_reported_with_code_1(file, monkeypatch):
    invoke("apply", "jobs.toml")
    file.write_text(FILE.replace("10m", "20m"))
    shown = commands._write

    def meanwhile(*arguments):
        shown(*arguments)
        ask("sqlite:///duly.db", lambda scheduler: scheduler.pause("backup"))

    monkeypatch.setattr(commands, "_write", meanwhile)
    assert "backup changed in the meantime" in invoke("apply", "jobs.toml", code=1).stderr
    assert document("show", "backup")["timeout"] == 600


def test_the_file_says_where_unless_a_flag_does(tmp_path):
    for name in ("one", "two"):
        ask(f"sqlite:///{tmp_path}/{name}.db", lambda scheduler: scheduler.jobs())
    head = f'url = "sqlite:///{tmp_path}/one.db"\nnamespace = "ops"\n'
    (tmp_path / "jobs.toml").write_text(head + FILE)
    assert "one.db: 2 added" in invoke("apply", "jobs.toml", DULY_URL=f"sqlite:///{tmp_path}/two.db").stdout
    assert "one.db: 0 added" in invoke("apply", "jobs.toml").stdout
    assert "two.db: 2 added" in invoke("apply", "jobs.toml", "--url", f"sqlite:///{tmp_path}/two.db").stdout
    assert "one.db: 2 added" in invoke("apply", "jobs.toml", "--namespace", "else").stdout
    listed = document("jobs", "--url", f"sqlite:///{tmp_path}/one.db", "--namespace", "ops")
    assert [job["name"] for job in listed] == ["backup", "report"]


@pytest.mark.parametrize(("answer", "code", "after"), [("n", 1, []), ("y", 0, ["backup", "report"])])
def test_on_a_terminal_it_asks_first(file, monkeypatch, answer, code, after):
    monkeypatch.setattr(commands, "can_ask", lambda: True)
    result = CliRunner().invoke(cli, ["apply", "jobs.toml"], input=f"{answer}\n")
    assert result.exit_code == code
    assert result.stdout.index("+ backup") >= 0
    assert "Apply this?" in result.stderr
    assert names() == after


def test_with_yes_it_does_not_ask(file):
    code, said = run_on_terminal("apply", "jobs.toml", "--yes", folder=file.parent)
    assert (code, "Apply this?" in said, "applied" in said) == (0, False, True)


def test_apply_makes_no_store_of_its_own(tmp_path):
    (tmp_path / "jobs.toml").write_text(FILE)
    assert "there is no file" in invoke("apply", "jobs.toml", code=1).stderr
    assert not (tmp_path / "duly.db").exists()


# --- looking


def test_what_a_command_is_and_what_it_said_is_shown(tmp_path):
    text = 'name = "ops"\n[jobs.say]\ncommand = "echo hello; echo oh >&2"\nshell = true\ncwd = "/"\n'
    (tmp_path / "jobs.toml").write_text(f'{text}environment = {{ TOKEN = "s3cret" }}\n')
    node = spawn("run", "jobs.toml", folder=tmp_path)
    try:
        until(lambda: (tmp_path / "duly.db").exists() and document("nodes"), "it is up")
        assert json.loads(invoke("trigger", "say", "--wait").stdout)["exit_code"] == 0
        [run] = document("runs", "say")
        job, shown = invoke("show", "say").stdout, invoke("show", run["id"]).stdout
    finally:
        node.send_signal(signal.SIGTERM)
        _, errors = node.communicate(timeout=30)
    assert node.returncode == 0, errors
    assert "command       echo hello; echo oh >&2\n" in job
    assert "environment   TOKEN\n" in job
    assert "defined by    file ops, revision 1" in job
    assert "\nExit code 0\n\nStandard output\n  hello\n\nStandard error\n  oh\n" in shown
    assert "s3cret" not in job + shown + errors + invoke("show", "say", "--json").stdout


# --- reloading


def test_sighup_reloads_and_a_broken_file_changes_nothing(tmp_path):
    path = tmp_path / "jobs.toml"
    path.write_text(FILE)
    log = tmp_path / "log"
    with log.open("w") as errors:
        node = spawn("run", "jobs.toml", folder=tmp_path, stderr=errors)
    try:
        until(lambda: (tmp_path / "duly.db").exists() and document("nodes"), "it is up")
        until(lambda: names() == ["backup", "report"])
        path.write_text(BROKEN.replace("jobs.report", "jobs.other"))
        os.kill(node.pid, signal.SIGHUP)
        until(lambda: "was not reloaded" in log.read_text(), "it is told")
        assert "jobs.toml:7:11: job backup, timeout" in log.read_text()
        assert names() == ["backup", "report"]
        path.write_text(FILE.replace("jobs.report", "jobs.other"))
        os.kill(node.pid, signal.SIGHUP)
        until(lambda: "is reloaded: 2 jobs" in log.read_text(), "it is reloaded")
        assert names() == ["backup", "other"]
        assert "removed report" in log.read_text()
        path.write_text(FILE)
        os.kill(node.pid, signal.SIGHUP)
        until(lambda: log.read_text().count("is reloaded") == 2, "it is reloaded again")
        assert names() == ["backup", "report"]
        deeds = [each["deed"] for each in document("audit", "list")]
        assert [(each["action"], each["target"]) for each in deeds] == [("apply", "job file ops")] * 3
        assert all(each["actor"].startswith("node ") for each in deeds)
        assert [list(each["after"]) for each in deeds] == [["backup", "report"], ["other"], ["report"]]
        assert node.poll() is None
    finally:
        node.send_signal(signal.SIGTERM)
        node.communicate(timeout=30)
    assert node.returncode == 0


def test_the_example_runs(tmp_path):
    """`examples/jobs.toml`, as the documentation shows it."""
    example = Path(__file__).parents[2] / "examples" / "jobs.toml"
    (tmp_path / "jobs.toml").write_text(example.read_text())
    node = spawn("run", "jobs.toml", folder=tmp_path)
    try:
        until(lambda: (tmp_path / "duly.db").exists() and document("nodes"), "it is up")
        assert "%" in json.loads(invoke("trigger", "disk-usage", "--wait").stdout)["stdout"]
        until(lambda: document("runs", "heartbeat", "--state", "completed"), "it beats")
    finally:
        node.send_signal(signal.SIGTERM)
        _, errors = node.communicate(timeout=30)
    assert node.returncode == 0, errors
    assert run_process("check", str(example), folder=tmp_path)[0] == 0
