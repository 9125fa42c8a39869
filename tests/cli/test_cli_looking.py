"""Looking: jobs, runs, one of them, why, nodes, the doctor. As text for people, as JSON for programs."""

import asyncio
import json
import re
from datetime import UTC, datetime

import pytest
from tests.cli.cli_support import ask, document, invoke, run_on_terminal, run_process, until

from duly import Attempt, Every, Explanation, Job, JobView, Node, Run, Scheduler, SchedulerConfig
from duly.cli import doctor as doctor_module
from duly.cli import show as show_module
from duly.ports import Finding, Severity
from duly.version import __version__

INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


def test_jobs_as_text(ids):
    lines = invoke("jobs").stdout.splitlines()
    assert re.split(r"  +", lines[0]) == ["NAME", "STATUS", "SCHEDULE", "NEXT RUN (UTC)", "LAST", "RUNS", "FAILED"]
    explode, greet, invoice, nightly = lines[1:]
    assert re.split(r"  +", explode) == ["explode", "active", "when submitted", "–", "failed", "1", "1"]
    assert re.split(r"  +", greet)[3].startswith("in ")
    assert "every 6 hours" in invoice
    assert "at 02:30 every day, America/New_York" in nightly
    assert re.search(r"in \d+ (h|min|s)\b.* \(", nightly)


def test_jobs_as_json(ids):
    views = document("jobs")
    assert [view["name"] for view in views] == ["explode", "greet", "invoice", "nightly"]
    assert all(set(view) == {*JobView.__struct_fields__, "fleet"} for view in views)
    assert INSTANT.fullmatch(views[3]["next_run_at"])
    assert views[3]["schedule_spec"]["timezone"] == "America/New_York"
    assert views[2]["schedule_spec"]["interval"] == 21600.0
    assert views[1]["last_outcome"] == "succeeded"
    assert views[1]["payload"] == document("show", "greet")["payload"] == {}


def test_jobs_by_tag_and_status(ids):
    invoke("pause", "invoice")
    assert [view["name"] for view in document("jobs", "--tag", "billing")] == ["invoice", "nightly"]
    assert [view["name"] for view in document("jobs", "--tag", "billing", "--tag", "night")] == ["nightly"]
    assert [view["name"] for view in document("jobs", "--status", "paused")] == ["invoice"]
    assert invoke("jobs", "--tag", "nothing").stdout == "none of the 4 jobs matches\n"
    assert "paused" in invoke("jobs", "--status", "asleep", code=2).stderr


def test_an_empty_store_says_so():
    for command, answer in (("jobs", "no jobs"), ("runs", "no runs"), ("nodes", "no node is alive")):
        assert invoke(command, "--url", "memory://").stdout.startswith(answer)
        assert document(command, "--url", "memory://") == []


def test_another_namespace_has_other_jobs(ids, monkeypatch):
    assert invoke("jobs", "--namespace", "other").stdout.startswith("no jobs")
    monkeypatch.setenv("DULY_NAMESPACE", "other")
    assert document("jobs") == []
    assert len(document("jobs", "--namespace", "duly")) == 4


def test_runs_as_text(ids):
    lines = invoke("runs").stdout.splitlines()
    assert re.split(r"  +", lines[0]) == ["ID", "JOB", "STATE", "DUE (UTC)", "LATE", "ATTEMPT", "TOOK", "NODE / WHY"]
    later, bad, good = [re.split(r"  +", row.strip()) for row in lines[1:]]
    assert later[:3] == [ids["later"], "greet", "pending"]
    assert bad[:3] == [ids["bad"], "explode", "failed"]
    assert bad[5] == "1"
    assert bad[-1] == "ValueError: ka[b]oom �[31m"
    assert good[:3] == [ids["good"], "greet", "completed"]
    assert good[4].endswith("s")


def test_runs_as_json(ids):
    runs = document("runs")
    assert [run["id"] for run in runs] == [ids["later"], ids["bad"], ids["good"]]
    assert all(set(run) == set(Run.__struct_fields__) for run in runs)
    assert runs[2]["payload"] == {"name": "Ada"}
    assert runs[2]["result"] == "hello Ada"
    assert INSTANT.fullmatch(runs[2]["finished_at"])


