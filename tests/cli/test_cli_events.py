"""`duly events`: what was published, and what is being published."""

import asyncio
import json

import pytest
from tests.cli.cli_support import document, invoke, spawn

from duly.cli.settings import read_settings
from duly.errors import ConfigurationError
from duly.model.published_event import EVENTS, PublishedEventKind
from duly.scheduler import Scheduler

URL = "sqlite:///duly.db"


def published(*notices: dict, keep=None):
    """Publish these."""

    async def append():
        async with Scheduler(URL).client() as scheduler:
            store = (await scheduler.opened()).backend.store
            await store.append(EVENTS, [json.dumps(each).encode() for each in notices], keep=keep)

    asyncio.run(append())


def notice(kind="run.ended", **about):
    return {"kind": kind, "at": "2027-01-01T12:00:00.250000Z", "node": "worker-1", **about}


RUN = {"run_id": "0123", "job": "report", "queue": "mail", "handler": "make"}


def test_what_is_done_on_the_command_line_is_published(ids):
    invoke("pause", "nightly")
    invoke("cancel", ids["later"])
    told = [(each["id"], each["kind"], each["job"]) for each in document("events")]
    assert told == [(1, "job.saved", "nightly"), (2, "run.cancelled", "greet")]
    assert "nightly paused (revision 2)" in invoke("events").stdout
    assert document("events", "--after", "1")[0]["run_id"] == ids["later"]


def test_unless_it_is_switched_off(ids):
    invoke("pause", "nightly", DULY_PUBLISH_EVENTS="no")
    assert document("events") == []
    assert "no events match" in invoke("events").stderr


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (
            notice(**RUN, state="completed", outcome="succeeded", seconds=0.25),
            "report 0123 completed after 250 ms on worker-1",
        ),
        (
            notice(
                **RUN,
                state="pending",
                outcome="failed",
                seconds=1.0,
                retry_at="2027-01-01T12:00:09.000000Z",
                error={"type": "OSError", "message": "no\x1b[31m way"},
            ),
            "report 0123 failed after 1 s on worker-1: OSError: no�[31m way, retry at 12:00:09",
        ),
        (notice("run.started", **RUN, late=0.002), "report 0123 on worker-1, 2 ms late"),
        (notice("run.reaped", **RUN, vanished="worker-2"), "report 0123 by worker-1 from worker-2, which vanished"),
        (notice("run.released", **RUN), "report 0123 by worker-1"),
        (notice("job.saved", job="report", what="paused", revision=3), "report paused (revision 3) by worker-1"),
        (notice("queue.paused", queue="mail"), "mail by worker-1"),
        (notice("leader.elected", shard="leader"), "leader by worker-1"),
        (notice("node.started"), "node.started    worker-1"),
        (notice("events.dropped", count=7), "7 events of worker-1 were not published"),
        (notice("from.the.future"), "from.the.future  worker-1"),
    ],
)
def test_an_event_is_a_line(event, words):
    published(event)
    [text] = invoke("events").stdout.splitlines()
    assert words in text
    assert "      1  2027-01-01 12:00:00.250Z  " in text


def test_the_newest_are_shown_those_after_one_and_those_that_match():
    published(*[notice(**RUN | {"run_id": f"0{n}"}) for n in range(600)], notice("node.started"), keep=550)
    assert [each["id"] for each in document("events", "--limit", "2")] == [600, 601]
    assert [each["id"] for each in document("events", "--limit", "2", "--after", "0")] == [52, 53]
    assert [each["id"] for each in document("events", "--run", "0599")] == [600]
    assert [each["id"] for each in document("events", "--kind", "node.started", "--kind", "node.stopped")] == [601]
    assert len(document("events", "--job", "report", "--queue", "mail", "--handler", "make", "--limit", "1000")) == 549
    assert document("events", "--queue", "other") == []


def test_following_goes_on_and_tells_a_gap(tmp_path):
    published(*[notice(**RUN)] * 5, keep=2)
    process = spawn("events", "--follow", "--json", "--after", "1", folder=tmp_path)
    try:
        assert [json.loads(process.stdout.readline())["id"] for _ in range(2)] == [4, 5]
        assert "2 events after 1 are no longer kept" in process.stderr.readline()
        published(notice("node.started"))
        assert json.loads(process.stdout.readline()) == {"id": 6, **notice("node.started")}
        process.send_signal(2)
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.communicate()


def test_settings_of_events(tmp_path):
    found = read_settings({"DULY_PUBLISH_EVENTS": "Yes", "DULY_KEEP_EVENTS": "100"}, tmp_path)
    assert (found.field("publish_events"), found.field("keep_events")) == (True, 100)
    (tmp_path / "duly.toml").write_text("publish_events = false\nkeep_events = 7\n")
    found = read_settings({}, tmp_path)
    assert (found.field("publish_events"), found.field("keep_events")) == (False, 7)
    with pytest.raises(ConfigurationError, match="DULY_PUBLISH_EVENTS='maybe': expected yes or no"):
        read_settings({"DULY_PUBLISH_EVENTS": "maybe"}, tmp_path)
    rows = {row["setting"]: row for row in document("config", "show")}
    assert rows["keep_events"]["value"] == 7
    assert rows["publish_events"] == {
        "setting": "publish_events",
        "value": False,
        "source": "duly.toml",
        "change": "restart",
        "variables": ["DULY_PUBLISH_EVENTS"],
    }


def test_every_kind_can_be_asked_for():
    published(notice())
    for kind in PublishedEventKind:
        invoke("events", "--kind", kind.value)
