"""The published events of the cluster, as a stream of server-sent events that can be resumed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress

import msgspec
from msgspec import Struct

from duly.api.calls import Call, Stream
from duly.api.event_tail import EventTail
from duly.api.permissions import Principal
from duly.api.problems import Problem
from duly.api.queries import EventsQuery
from duly.api.visibility import sees_event
from duly.errors import BackendError
from duly.scheduler.event_reader import Choice, ReadEvent

CONTENT_TYPE = b"text/event-stream"
KEEP_ALIVE = 15.0
LAST_ID = b"last-event-id"
RETRY = b"retry: 2000\n\n"  # milliseconds until a client that lost the stream reconnects
UNBUFFERED = ((b"x-accel-buffering", b"no"),)

_RETRY_AFTER = 1.0


class Gap(Struct, frozen=True):
    """The data of a message of kind `gap`: the events between `after` and `next` are no longer kept."""

    after: int
    next: int


async def follow_events(call: Call[EventsQuery, None]) -> Stream:
    """Events of runs, jobs, queues and nodes, as server-sent events."""
    query, tail = call.query, call.context.tail
    after = last_id(call.header(LAST_ID))
    after = query.after if after is None else after
    last = await tail.last()
    caller = call.principal.token_id or call.principal.name
    tail.join(caller)
    choice = Choice(frozenset(query.kind), query.run, query.job, query.queue, query.handler)
    chunks = _chunks(tail, last if after is None else after, last, choice, call.principal)
    return Stream(chunks, lambda: tail.leave(caller), CONTENT_TYPE, UNBUFFERED)


def last_id(given: str | None) -> int | None:
    """The id after which a stream goes on, from the header of a client that reconnects."""
    text = (given or "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 17):
        raise Problem(400, "malformed", f"Last-Event-ID: {given}: expected the id of an earlier event, a number")
    return int(text)


async def _chunks(
    tail: EventTail, after: int, last: int, choice: Choice, principal: Principal
) -> AsyncGenerator[bytes, None]:
    """The messages of the stream after an id. Without events, a comment with the current id is sent."""
    yield RETRY
    if after > last:  # an id of another store, or of a store that lost its newest data
        yield _gap(after, last + 1)
        after = last
    sent = after
    while not tail.over:
        news = tail.news
        found = await _next(tail, after)
        message, after = _messages(found, after, choice, principal)
        if message:
            sent = after
            yield message
        elif not found and not await _woken(news):
            yield b": nothing new\n\n" if sent == after else b": nothing new\nid: %d\n\n" % after
            sent = after


async def _next(tail: EventTail, after: int) -> list[ReadEvent]:
    try:
        return await tail.after(after)
    except BackendError:  # the tail has logged it; the events are read later
        await asyncio.sleep(_RETRY_AFTER)
        return []


async def _woken(news: asyncio.Event) -> bool:
    """Wait for new events; False if there were none for a while."""
    with suppress(TimeoutError):
        async with asyncio.timeout(KEEP_ALIVE):
            return await news.wait()
    return False


def _messages(found: list[ReadEvent], after: int, choice: Choice, principal: Principal) -> tuple[bytes, int]:
    """The messages of the events that match and that the caller may see; and the last id."""
    parts: list[bytes] = []
    for event in found:
        if event.id != after + 1:
            parts.append(_gap(after, event.id))
        after = event.id
        if choice.takes(event) and sees_event(principal, event):
            parts.append(b"id: %d\nevent: %b\ndata: %b\n\n" % (event.id, event.words.kind.encode(), event.text))
    return b"".join(parts), after


def _gap(after: int, following: int) -> bytes:
    """Its id is the one before the next event: a client that resumes there has seen the gap."""
    return b"id: %d\nevent: gap\ndata: %b\n\n" % (following - 1, msgspec.json.encode(Gap(after, following)))