def test_runs_can_be_chosen(ids):
    def found(*arguments):
        return [run["id"] for run in document("runs", *arguments)]

    assert found("greet") == [ids["later"], ids["good"]]
    assert found("--state", "failed") == [ids["bad"]]
    assert found("--state", "failed", "--state", "completed") == [ids["bad"], ids["good"]]
    assert found("--queue", "mail") == [ids["later"], ids["good"]]
    assert found("--limit", "1") == [ids["later"]]
    assert invoke("runs", "nobody").stdout == "no runs match\n"
    assert "only the newest 1" in invoke("runs", "--limit", "1").stderr
    assert "not in the range" in invoke("runs", "--limit", "0", code=2).stderr


def test_a_table_that_is_piped_has_no_colours_and_is_whole(ids, tmp_path):
    for command in ("jobs", "runs", "doctor"):
        code, output, _ = run_process(command, folder=tmp_path, FORCE_COLOR="1", COLUMNS="40")
        assert code == 0
        assert "\x1b" not in output
        assert "…" not in output


def test_a_table_on_a_terminal_has_colours_and_fits(ids, tmp_path):
    for columns in (80, 160):
        code, output = run_on_terminal("jobs", folder=tmp_path, columns=columns)
        assert code == 0
        assert "\x1b[31mfailed" in output
        plain = re.sub(r"\x1b\[[0-9;]*m", "", output)
        assert all(len(line) <= columns for line in plain.splitlines())
        assert "nightly" in plain


def test_a_long_name_is_cut_and_hides_no_column(tmp_path):
    """At 80 columns the schedule and the next run are still there."""
    name = "nightly_report_for_all_customers_of_the_region_north"
    job = Job(handler="report", name=name, schedule=Every(hours=6))
    ask("sqlite:///duly.db", lambda scheduler: scheduler.register(job))
    code, output = run_on_terminal("jobs", "--no-color", folder=tmp_path, columns=80)
    assert code == 0
    lines = output.splitlines()
    assert max(map(len, lines)) <= 80
    assert re.split(r"  +", lines[0].strip()) == [
        "NAME",
        "STATUS",
        "SCHEDULE",
        "NEXT RUN (UTC)",
        "LAST",
        "RUNS",
        "FAILED",
    ]
    assert "every 6 hours" in lines[1]
    shown = lines[1].split()[0]
    assert shown.endswith("…")
    assert name.startswith(shown[:-1])
    assert len(shown) >= 20


def test_colours_can_be_refused(ids, tmp_path):
    assert "\x1b" not in run_on_terminal("jobs", "--no-color", folder=tmp_path)[1]
    assert "\x1b" not in run_on_terminal("--no-color", "doctor", folder=tmp_path)[1]
    assert "\x1b" not in run_on_terminal("runs", folder=tmp_path, NO_COLOR="1")[1]


def test_show_a_run(ids):
    output = invoke("show", ids["bad"]).stdout
    assert f"run       {ids['bad']}\n" in output
    assert "state     failed" in output
    assert "attempts  1 (1 failed, 0 lost)" in output
    assert "Attempt 1: failed after" in output
    assert "Traceback (most recent call last):" in output
    assert "raise ValueError" in output
    assert "\x1b" not in output
    good = invoke("show", ids["good"]).stdout
    assert 'Payload\n  {\n    "name": "Ada"\n  }' in good
    assert 'Result\n  "hello Ada"' in good


def test_show_a_run_as_json(ids):
    run = document("show", ids["bad"])
    assert set(run) == {*Run.__struct_fields__, "attempts"}
    [attempt] = run["attempts"]
    assert set(attempt) == set(Attempt.__struct_fields__)
    assert attempt["failure"]["type"] == "ValueError"


def test_show_a_job(ids):
    output = invoke("show", "nightly").stdout
    assert "description  Build the nightly report." in output
    assert "schedule     at 02:30 every day, America/New_York" in output
    assert output.count("(in ") == 6
    greet = document("show", "greet")
    assert set(greet) == {*JobView.__struct_fields__, "fleet", "upcoming", "runs"}
    assert [run["id"] for run in greet["runs"]] == [ids["good"]]
    assert [each["run_id"] for each in greet["upcoming"]] == [ids["later"]]


