"""Many runs and jobs at once: a count and samples first, a question on a terminal, `--yes` elsewhere."""

import importlib
import re
import threading

import pytest
from click.testing import CliRunner
from tests.cli.cli_support import ask, document, invoke

from duly.cli import cli
from duly.rules import bulk
from duly.scheduler import bulk_runs

STORE = "sqlite:///duly.db"


def submitted(number: int, *options: str) -> list[str]:
    return [invoke("submit", "greet", f"name=Eve{each}", *options).stdout.strip() for each in range(number)]


def states(ids: list[str]) -> list[str]:
    return [document("show", run)["state"] for run in ids]


@pytest.fixture
def terminal(monkeypatch):
    """Answers the next questions as if there was a terminal."""
    importlib.import_module("duly.cli.operate")  # it is imported late, and must not keep what is replaced here
    importlib.import_module("duly.cli.job_files")
    monkeypatch.setattr("duly.cli.confirming.can_ask", lambda: True)

    def answering(words: str, *arguments: str):
        return CliRunner().invoke(cli, arguments, input=words, prog_name="duly", catch_exceptions=False)

    return answering


def test_what_matches_is_shown_before_it_is_cancelled(ids, terminal):
    runs = submitted(7, "--delay", "1h")
    refused = terminal("n\n", "cancel", "--job", "greet", "--state", "pending")
    assert refused.exit_code == 1
    assert "8 runs of greet match; the newest are listed" in refused.stdout
    assert "Cancel 8 runs?" in refused.stdout
    assert sum(run in refused.stdout for run in runs) == 5
    assert states(runs) == ["pending"] * 7
    agreed = terminal("y\n", "cancel", "--job", "greet", "--state", "pending", "--reason", "too many")
    assert (agreed.exit_code, agreed.stdout.splitlines()[-1]) == (0, "8 cancelled")
    assert states([*runs, ids["good"]]) == ["cancelled"] * 7 + ["completed"]
    assert document("show", runs[0])["reason"] == "too many"


def test_without_a_terminal_it_needs_yes(ids):
    runs = submitted(2, "--delay", "1h")
    refused = invoke("cancel", "--job", "greet", code=1)
    assert "3 runs of greet match" in refused.stdout
    assert "without a terminal this needs --yes" in refused.stderr
    assert states(runs) == ["pending"] * 2
    assert invoke("cancel", "--job", "greet", "--yes").stdout.endswith("3 cancelled\n")
    assert invoke("cancel", "--job", "greet", "--yes").stdout == "no runs match\n"


def test_what_is_created_while_the_question_waits_is_left_alone(ids, monkeypatch):
    before = submitted(2, "--delay", "1h")
    later: list[str] = []

    def submit_another(question: str, **_) -> None:
        async def submit(scheduler):
            later.append((await scheduler.submit("greet", {"name": "Late"}, delay=3600)).id)

        thread = threading.Thread(target=ask, args=(STORE, submit))
        thread.start()
        thread.join()

    monkeypatch.setattr("duly.cli.bulk.confirm", submit_another)
    assert invoke("cancel", "--job", "greet").stdout.endswith("3 cancelled\n")
    assert states([*before, *later]) == ["cancelled", "cancelled", "pending"]


def test_redrive_by_filter(ids):
    again = invoke("redrive", "--state", "failed", "--error", "kaboom", "--yes", code=0)
    assert again.stdout == "no runs match\n", "the text of the error has brackets and a control character"
    again = invoke("redrive", "--error", "ValueError", "--yes")
    assert "1 run of explode matches" in again.stdout
    assert again.stdout.endswith("1 wait to be run again\n")
    assert "\x1b" not in again.stdout
    assert states([ids["bad"]]) == ["queued"]
    entry = document("audit", "list")[-1]["deed"]
    assert (entry["action"], entry["target"]) == ("redrive", "1 run")
    assert entry["after"]["filter"] == {"error": "ValueError", "states": ["failed"]}
    assert entry["after"]["runs"] == [ids["bad"]]


def test_a_run_or_a_filter_is_needed(ids):
    for command in ("cancel", "redrive"):
        assert "name a RUN, or say which runs" in invoke(command, code=2).stderr
        assert "name a RUN" in invoke(command, "--yes", code=2).stderr
        assert "both given" in invoke(command, ids["bad"], "--job", "greet", code=2).stderr
    assert (
        "cancel is possible for pending, queued, running runs" in invoke("cancel", "--state", "failed", code=2).stderr
    )
    assert "redrive is possible for" in invoke("redrive", "--state", "completed", code=2).stderr
    assert "--payload is for one RUN" in invoke("redrive", "--job", "x", "--payload", "{}", code=2).stderr


