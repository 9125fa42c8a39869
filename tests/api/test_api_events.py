"""Following events over HTTP: nothing missed, nothing twice, nothing that is not for the caller, and an end."""

import asyncio
import json
from datetime import UTC, datetime

import pytest
from tests.api.api_support import Caller, caller_for, new_token, shop
from tests.api.events_support import Follower
from tests.conftest import eventually

from duly.api import Api, ApiSettings, app, events
from duly.api import tokens as access
from duly.api.event_tail import _RECENT, SLICE, EventTail
from duly.errors import BackendUnavailable
from duly.model.published_event import EVENTS, PublishedEvent, PublishedEventKind
from duly.observe.publisher import _encode
from duly.scheduler.event_reader import EventReader

AT = "2027-01-01T12:00:00.000000Z"


def notice(kind="run.ended", **about) -> bytes:
    return _encode(PublishedEvent(kind=PublishedEventKind(kind), at=AT, node="worker-1", **about))


def of_run(number: int, kind="run.ended", job="note", queue="default", handler="note") -> bytes:
    return notice(kind, run_id=f"0{number}", job=job, queue=queue, handler=handler)


@pytest.fixture
async def store(memory):
    return (await memory.opened()).backend.store


# --- from a node to a reader


async def test_what_happens_to_a_run_is_told_and_a_broken_stream_goes_on_where_it_was(url):
    scheduler = shop(url, publish_events=True)
    async with scheduler.client():
        admin = await caller_for(scheduler)
        async with scheduler:
            async with Follower(admin, "/events?job=greet&kind=run.submitted&kind=run.ended") as first:
                assert (first.status, first.headers["content-type"]) == (200, "text/event-stream")
                assert first.headers["cache-control"] == "no-store"
                posted = await admin.post("/runs", {"handler": "greet", "payload": {"name": "Ada"}})
                told = await first.some(2)
            assert {message.kind for message in told} == {"run.submitted", "run.ended"}
            assert {message.data["run_id"] for message in told} == {posted.json["id"]}
            [ended] = [message.data for message in told if message.kind == "run.ended"]
            about = {"job": "greet", "queue": "mail", "handler": "greet", "state": "completed", "outcome": "succeeded"}
            assert ended == ended | about
            assert "Ada" not in json.dumps(ended)
            await (await scheduler.submit("greet", {"name": "Bob"})).result(timeout=30)
            await (await scheduler.opened()).publisher.close()
            async with Follower(admin, "/events", last_event_id=str(first.last_id)) as second:
                missed = await second.next()
            assert missed.id == first.last_id + 1
        entries = await (await scheduler.opened()).backend.store.read(EVENTS, 0, 1000)
        async with Follower(admin, "/events?after=0") as whole:
            assert [message.id for message in await whole.some(len(entries))] == [each.sequence for each in entries]


async def test_what_the_api_changes_is_told():
    scheduler = shop("memory://", publish_events=True)
    async with scheduler:
        pass  # leaves the jobs of the code in the store
    async with scheduler.client():
        admin = await caller_for(scheduler)
        async with Follower(admin) as follower:
            for target in ("/queues/mail/pause", "/queues/mail/resume", "/jobs/invoice/pause", "/jobs/invoice/resume"):
                assert (await admin.post(target)).status == 200
            run = (await admin.post("/runs", {"payload": 1, "delay": 60})).json["id"]
            await admin.post(f"/runs/{run}/cancel")
            await admin.post(f"/runs/{run}/redrive")
            await admin.post(f"/runs/{run}/cancel")
            await admin.post("/runs/redrive", {"status": ["cancelled"]})
            told = [(message.kind, message.data.get("what")) for message in await follower.some(9)]
    assert told == [
        ("queue.paused", None),
        ("queue.resumed", None),
        ("job.saved", "paused"),
        ("job.saved", "resumed"),
        ("run.submitted", None),
        ("run.cancelled", None),
        ("run.redriven", None),
        ("run.cancelled", None),
        ("run.redriven", None),
    ]


# --- where it begins


async def test_without_an_id_only_what_comes_from_now_on_is_told(caller, store):
    await store.append(EVENTS, [of_run(1), of_run(2)])
    async with Follower(caller) as follower:
        await store.append(EVENTS, [of_run(3)])
        assert (await follower.next()).id == 3