async def test_the_latest_runs_are_found_behind_those_that_are_due_later(monkeypatch):
    scheduler = Scheduler("memory://")
    async with scheduler.client():
        store = (await scheduler.opened()).backend.store
        monkeypatch.setattr(
            store, "runs", lambda *given, scan, **named: type(store).runs(store, *given, scan=3, **named)
        )
        first = await scheduler.submit("greet")
        for _ in range(7):
            await scheduler.submit("greet", delay=3600)
        assert [run.id for run in await show_module._latest(scheduler, "greet")] == [first.id]


def test_show_what_is_not_there(ids):
    assert "there is no job 'nobody'" in invoke("show", "nobody", code=1).stderr
    assert "there is no run '0123'" in invoke("show", "0123", code=1).stderr


def test_explain_tells_the_reasons(ids):
    output = invoke("explain", "nightly", "--at", "2026-01-05T02:30").stdout
    assert output.startswith("nightly at 2026-01-05 07:30:00Z: before job\n")
    assert "The job was registered later" in output
    output = invoke("explain", "nightly", "--at", "2090-03-14T02:31").stdout
    assert output.startswith("nightly at 2090-03-14 06:30:00Z: not yet\n")
    assert "Nothing is due at 2090-03-14T06:31:00Z (next due 2090-03-15T06:30:00Z, last 2090-03-14T06:30:00Z)" in output


def test_explain_names_the_setting(ids):
    invoke("pause", "nightly", "--note", "moving house")
    output = invoke("explain", "nightly", "--at", "tomorrow 02:30").stdout
    assert ": not planned\n" in output
    assert "(moving house)" in output
    assert output.endswith("decided by: pause\n")


def test_explain_takes_moments_in_the_zone_of_the_job_or_the_given_one(ids):
    def instant(*arguments):
        return document("explain", "nightly", *arguments)["at"]

    assert instant("--at", "2090-06-01T02:30") == "2090-06-01T06:30:00.000000Z"
    assert instant("--at", "2090-06-01T02:30", "--tz", "Europe/Berlin") == "2090-06-01T00:30:00.000000Z"
    assert instant("--at", "2090-06-01T02:30Z") == "2090-06-01T02:30:00.000000Z"
    found = document("explain", "invoice", "--at", "2090-06-01T06:00")
    assert set(found) == set(Explanation.__struct_fields__)
    assert found["at"] == "2090-06-01T06:00:00.000000Z"
    assert found["verdict"] == "not_yet"
    for moment in ("now", "yesterday 03:00", "today 14:30", "03:00"):
        assert INSTANT.fullmatch(instant("--at", moment))


def test_explain_mistakes(ids):
    assert "there is no job 'nobody'" in invoke("explain", "nobody", code=1).stderr
    assert "invalid time" in invoke("explain", "nightly", "--at", "whenever", code=2).stderr
    assert "unknown time zone" in invoke("explain", "nightly", "--tz", "Nowhere", code=2).stderr


def test_a_removed_job_can_be_explained(ids):
    invoke("remove", "nightly")
    assert "The job was removed at" in invoke("explain", "nightly", "--at", "2090-06-01T06:30Z").stdout


def test_the_doctor_is_content(ids):
    output = invoke("doctor").stdout
    for subject in ("duly", "python", "packages", "clock", "time zones", "store"):
        assert re.search(rf"^ok +{subject} ", output, re.MULTILINE)
    assert re.search(r"^warning +nodes +no node is alive", output, re.MULTILINE)
    findings = document("doctor")
    assert all(set(finding) == set(Finding.__struct_fields__) for finding in findings)
    assert "problem" not in {finding["severity"] for finding in findings}


def test_the_doctor_finds_a_problem(ids, monkeypatch):
    output = invoke("doctor", "--url", "sqlite:///missing.db", code=1).stdout
    assert re.search(r"^problem  store       there is no file \S*missing\.db", output, re.MULTILINE)
    monkeypatch.setattr(doctor_module, "_zones", lambda: Finding(Severity.PROBLEM, "time zones", "gone"))
    assert re.search(r"^problem +time zones +gone", invoke("doctor", code=1).stdout, re.MULTILINE)


