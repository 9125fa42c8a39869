"""Operating: pause, resume, remove, cancel, redrive, submit and trigger, as seen in the store afterwards."""

import pytest
from click.testing import CliRunner
from tests.cli.cli_support import document, invoke

from duly.cli import cli


def job(name: str):
    return document("show", name)


def run(run_id: str):
    return document("show", run_id)


def test_pause_and_resume(ids):
    assert "nightly is paused" in invoke("pause", "nightly", "--note", "moving").stdout
    assert (job("nightly")["status"], job("nightly")["note"]) == ("paused", "moving")
    assert "paused" in invoke("jobs").stdout
    assert invoke("pause", "nightly").exit_code == 0
    assert invoke("resume", "nightly").stdout == "nightly is resumed\n"
    assert job("nightly")["status"] == "active"


def test_remove(ids):
    assert invoke("remove", "greet", "--yes").stdout == "greet is removed\n"
    assert "greet" not in invoke("jobs").stdout
    assert run(ids["later"])["state"] == "cancelled"
    assert run(ids["good"])["state"] == "completed"
    assert "there is no job 'greet'" in invoke("remove", "greet", code=1).stderr


def test_cancel(ids):
    assert invoke("cancel", ids["later"], "--reason", "not wanted").stdout == f"run {ids['later']} is cancelled\n"
    assert (run(ids["later"])["state"], run(ids["later"])["reason"]) == ("cancelled", "not wanted")
    assert "had ended already" in invoke("cancel", ids["good"], code=1).stderr
    assert "there is no run '00'" in invoke("cancel", "00", code=1).stderr


def test_redrive(ids):
    assert "waits to be run again" in invoke("redrive", ids["bad"]).stdout
    again = run(ids["bad"])
    assert (again["state"], again["failures"], len(again["attempts"])) == ("queued", 0, 1)
    assert "only failed, lost and cancelled runs" in invoke("redrive", ids["good"], code=1).stderr
    assert "there is no run" in invoke("redrive", "00", code=1).stderr


def test_submit_writes_the_id_alone(ids):
    result = invoke("submit", "greet", "name=Eve", "--priority", "7", "--queue", "slow")
    submitted = run(result.stdout.strip())
    assert (submitted["state"], submitted["cause"]) == ("queued", "submit")
    assert (submitted["payload"], submitted["priority"], submitted["queue"]) == ({"name": "Eve"}, 7, "slow")
    assert "no worker is alive" in result.stderr


def test_submit_later(ids):
    delayed = run(invoke("submit", "greet", "name=Eve", "--delay", "1h30m").stdout.strip())
    assert delayed["state"] == "pending"
    timed = run(invoke("submit", "greet", "name=Eve", "--at", "2090-06-01T02:30", "--tz", "Asia/Tokyo").stdout.strip())
    assert timed["due"] == "2090-05-31T17:30:00.000000Z"
    assert "both given" in invoke("submit", "greet", "--at", "now", "--delay", "1s", code=1).stderr


def test_submit_a_document(ids):
    submitted = run(
        invoke("submit", "unheard.of", "--force", "--json-payload", '{"a": [1, {"b": null}]}').stdout.strip()
    )
    assert submitted["payload"] == {"a": [1, {"b": None}]}
    assert submitted["job"] == "unheard.of"


def test_submit_once(ids):
    first = invoke("submit", "greet", "name=Eve", "--dedupe-key", "k1")
    second = invoke("submit", "greet", "name=Eve", "--dedupe-key", "k1")
    assert first.stdout == second.stdout
    assert "a run with this key exists already, submitted at " in second.stderr
    assert "with this key" not in first.stderr


def test_submit_once_in_a_time(ids):
    asked = ("submit", "greet", "name=Eve", "--dedupe-key", "k2", "--unique-for", "1h")
    first = invoke(*asked)
    invoke("cancel", first.stdout.strip())
    assert invoke(*asked).stdout == first.stdout
    assert "--unique-for needs --dedupe-key" in invoke("submit", "greet", "--unique-for", "1h", code=2).stderr
    assert "unique_for" in invoke(*asked[:-1], "200w", code=1).stderr


def test_trigger(ids):
    triggered = run(invoke("trigger", "nightly").stdout.strip())
    assert (triggered["job"], triggered["cause"], triggered["payload"]) == ("nightly", "trigger", {})
    assert run(invoke("trigger", "greet", "name=Eve").stdout.strip())["payload"] == {"name": "Eve"}
    assert run(invoke("trigger", "greet", "--payload", '{"name": "Eve"}').stdout.strip())["payload"] == {"name": "Eve"}
    assert "there is no job 'nobody'" in invoke("trigger", "nobody", code=1).stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("submit", "greet", "name"), "expected key=value"),
        (("submit", "greet", "--json-payload", "{"), "not valid JSON"),
        (("submit", "greet", "--json-payload", "[]"), "JSON object"),
        (("submit", "greet", "a=1", "--json-payload", "{}"), "both given"),
        (("submit", "greet", "--delay", "soon"), "invalid duration"),
        (("submit", "greet", "--at", "soon"), "invalid time"),
        (("submit", "greet", "--priority", "10"), "not in the range"),
        (("submit", "greet", "--timeout", "1s"), "--timeout needs --wait"),
        (("submit",), "Missing argument"),
        (("trigger", "greet", "--payload", "x"), "not valid JSON"),
        (("trigger", "greet", "--wait", "--timeout", "x"), "invalid duration"),
    ],
)
def test_mistakes_of_usage(ids, arguments, message):
    assert message in invoke(*arguments, code=2).stderr


def test_mistakes_of_meaning(ids):
    assert "queue='no good'" in invoke("submit", "greet", "--queue", "no good", code=1).stderr
    assert "dedupe_key" in invoke("submit", "greet", "--dedupe-key", "x" * 600, code=1).stderr
    assert "Error: " in invoke("submit", "no good", code=1).stderr


def test_waiting_has_an_end(ids):
    result = invoke("submit", "greet", "name=Eve", "--wait", "--timeout", "50ms", code=1)
    assert "has not ended within 0.05 s; it goes on" in result.stderr
    assert result.stdout == ""


def test_waiting_for_a_run_that_somebody_cancels(ids, monkeypatch):
    async def cancelled(handle, timeout):
        await handle.cancel("changed our mind")
        return await handle.result(timeout)

    monkeypatch.setattr("duly.cli.submit._result", cancelled)
    stderr = invoke("submit", "greet", "name=Eve", "--wait", code=1).stderr
    assert "was cancelled: changed our mind" in stderr


def test_remove_asks_on_a_terminal(ids, monkeypatch):
    monkeypatch.setattr("duly.cli.operate.can_ask", lambda: True)
    refused = CliRunner().invoke(cli, ["remove", "greet"], input="n\n")
    assert refused.exit_code == 1
    assert "greet" in invoke("jobs").stdout
    agreed = CliRunner().invoke(cli, ["remove", "greet"], input="y\n")
    assert agreed.exit_code == 0
    assert "greet" not in invoke("jobs").stdout
