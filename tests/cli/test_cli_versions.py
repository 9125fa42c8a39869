"""`duly history`, `rollback` and `backfill`."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from tests.cli.cli_support import document, invoke

from duly import Every, Scheduler
from duly.cli import history as history_commands
from duly.scheduler.job import Job

URL = "sqlite:///duly.db"


def define(*versions, code=False):
    """Define a job in these versions, as the API or as code."""

    async def write():
        scheduler = Scheduler(URL)

        @scheduler.job(name="work")
        async def work() -> None: ...

        async with scheduler.client():
            client = await scheduler.opened()
            for options in versions:
                job = Job(name="report", handler="work", **{"schedule": Every(hours=1), **options})
                await client.definitions.define(job, by="ada")

    asyncio.run(write())


@pytest.fixture
def versions():
    define({"priority": 1}, {"priority": 2}, {"priority": 3, "queue": "mail"})


def test_history_is_readable(versions):
    said = invoke("history", "report").stdout
    titles = [line for line in said.splitlines() if line.startswith("revision")]
    assert titles[0].startswith("revision 3 (now): 2")
    assert all(title.endswith("Z by ada") for title in titles)
    assert "  priority: 2 → 3" in said
    assert "  queue: default → mail" in said
    assert "  created" in said
    assert "revision 1" not in invoke("history", "report", "-n", "2").stdout
    assert "1 earlier versions" in invoke("history", "report", "-n", "2").stderr
    assert [each["revision"] for each in document("history", "report")] == [3, 2, 1]
    assert "there is no job 'nobody'" in invoke("history", "nobody", code=1).stderr


def test_rollback_shows_changes_and_is_audited(versions):
    said = invoke("rollback", "report", "--dry-run").stdout
    assert said == "queue: mail → default\npriority: 3 → 2\nnothing was changed: --dry-run\n"
    said = invoke("rollback", "report", "1").stdout
    assert said == "report has the definition of revision 1 again, as revision 4\n"
    assert document("show", "report")["priority"] == 1
    newest = document("history", "report")[0]
    assert (newest["revision"], newest["by"].startswith("cli ")) == (4, True)
    last = document("audit", "list")[-1]["deed"]
    assert (last["action"], last["target"], last["after"]) == ("rollback", "job report", {"revision": 4, "to": 1})
    assert "is as it was at revision 4: nothing was changed" in invoke("rollback", "report", "4").stdout
    assert len(document("audit", "list")) == 1
    assert document("rollback", "report", "2")["to"] == 2
    assert "has no version of revision 77" in invoke("rollback", "report", "77", code=1).stderr
    invoke("rollback", "report", "0", code=2)


def test_rollback_asks_on_a_terminal(versions, monkeypatch):
    monkeypatch.setattr(history_commands, "can_ask", lambda: True)
    declined = invoke("rollback", "report", code=1)
    assert "priority: 3 → 2" in declined.stdout
    assert "Roll report back to revision 2?" in declined.stderr
    assert document("show", "report")["priority"] == 3
    assert "again, as revision 4" in invoke("rollback", "report", "--yes").stdout


def test_a_job_of_a_file_says_that_its_file_counts(tmp_path):
    file = tmp_path / "jobs.toml"
    text = 'name = "ops"\n[jobs.backup]\nevery = "1h"\ncommand = ["true"]\ntimeout = "10m"\n'
    define({})
    file.write_text(text)
    invoke("apply", "jobs.toml")
    file.write_text(text.replace("10m", "20m"))
    invoke("apply", "jobs.toml")
    done = invoke("rollback", "backup")
    assert "job file ops defines this job" in done.stderr


# --- backfill


def hours_ago(hours: int) -> str:
    at = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=hours)
    return at.isoformat()


def test_backfill_shows_creates_and_is_audited():
    define({})
    span = ("--from", hours_ago(6), "--to", hours_ago(2))
    dry = invoke("backfill", "report", *span, "--dry-run")
    assert "4 runs to create" in dry.stdout
    assert "without a record  4" in dry.stdout
    assert dry.stdout.endswith("nothing was created: --dry-run\n")
    assert "they run one after the other" in dry.stderr
    assert document("runs", "report") == []
    said = invoke("backfill", "report", *span, "--limit", "3")
    assert said.stdout.endswith("created 3 runs\n")
    assert "a limit was reached" in said.stderr
    assert [run["cause"] for run in document("runs", "report")] == ["backfill"] * 3
    assert document("backfill", "report", *span)["created"] == 1
    again = invoke("backfill", "report", *span).stdout
    assert "0 runs to create" in again
    assert "not repeated: " in again
    entries = [each["deed"] for each in document("audit", "list")]
    assert [(each["action"], each["after"]["created"]) for each in entries] == [("backfill", 3), ("backfill", 1)]
    run = document("runs", "report")[0]["id"]
    assert "Backfilled by cli " in invoke("explain", run).stdout


def test_backfill_reads_times_as_people_write_them():
    define({})
    assert document("backfill", "report", "--from", "3 h ago", "--to", "now", "--dry-run")["created"] == 3
    assert "invalid time" in invoke("backfill", "report", "--from", "soonish", "--to", "now", code=2).stderr
    assert "is not before" in invoke("backfill", "report", "--from", "now", "--to", "3 h ago", code=1).stderr
    invoke("backfill", "report", "--from", "now", code=2)


@pytest.mark.parametrize("columns", ["40", "80"])
def test_output_fits_a_narrow_terminal(versions, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    for arguments in (("history", "report"), ("rollback", "report", "--dry-run")):
        assert invoke(*arguments).exit_code == 0