async def test_the_id_of_a_stream_that_broke_is_newer_than_the_one_in_the_address(caller, store):
    await store.append(EVENTS, [of_run(number) for number in range(5)])
    async with Follower(caller, "/events?after=1", last_event_id="3") as follower:
        assert [message.id for message in await follower.some(2)] == [4, 5]


async def test_what_is_not_kept_any_more_is_told_as_a_gap(caller, store):
    await store.append(EVENTS, [of_run(number) for number in range(10)], keep=3)
    async with Follower(caller, "/events?after=2") as follower:
        gap, first = await follower.some(2)
        assert (gap.id, gap.kind, gap.data) == (7, "gap", {"after": 2, "next": 8})
        assert first.id == 8
    async with Follower(caller, last_event_id=str(gap.id)) as follower:
        assert [message.id for message in await follower.some(3)] == [8, 9, 10]


async def test_an_id_that_was_never_given_out_is_a_gap_and_the_stream_begins_now(caller, store):
    await store.append(EVENTS, [of_run(1)])
    async with Follower(caller, "/events?after=900") as follower:
        gap = await follower.next()
        assert (gap.id, gap.kind, gap.data) == (1, "gap", {"after": 900, "next": 2})
        await store.append(EVENTS, [of_run(2)])
        assert (await follower.next()).id == 2


@pytest.mark.parametrize("text", ["x", "-1", "1.5", "９", "1" * 17])
async def test_an_id_that_is_none_is_malformed(caller, text):
    answer = await caller.get("/events", last_event_id=text.encode().decode("latin-1"))
    assert answer.status == 400
    assert "Last-Event-ID" in answer.problem["detail"]


@pytest.mark.parametrize("query", ["kind=everything", "after=x", "after=-1", "colour=red", "job=a%20b", "run="])
async def test_a_query_is_checked(caller, query):
    assert (await caller.get(f"/events?{query}")).status == 422


async def test_other_methods(caller):
    answer = await caller("POST", "/events")
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
    head = await caller("HEAD", "/events")
    assert (head.status, head.headers["content-type"], head.body) == (200, "text/event-stream", b"")


# --- what is told to whom


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("kind=run.started", [1]),
        ("kind=run.started&kind=node.started", [1, 5]),
        ("job=report", [3]),
        ("queue=mail", [3, 4]),
        ("handler=make", [3]),
        ("run=02", [2]),
        ("queue=mail&kind=run.ended&kind=run.started", [3]),
        ("", [1, 2, 3, 4, 5, 6]),
    ],
)
async def test_filters(caller, store, query, ids):
    entries = [
        of_run(1, "run.started"),
        of_run(2),
        of_run(3, job="report", queue="mail", handler="make"),
        notice("queue.paused", queue="mail"),
        notice("node.started"),
    ]
    await store.append(EVENTS, [*entries, notice("events.dropped", count=1)])
    query = f"{query}&kind=events.dropped" if "kind" in query else query
    async with Follower(caller, f"/events?{query}&after=0".replace("?&", "?")) as follower:
        told = await follower.some(len(ids))
    assert [message.id for message in told] == ids


async def test_a_limited_token_sees_only_its_own_runs_jobs_and_queues(memory, store):
    limited = Caller(Api(memory), await new_token(memory, "viewer", queues=["mail"], handlers=["greet"]))
    await store.append(
        EVENTS,
        [
            of_run(1),
            of_run(2, queue="mail"),
            of_run(3, handler="greet"),
            of_run(4, queue="mail", handler="greet"),
            notice("queue.paused", queue="default"),
            notice("queue.paused", queue="mail"),
            notice("job.saved", job="note", queue="default", handler="note", what="paused"),
            notice("job.saved", job="hi", queue="mail", handler="greet", what="paused"),
            notice("leader.elected", shard="main"),
            notice("leader.elected", shard="job:secret"),
            notice("node.started"),
            b'{"kind": "some.newer.kind", "at": "2027-01-01T00:00:00Z", "node": "x"}',
            b"\xff garbled",
        ],
    )
    async with Follower(limited, "/events?after=0") as follower:
        assert [message.id for message in await follower.some(4)] == [4, 8, 9, 11]


# --- how it ends


async def test_a_reader_that_leaves_makes_room_for_another(memory):
    caller = await caller_for(memory, max_streams=1)
    async with Follower(caller):
        refused = await caller.get("/events")
        assert refused.status == 503
        assert refused.headers["retry-after"] == "5"
        assert refused.problem["type"] == "urn:duly:problem:too-many-streams"
    async with Follower(caller) as follower:
        assert follower.status == 200
    assert caller.api.context.tail._task is None, "nobody listens, so nothing is read"


