"""The log of a run over HTTP: pages, a stream until the end, and its bounds."""

import asyncio
import json

import pytest
from tests.api.api_support import caller_for, new_token, shop
from tests.api.events_support import Follower

from duly import Context


def chatty(url="memory://"):
    """A shop with a handler that logs as many lines as it is told to."""
    scheduler = shop(url)

    @scheduler.job
    async def chat(ctx: Context, lines: int, wait: float = 0.0) -> None:
        for number in range(1, lines + 1):
            ctx.log.info("line %d", number)
        await asyncio.sleep(wait)

    return scheduler


async def ended(scheduler, lines, **options):
    run = await scheduler.submit("chat", {"lines": lines, **options})
    await run.result(timeout=30)
    return run.id


async def test_a_page_of_lines_and_the_next_one(url):
    scheduler = chatty(url)
    async with scheduler:
        admin = await caller_for(scheduler)
        run_id = await ended(scheduler, 5)
        whole = await admin.get(f"/runs/{run_id}/logs")
        assert whole.status == 200
        assert [line["text"] for line in whole.json] == [f"line {number}" for number in range(1, 6)]
        assert whole.json[0] == whole.json[0] | {
            "number": 1,
            "attempt": 1,
            "source": "log",
            "level": "INFO",
            "logger": "duly.job.chat",
        }
        assert "link" not in whole.headers
        first = await admin.get(f"/runs/{run_id}/logs?limit=3")
        assert [line["number"] for line in first.json] == [1, 2, 3]
        following = first.headers["link"].partition("<")[2].partition(">")[0]
        assert [line["number"] for line in (await admin.get(following)).json] == [4, 5]
        assert (await admin.get(f"/runs/{run_id}/logs?attempt=2")).json == []
        assert (await admin.get(f"/runs/{run_id}/logs?after=4")).json[0]["text"] == "line 5"


async def test_a_stream_follows_a_run_to_its_end_and_can_be_resumed():
    scheduler = chatty()
    async with scheduler:
        admin = await caller_for(scheduler)
        run = await scheduler.submit("chat", {"lines": 3, "wait": 0.6})
        async with Follower(admin, f"/runs/{run.id}/logs?follow") as follower:
            assert (follower.status, follower.headers["content-type"]) == (200, "text/event-stream")
            told = await follower.some(4)
        assert [(message.kind, message.id) for message in told] == [("line", 1), ("line", 2), ("line", 3), ("end", 3)]
        assert told[0].data["text"] == "line 1"
        assert told[-1].data == {"status": "completed"}
        async with Follower(admin, f"/runs/{run.id}/logs?follow=true", last_event_id="2") as second:
            assert [message.id for message in await second.some(2)] == [3, 3]


async def test_the_number_of_streams_is_bounded():
    scheduler = chatty()
    async with scheduler:
        admin = await caller_for(scheduler, max_streams_per_token=1)
        run = await scheduler.submit("chat", {"lines": 1, "wait": 20})
        async with Follower(admin, f"/runs/{run.id}/logs?follow"):
            refused = await admin.get(f"/runs/{run.id}/logs?follow")
            assert (refused.status, refused.problem["type"]) == (429, "urn:duly:problem:too-many-streams")
            assert (await admin.get(f"/runs/{run.id}/logs")).status == 200
        async with Follower(admin, f"/runs/{run.id}/logs?follow") as again:
            assert again.status == 200
        await run.cancel()


@pytest.mark.parametrize(
    "query", ["follow=maybe", "limit=0", "limit=1001", "after=-1", "attempt=0", "other=1", "follow&follow"]
)
async def test_a_wrong_query_is_refused(query):
    scheduler = chatty()
    async with scheduler:
        admin = await caller_for(scheduler)
        run_id = await ended(scheduler, 1)
        assert (await admin.get(f"/runs/{run_id}/logs?{query}")).status in {400, 422}


async def test_a_run_that_the_caller_may_not_see_has_no_log():
    scheduler = chatty()
    async with scheduler:
        admin = await caller_for(scheduler)
        run_id = await ended(scheduler, 1)
        assert (await admin.get("/runs/0123/logs")).status == 404
        limited = admin.with_token(await new_token(scheduler, "viewer", queues=("mail",)))
        assert (await limited.get(f"/runs/{run_id}/logs")).status == 404
        assert (await admin.with_token(None).get(f"/runs/{run_id}/logs")).status == 401


async def test_control_characters_stay_within_their_message():
    scheduler = shop("memory://")

    @scheduler.job
    async def evil(ctx: Context) -> None:
        ctx.log.info("a\r\nid: 99\r\nevent: end\r\ndata: x\x1b[2J")

    async with scheduler:
        admin = await caller_for(scheduler)
        run = await scheduler.submit("evil")
        await run.result(timeout=30)
        async with Follower(admin, f"/runs/{run.id}/logs?follow") as follower:
            told = await follower.some(5)
        assert [message.kind for message in told] == ["line"] * 4 + ["end"]
        assert [message.id for message in told] == [1, 2, 3, 4, 4]
        assert json.dumps(told[3].data["text"]) == '"data: x\\u001b[2J"'