def test_many_are_changed_in_slices(ids, monkeypatch):
    monkeypatch.setattr(bulk_runs, "SLICE", 2)
    monkeypatch.setattr(bulk_runs, "_MOST_SLICES", 2)
    monkeypatch.setattr(bulk_runs, "MOST_COUNTED", 3)
    assert bulk.MOST_COUNTED == 10_000
    runs = submitted(9, "--delay", "1h")
    done = invoke("cancel", "--job", "greet", "--yes").stdout
    assert "at least 3 runs" in done
    assert done.endswith("10 cancelled\n")
    assert set(states(runs)) == {"cancelled"}
    targets = [entry["deed"]["target"] for entry in document("audit", "list")]
    assert sum(int(re.match(r"\d+", target)[0]) for target in targets) == 10
    assert len(targets) >= 5


# --- listing by every filter


def found(*arguments: str) -> set[str]:
    return {run["id"] for run in document("runs", *arguments)}


def test_runs_are_found_by_everything_that_the_api_knows(ids):
    good, bad, later = ids["good"], ids["bad"], ids["later"]
    assert found("--handler", "explode") == {bad}
    assert found("--where", "payload.name=Ada") == {good}
    assert found("--where", "result.x=1") == set()
    assert found("--where", "payload.name=Bob", "--where", "payload.name=Ada") == set()
    assert found("--cause", "trigger") == {bad}
    assert found("--since", "1h") == {good, bad, later}
    assert found("--since", "in 10 minutes") == {later}
    assert found("--until", "1h ago") == set()
    assert found("--ended-since", "1 day ago") == {good, bad}
    assert found("--ended-until", "1 day ago") == set()
    assert found("--min-attempts", "2") == set()
    assert found("--min-duration", "1h") == set()
    assert found("--min-late", "1h") == set()
    assert found("--id-prefix", bad[:-1]) == {bad}
    assert found("--key", "none") == set()
    assert found("--not-job", "greet") == {bad}
    assert found("--not-state", "failed", "--not-state", "pending") == {good}
    assert found("--not-text", "kaboom", "--not-error", "ValueError", "--not-queue", "mail") == set()
    assert found("--tag", "billing") == set()
    run = invoke("trigger", "invoice").stdout.strip()
    assert found("--tag", "billing") == {run}
    assert found("--tag", "night") == set()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--where", "customer=7"), "expected e.g. payload.customer=7"),
        (("--where", "payload.customer"), "invalid condition"),
        (("--since", "soon"), "invalid time 'soon'"),
        (("--min-late", "x"), "invalid duration"),
        (("--min-attempts", "0"), "0 is not in the range"),
    ],
)
def test_a_filter_that_cannot_be_read(ids, arguments, words):
    assert words in invoke("runs", *arguments, code=2).stderr


# --- queues


def test_queues_are_listed_paused_and_resumed(ids):
    submitted(2)
    header, mail, *others = invoke("queues").stdout.splitlines()
    assert header.split() == ["QUEUE", "STATUS", "QUEUED", "PENDING", "RUNNING", "OLDEST", "DUE"]
    assert re.fullmatch(r"mail +open +2 +1 +0 +\S.*", mail)
    assert invoke("pause", "--queue", "mail").stdout.startswith("queue mail is paused; duly resume --queue mail")
    assert "was already paused" in invoke("pause", "--queue", "mail").stdout
    assert re.search(r"mail +paused +2", invoke("queues").stdout)
    [queue] = [each for each in document("queues") if each["name"] == "mail"]
    assert (queue["paused"], queue["queued"], queue["pending"], queue["at_least"]) == (True, 2, 1, [])
    assert invoke("resume", "--queue", "mail").stdout == "queue mail is resumed\n"
    assert "was not paused" in invoke("resume", "--queue", "mail").stdout
    deeds = [(entry["deed"]["action"], entry["deed"]["target"]) for entry in document("audit", "list")]
    assert deeds == [("pause", "queue mail"), ("resume", "queue mail")]
    assert "expected a letter" in invoke("pause", "--queue", "no queue", code=1).stderr
    assert "a queue has none" in invoke("pause", "--queue", "mail", "--note", "x", code=2).stderr
    assert "give either JOB names" in invoke("pause", code=2).stderr
    assert "give either JOB names" in invoke("pause", "greet", "--queue", "mail", code=2).stderr
    assert not others


# --- jobs


def test_jobs_are_paused_by_name_and_by_tag(ids, terminal):
    assert invoke("pause", "nightly", "greet").stdout == "2 jobs are paused; duly resume resumes them\n"
    assert invoke("resume", "nightly", "greet").stdout == "2 jobs are resumed\n"
    assert terminal("n\n", "pause", "--tag", "billing").exit_code == 1
    assert "paused" not in invoke("jobs").stdout
    tagged = terminal("y\n", "pause", "--tag", "billing")
    assert "2 jobs with the tag billing: invoice, nightly" in tagged.stdout
    assert {job["name"] for job in document("jobs", "--status", "paused")} == {"invoice", "nightly"}
    assert "2 jobs are resumed" in invoke("resume", "--tag", "billing", "--yes").stdout
    assert "no job has the tag 'none'" in invoke("pause", "--tag", "none", "--yes", code=1).stderr