async def test_draining_ends_all_streams_and_begins_no_new_ones(caller, store):
    async with Follower(caller) as one, Follower(caller) as other:
        await store.append(EVENTS, [of_run(1)])
        assert (await one.next()).id == 1
        caller.api.context.drain()
        assert await one.next() is None
        assert (await other.next()).id == 1
        assert await other.next() is None
    assert (await caller.get("/events")).problem["type"] == "urn:duly:problem:stopping"


@pytest.mark.parametrize("end", ["revoked", "expired"])
async def test_a_token_that_is_revoked_or_expires_ends_its_stream(memory, store, monkeypatch, end):
    monkeypatch.setattr(app, "_CHECK_AGAIN", 0.01)
    monkeypatch.setattr(access, "CACHED_FOR", 0.0)
    token, text = await access.create(store, datetime.now(UTC), "ci", access.TokenRole.VIEWER)
    async with Follower(Caller(Api(memory), text)) as follower:
        if end == "revoked":
            await access.revoke(store, token.id, datetime.now(UTC))
        else:
            over = access.replace(token, expires_at=datetime.now(UTC))
            await store.put(access.KIND, token.id, access.msgspec.json.encode(over))
        assert await follower.next() is None


async def test_a_quiet_stream_is_kept_alive_and_carries_its_id_on(caller, store, monkeypatch):
    monkeypatch.setattr(events, "KEEP_ALIVE", 0.01)
    await store.append(EVENTS, [of_run(1), of_run(2)])
    async with Follower(caller, "/events?after=0&kind=node.started") as follower:
        await store.append(EVENTS, [notice("node.started")])
        assert (await follower.next()).id == 3
        await store.append(EVENTS, [of_run(4)])
        reading = asyncio.create_task(follower.next())

        async def carried_on():
            return follower.last_id == 4

        await eventually(carried_on, "the id goes on")
        reading.cancel()
    assert follower.comments


# --- memory and outages


async def test_a_reader_that_is_slow_gets_all_of_it_from_the_store_and_no_buffer_grows(caller, store):
    number = 3 * _RECENT
    async with Follower(caller, "/events?after=0") as slow, Follower(caller, "/events?after=0") as quick:
        slow.gate.clear()
        for start in range(0, number, SLICE):
            await store.append(EVENTS, [of_run(start + each) for each in range(SLICE)])
        assert [message.id for message in await quick.some(number)] == list(range(1, number + 1))
        assert len(caller.api.context.tail._recent) <= _RECENT
        assert slow._parts.qsize() <= 2
        slow.gate.set()
        assert [message.id for message in await slow.some(number)] == list(range(1, number + 1))


async def test_an_outage_of_the_store_is_waited_out(store, monkeypatch):
    monkeypatch.setattr("duly.api.event_tail._AFTER_FAILURE", 0.0)
    away = True

    async def published():
        if away:
            raise BackendUnavailable("nobody answers")
        return EventReader(store)

    tail = EventTail(published, 1, 1, period=0.01)
    tail.join("ada")
    news = tail.news
    await asyncio.sleep(0)
    away = False
    await store.append(EVENTS, [of_run(1)])
    async with asyncio.timeout(30):
        await news.wait()
        while not await tail.after(0):
            await tail.news.wait()
    tail.leave("ada")


async def test_the_document_describes_the_stream_and_its_data(caller):
    document = (await caller.get("/openapi.json")).json
    operation = document["paths"]["/events"]["get"]
    schema = operation["responses"]["200"]["content"]["text/event-stream"]["schema"]
    assert schema["contentSchema"]["anyOf"][0] == {"$ref": "#/components/schemas/PublishedEvent"}
    assert {"kind", "at", "node"} == set(document["components"]["schemas"]["PublishedEvent"]["required"])
    assert {each["name"] for each in operation["parameters"]} == {
        *("kind", "job", "handler", "queue", "run", "after"),
        "Last-Event-ID",
    }
    assert {"401", "403", "429", "503", "400", "422"} <= operation["responses"].keys()


def test_the_number_of_streams_is_checked():
    with pytest.raises(Exception, match="max_streams"):
        ApiSettings(max_streams=-1)
