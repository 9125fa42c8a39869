"""Events as they are published: in few appends, without anything of a run's content, and never at a run's cost."""

import asyncio
import json
import logging
from datetime import UTC, datetime

import pytest

from duly import Scheduler, SchedulerConfig
from duly.errors import BackendUnavailable
from duly.model import Entry, Failure, OutcomeKind, Progress, Run, State
from duly.model import event as events
from duly.observe.published_events import PUBLISHED, notices_of
from duly.observe.publisher import MOST_AT_ONCE, Publisher

NOW = datetime(2027, 1, 1, 12, tzinfo=UTC)
RUN = Run(
    id="0123",
    job="report",
    handler="make",
    due=NOW,
    ready_at=NOW,
    queue="mail",
    payload=b'{"card": "s3cr3t"}',
    result=b'"s3cr3t"',
    node="worker-1",
)


class Log:
    """The log of a store that can be away."""

    def __init__(self):
        self.batches = []
        self.away = False
        self.appended = asyncio.Event()

    async def append(self, log, entries, expect=None, keep=None):
        assert (log, expect) == ("events", None)
        if self.away:
            self.appended.set()
            raise BackendUnavailable("nobody answers")
        self.batches.append([json.loads(entry) for entry in entries])
        self.keep = keep
        self.appended.set()
        return 1


def publisher(log, **options):
    return Publisher(log, lambda: NOW, "worker-1", lambda: 100, **{"period": 0.0, **options})


async def published(log, publish):
    log.appended.clear()
    publish()
    async with asyncio.timeout(30):
        await log.appended.wait()


async def test_what_gathers_is_one_append_and_nothing_is_none():
    log = Log()
    publish = publisher(log)
    await published(log, lambda: [publish(events.RunStarted(RUN, 0.5)), publish(events.RunReleased(RUN))])
    assert [[notice["kind"] for notice in batch] for batch in log.batches] == [["run.started", "run.released"]]
    assert log.keep == 100
    publish(events.LoopStalled(1.0, "stack"))
    assert publish._task is None or publish._task.done() or not publish._waiting
    await publish.close()
    assert len(log.batches) == 1


async def test_what_is_left_is_published_at_the_end_and_nothing_after_it():
    log = Log()
    publish = publisher(log, period=3600.0)
    publish(events.RunReleased(RUN))
    await publish.close()
    publish(events.RunReleased(RUN))
    await publish.close()
    assert [len(batch) for batch in log.batches] == [1]


async def test_what_is_too_much_is_counted_and_told_by_one_entry():
    log = Log()
    publish = publisher(log, period=3600.0)
    for _ in range(MOST_AT_ONCE + 25):
        publish(events.RunReleased(RUN))
    await publish.close()
    [batch] = log.batches
    assert len(batch) == MOST_AT_ONCE + 1
    assert batch[-1] == {
        "kind": "events.dropped",
        "at": "2027-01-01T12:00:00.000000Z",
        "node": "worker-1",
        "count": 25,
    }


async def test_a_store_that_is_away_loses_events_is_logged_once_and_told_of_later(monkeypatch, caplog):
    monkeypatch.setattr("duly.observe.publisher._AFTER_FAILURE", 0.0)
    log = Log()
    publish = publisher(log)
    log.away = True
    with caplog.at_level(logging.WARNING, "duly.observe"):
        await published(log, lambda: publish(events.RunReleased(RUN)))
        await published(log, lambda: publish(events.RunReleased(RUN)))
    assert len([record for record in caplog.records if "not published" in record.message]) == 1
    log.away = False
    await published(log, lambda: publish(events.RunStarted(RUN, 0.0)))
    await publish.close()
    [*_, last] = [notice for batch in log.batches for notice in batch if notice["kind"] == "events.dropped"]
    assert last["count"] == 2


async def test_a_store_that_stays_away_does_not_keep_the_process(monkeypatch):
    log = Log()
    log.away = True
    publish = publisher(log)
    publish(events.RunReleased(RUN))
    async with asyncio.timeout(30):
        await publish.close()
    assert log.batches == []


async def test_a_store_that_hangs_does_not_keep_the_process(monkeypatch):
    monkeypatch.setattr("duly.observe.publisher._LAST_WORDS", 0.01)

    class Hanging:
        async def append(self, *_, **__):
            await asyncio.Event().wait()

    publish = publisher(Hanging())
    publish(events.RunReleased(RUN))
    async with asyncio.timeout(30):
        await publish.close()


# --- what is said of which event