def test_an_unknown_job_among_others_is_reported(ids):
    wrong = invoke("pause", "nigthly", "greet", code=1).stderr
    assert "there is no job 'nigthly': did you mean nightly?" in wrong
    assert "the other jobs were changed" in wrong
    assert document("show", "greet")["status"] == "paused"


def test_by_tag_without_a_terminal_it_needs_yes(ids):
    assert "needs --yes" in invoke("pause", "--tag", "billing", code=1).stderr
    assert "paused" not in invoke("jobs").stdout


def test_restore(ids):
    assert "has not been removed" in invoke("restore", "nightly", code=1).stderr
    invoke("remove", "nightly", "--yes")
    assert invoke("restore", "nightly").stdout == "nightly is planned again\n"
    assert document("show", "nightly")["status"] == "active"
    assert document("audit", "list")[-1]["deed"]["action"] == "restore"
    assert "the store has no definition of job 'nobody'" in invoke("restore", "nobody", code=1).stderr


# --- payloads


def test_a_payload_from_a_file_or_from_standard_input(ids, tmp_path):
    (tmp_path / "p.json").write_text('{"name": "Zoë"}')
    for arguments in (("submit", "greet", "--payload", "@p.json"), ("trigger", "greet", "--payload", "@p.json")):
        assert document("show", invoke(*arguments).stdout.strip())["payload"] == {"name": "Zoë"}
    piped = CliRunner().invoke(cli, ["submit", "greet", "--payload", "-"], input='{"name": "Ada"}', prog_name="duly")
    assert document("show", piped.stdout.strip())["payload"] == {"name": "Ada"}
    assert (
        "cannot read the payload from none.json: No such file"
        in invoke(*("submit", "greet", "--payload", "@none.json"), code=1).stderr
    )
    (tmp_path / "bad.json").write_bytes(b'{"name": "\xff"}')
    assert "is not valid JSON" in invoke("submit", "greet", "--payload", "@bad.json", code=2).stderr
    assert "cannot read" in invoke("submit", "greet", "--payload", "@.", code=1).stderr
    assert "both given" in invoke("submit", "greet", "name=x", "--payload", "@p.json", code=2).stderr


def test_redrive_with_another_payload(ids):
    invoke("redrive", ids["bad"], "--payload", '{"word": "better"}')
    assert document("show", ids["bad"])["payload"] == {"word": "better"}
    entry = document("audit", "list")[-1]["deed"]
    assert entry["before"] == {"status": "failed", "payload": {}}
    assert entry["after"] == {"payload": {"word": "better"}}


# --- purging


def test_purge(ids, terminal):
    assert invoke("purge", "--failed", "--before", "1h", "--yes").stdout == "no runs match\n"
    refused = terminal("n\n", "purge", "--failed", "--completed", "--before", "now")
    assert "2 runs completed and failed ended before" in refused.stdout
    assert document("show", ids["bad"])["state"] == "failed"
    done = invoke("purge", "--failed", "--before", "now", "--yes").stdout
    assert done.endswith("1 run deleted\n")
    assert "there is no run" in invoke("show", ids["bad"], code=1).stderr
    assert document("show", ids["good"])["state"] == "completed"
    assert [entry["deed"]["target"] for entry in document("audit", "list")] == ["1 run"]


def test_purge_needs_a_state_and_a_time(ids):
    assert "say which runs: --completed, --failed" in invoke("purge", "--before", "1d", code=2).stderr
    assert "--before" in invoke("purge", "--failed", code=2).stderr


def test_purge_without_a_terminal_needs_yes(ids):
    assert "needs --yes" in invoke("purge", "--failed", "--before", "now", code=1).stderr
    assert document("show", ids["bad"])["state"] == "failed"


# --- handlers


def test_handlers(ids):
    rows = {row["name"]: row for row in document("handlers")}
    assert set(rows) == {"explode", "greet", "invoice", "nightly"}
    assert rows["greet"] == {"name": "greet", "nodes": [], "jobs": 1, "completed": 1, "failed": 0, "retried": 0}
    assert (rows["explode"]["failed"], rows["explode"]["nodes"]) == (1, [])
    assert re.search(r"explode +none +1 +0 +1 +0", invoke("handlers").stdout)


def test_handlers_of_live_nodes(nodes, monkeypatch):
    monkeypatch.setenv("DULY_URL", nodes.url)
    process = nodes.start()
    nodes.ready(process)
    rows = {row["name"]: row for row in document("handlers")}
    assert len(rows["greet"]["nodes"]) == 1


# --- misspelt names


def test_a_misspelt_name_is_refused_with_the_one_that_was_meant(ids):
    assert "did you mean nightly?" in invoke("show", "nigthly", code=1).stderr
    assert "did you mean nightly?" in invoke("trigger", "nighty", code=1).stderr
    wrong = invoke("submit", "gret", "name=Eve", code=1).stderr
    assert "handler='gret': no such handler is registered: did you mean greet?" in wrong
    assert "--force submits it all the same" in wrong
    forced = invoke("submit", "gret", "name=Eve", "--force")
    assert document("show", forced.stdout.strip())["handler"] == "gret"