def test_nodes_as_json_and_text(nodes, tmp_path):
    process = nodes.start("--node-id", "n1", "-c", "3", "-q", "mail", "--label", "gpu=yes")
    nodes.ready(process)
    [node] = document("nodes")
    assert set(node) == set(Node.__struct_fields__)
    assert (node["id"], node["pid"], node["capacity"], node["queues"]) == ("n1", process.pid, 3, ["mail"])
    assert "greet" in node["handlers"]
    assert (node["labels"], node["version"], set(node["metrics"])) == (
        {"gpu": "yes"},
        __version__,
        {"running", "slots", "leader"},
    )
    assert datetime.fromisoformat(node["started_at"]) <= datetime.now(UTC)
    row = invoke("nodes").stdout.splitlines()[1]
    assert row.startswith("n1 ")
    assert "scheduler, worker" in row
    assert "gpu=yes" in row


def test_nodes_and_doctor_say_who_leads_how_many_shards(nodes, tmp_path):
    nodes.ready(nodes.start("--node-id", "n1"))
    invoke("config", "set", "shards=3")
    until(lambda: "leads, 3 of 3 shards" in invoke("nodes").stdout)
    assert re.search(r"^ok +shards +n1 leads 3$", invoke("doctor").stdout, re.MULTILINE)


def test_an_unplaced_run_says_why_it_waits(tmp_path):
    run_id = asyncio.run(_submit_to_be_placed(f"sqlite:///{tmp_path}/duly.db"))
    shown = invoke("show", run_id).stdout
    assert re.search(r"^waits +It waits to be given to a node: no working node is alive\.", shown, re.MULTILINE)
    assert document("show", run_id)["assignee"] is None
    assert "waits to be placed" in invoke("runs").stdout
    reason = "1 due run waits to be placed: no working node is alive"
    assert re.search(rf"^warning +placement +{reason}", invoke("doctor").stdout, re.MULTILINE)


async def _submit_to_be_placed(url):
    scheduler = Scheduler(url, SchedulerConfig(placement="assign"))
    async with scheduler.client():
        return (await scheduler.submit("train")).id


@pytest.mark.parametrize("command", [("jobs",), ("runs",), ("show", "x"), ("submit", "x"), ("pause", "x"), ("nodes",)])
def test_a_missing_file_is_not_made(command, tmp_path):
    stderr = invoke(*command, code=1).stderr
    assert re.match(r"Error: there is no file \S*duly\.db: ", stderr)
    assert "--url" in stderr
    assert list(tmp_path.iterdir()) == []
    assert re.search(
        r"there is no file \S*sub/other\.db", invoke(*command, "--url", "sqlite:///sub/other.db", code=1).stderr
    )


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("mongodb://me:secret@host/db", "unknown scheme 'mongodb'"),
        ("no url at all", "is not a URL"),
        ("sqlite:///", "names no SQLite file"),
    ],
)
def test_a_wrong_url(url, message):
    result = invoke("jobs", "--url", url, code=1)
    assert message in result.stderr
    assert "secret" not in result.output


def test_a_file_that_is_no_store(tmp_path):
    (tmp_path / "duly.db").write_text("this is a letter, not a database; " * 100)
    result = invoke("jobs", code=1)
    assert result.stderr.startswith("Error: ")
    assert len(result.stderr.splitlines()) == 1


def test_the_url_of_the_environment_and_of_the_file(ids, tmp_path, monkeypatch):
    (tmp_path / "duly.db").rename(tmp_path / "other.db")
    assert json.loads(invoke("jobs", "--json", DULY_URL="sqlite:///other.db").stdout)
    (tmp_path / "duly.toml").write_text('url = "sqlite:///other.db"')
    assert document("jobs")
    (tmp_path / "duly.toml").write_text('urk = "sqlite:///other.db"')
    assert "unknown key 'urk'; did you mean url?" in invoke("jobs", code=1).stderr