FAILURE = Failure("ValueError", "x" * 5000, "Traceback s3cr3t")
LEASE = events.Lease("leader", "worker-1", 7, NOW)


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (events.RunsSubmitted((RUN,)), {"kind": "run.submitted", "state": "pending", "cause": "submit"}),
        (
            events.RunProgressed(RUN, Progress(1, 2, "boxes")),
            {
                "kind": "run.progressed",
                "state": "running",
                "attempt": 1,
                "progress": {"done": 1, "total": 2, "note": "boxes"},
            },
        ),
        (events.RunStarted(RUN, 0.25), {"kind": "run.started", "state": "running", "late": 0.25, "attempt": 1}),
        (
            events.RunEnded(RUN, OutcomeKind.FAILED, State.PENDING, 1.5, FAILURE, NOW),
            {
                "kind": "run.ended",
                "state": "pending",
                "outcome": "failed",
                "seconds": 1.5,
                "retry_at": "2027-01-01T12:00:00.000000Z",
                "error": {"type": "ValueError", "message": "x" * 1000},
            },
        ),
        (events.RunMissed(RUN, 90.0), {"kind": "run.skipped", "state": "skipped"}),
        (events.RunReleased(RUN), {"kind": "run.released"}),
        (events.SettlementRefused(RUN.id, 3, RUN), {"kind": "run.refused"}),
        (events.ClaimsLost((RUN.id,), (RUN,)), {"kind": "run.lease_lost"}),
        (events.RunsReaped((RUN.id,), ("worker-1",), (RUN,)), {"kind": "run.reaped", "vanished": "worker-1"}),
        (events.CancelAsked(RUN, done=True), {"kind": "run.cancelled", "state": "cancelled"}),
        (events.CancelAsked(RUN, done=False), {"kind": "run.cancelling"}),
        (events.RunRedriven(RUN), {"kind": "run.redriven", "state": "pending"}),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, events.Event) else "",
)
def test_an_event_about_a_run_names_it_and_holds_nothing_of_its_content(event, said):
    [[notice], over] = notices_of(event, NOW, "boss", 10)
    assert over == 0
    about = json.loads(as_json(notice))
    where = {"node": "boss", "run_id": "0123", "job": "report", "queue": "mail", "handler": "make"}
    assert about == about | said | where
    assert "s3cr3t" not in as_json(notice)


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (
            events.JobSaved("report", 3, "paused", "mail", "make"),
            {
                "kind": "job.saved",
                "job": "report",
                "revision": 3,
                "what": "paused",
                "queue": "mail",
                "handler": "make",
            },
        ),
        (events.QueuePaused("mail"), {"kind": "queue.paused", "queue": "mail"}),
        (events.QueueResumed("mail"), {"kind": "queue.resumed", "queue": "mail"}),
        (events.LeaderElected(LEASE, 4), {"kind": "leader.elected", "shard": "leader"}),
        (events.LeaderLost("leader", resigned=True), {"kind": "leader.lost", "shard": "leader"}),
        (events.NodeStarted("boss", "redis://:s3cr3t@h"), {"kind": "node.started"}),
        (events.NodeStopped("boss", 1, 0), {"kind": "node.stopped"}),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, events.Event) else "",
)
def test_an_event_about_jobs_queues_and_nodes(event, said):
    [[notice], over] = notices_of(event, NOW, "boss", 10)
    assert over == 0
    assert json.loads(as_json(notice)) == {"at": "2027-01-01T12:00:00.000000Z", "node": "boss", **said}


def test_every_kind_that_is_published_is_tested_here():
    tested = {
        case.values[0].__class__ if hasattr(case, "values") else case[0].__class__
        for test in (
            test_an_event_about_a_run_names_it_and_holds_nothing_of_its_content,
            test_an_event_about_jobs_queues_and_nodes,
        )
        for mark in test.pytestmark
        for case in mark.args[1]
    }
    assert tested == PUBLISHED


def as_json(notice) -> str:
    from duly.observe.publisher import _encode

    return _encode(notice).decode()


# --- by a scheduler


async def read(scheduler) -> list[dict]:
    entries: list[Entry] = await (await scheduler.opened()).backend.store.read("events", 0, 1000)
    return [json.loads(entry.value) for entry in entries]


async def test_a_node_publishes_what_happens_where_it_is_asked_to(url):
    scheduler = Scheduler(url, SchedulerConfig(publish_events=True, node_id="worker-7"))

    @scheduler.job(queue="mail", retry=None)
    async def greet(name: str) -> None:
        raise ValueError(f"no {name}")

    async with scheduler.client(), scheduler:
        run = await scheduler.submit("greet", {"name": "Ada"})
        with pytest.raises(Exception, match="no Ada"):
            await run.result(timeout=30)
        await scheduler.redrive(run.id)
        with pytest.raises(Exception, match="no Ada"):
            await run.result(timeout=30)
        later = await scheduler.submit("greet", {"name": "Bob"}, delay=60)
        await scheduler.cancel(later.id)
        await scheduler.pause("greet")
    async with scheduler.client():
        told = await read(scheduler)
    kinds = [notice["kind"] for notice in told if notice.get("run_id") == run.id]
    expected = ["run.submitted", "run.started", "run.ended", "run.redriven", "run.started", "run.ended"]
    assert sorted(kinds) == sorted(expected), "who hears of it first is a matter of chance"
    assert [notice["kind"] for notice in told if notice.get("run_id") == later.id] == [
        "run.submitted",
        "run.cancelled",
    ]
    assert {notice["node"] for notice in told} == {"worker-7"}
    others = [notice for notice in told if "run_id" not in notice]
    assert {"node.started", "leader.elected", "leader.lost", "node.stopped"} < {each["kind"] for each in others}
    saved = [(each["what"], each["queue"]) for each in others if each["kind"] == "job.saved"]
    assert saved == [("deployed", "mail"), ("paused", "mail")]


async def test_a_plain_node_publishes_nothing():
    scheduler = Scheduler("memory://")

    @scheduler.job
    async def greet() -> None: ...

    async with scheduler.client():
        async with scheduler:
            await (await scheduler.submit("greet")).result(timeout=30)
        assert await read(scheduler) == []


async def test_only_the_newest_are_kept():
    scheduler = Scheduler("memory://", SchedulerConfig(publish_events=True, keep_events=3))

    @scheduler.job
    async def greet() -> None: ...

    async with scheduler.client():
        await scheduler.submit_many("greet", [{}] * 10)
        await (await scheduler.opened()).publisher.close()
        assert len(await read(scheduler)) == 3
