"""`duly notify`, and what other commands show of notifications and calendars."""

import pytest
from tests.cli.cli_support import document, invoke, spawn, until
from tests.runtime.notify_servers import Receiver

APP = """
from duly import Calendar, Cron, Every, Scheduler, SchedulerConfig, Webhook

hook = Webhook({url!r}, name="ops", secret="s3cret-value")
scheduler = Scheduler("sqlite:///duly.db", SchedulerConfig(notify_wait=0.1), notify=[hook])
closed = Calendar.dates(labels={{"2036-12-25": "Christmas Day"}}, name="de")

@scheduler.job(Every(seconds=1), retry=None, notify=["ops"], expect_every=90000)
async def explode() -> None:
    raise ValueError("kaboom")

@scheduler.job(Cron("0 9 * * *", timezone="Europe/Berlin").excluding(closed))
async def greet() -> None: ...
"""


@pytest.fixture
def receiver():
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture
def folder(tmp_path, monkeypatch, receiver):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"app_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(APP.format(url=receiver.url))
    return tmp_path, f"{name}:scheduler"


def test_a_test_message_reaches_every_target_or_says_why_not(folder, receiver):
    _, app = folder
    said = invoke("notify", "test", app).stdout
    assert said.startswith("ops (http://127.0.0.1:")
    assert "/…): delivered test-" in said
    assert "hidden" not in said
    [message] = receiver.messages()
    assert (message["kind"], message["text"]) == ("test", "This is a test of the notification target ops.")
    receiver.status = 500
    failed = invoke("notify", "test", app, "ops", code=1)
    assert "OSError: HTTP 500: no." in failed.stderr
    assert "there is no target 'x'; known: ops" in invoke("notify", "test", app, "x", code=1).output


def test_targets_of_duly_toml(folder, receiver, monkeypatch):
    path, _ = folder
    monkeypatch.setenv("OPS_HOOK", receiver.url)
    (path / "duly.toml").write_text('[notify.ops]\nwebhook_env = "OPS_HOOK"\nformat = "slack"\n')
    assert "ops (webhook, address in OPS_HOOK): delivered" in invoke("notify", "test").stdout
    assert receiver.messages() == [{"text": "This is a test of the notification target ops."}]
    shown = invoke("config", "show").stdout
    assert "ops: webhook, address in OPS_HOOK" in shown
    (path / "duly.toml").write_text('[notify.ops]\nwebhook = "ftp://x"\n')
    assert "expected an http or https address" in invoke("notify", "test", code=1).output


def test_the_list_shows_deliveries_and_errors_and_no_secret(folder, receiver):
    path, app = folder
    receiver.status = 503
    node = spawn("run", app, folder=path)
    try:
        until(lambda: receiver.requests, "a message was sent")
        until(lambda: [each for each in listed(path) if each["last_error"]], "the error is recorded")
        [row] = listed(path)
        assert (row["name"], row["waiting"], row["sent"]) == ("ops", 1, 0)
        assert row["last_error"] == "OSError: HTTP 503: no."
        receiver.status = 204
        until(lambda: listed(path)[0]["sent"], "it is delivered")
    finally:
        node.terminate()
        node.communicate()
    said = invoke("notify", "list", "--url", "sqlite:///duly.db").stdout
    assert "ops" in said
    assert not any(secret in said for secret in ("hidden", "s3cret"))
    shown = invoke("show", "explode", "--url", "sqlite:///duly.db").stdout
    assert "notifies" in shown
    assert "expected every" in shown
    explained = document("explain", "greet", "--at", "2036-12-25T09:00", "--url", "sqlite:///duly.db")
    assert (explained["verdict"], explained["setting"]) == ("excluded", "calendar de")
    coming = document("next", "greet", "--after", "2036-12-24T12:00", "-n", "1", "--url", "sqlite:///duly.db")
    assert [each["note"] for each in coming["excluded"]] == ["excluded: Christmas Day (calendar de)"]
    assert [each["due"][:10] for each in coming["next"]] == ["2036-12-26"]


def listed(path):
    return [] if not (path / "duly.db").exists() else document("notify", "list", "--url", "sqlite:///duly.db")
