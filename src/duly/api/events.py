"""Events: what nodes publish, as a stream of server-sent events that can be resumed where it broke off."""

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
from duly.api.visibility import sees_notice
from duly.errors import BackendError
from duly.scheduler.event_reader import Choice, Told

CONTENT_TYPE = b"text/event-stream"
KEEP_ALIVE = 15.0

_LAST_ID = b"last-event-id"
_ASK_AGAIN = 1.0
_RETRY = b"retry: 2000\n\n"  # milliseconds until a client that lost the stream comes back
_AS_IT_COMES = ((b"x-accel-buffering", b"no"),)


class Gap(Struct, frozen=True):
    """In a message of the kind `gap`: nothing that was after `after` and before `next` is kept any more."""

    after: int
    next: int


async def follow_events(call: Call[EventsQuery, None]) -> Stream:
    """What happens to runs, jobs, queues and nodes, as server-sent events."""
    query, tail = call.query, call.context.tail
    after = _last_id(call.header(_LAST_ID))
    after = query.after if after is None else after
    last = await tail.last()
    caller = call.principal.token_id or call.principal.name
    tail.join(caller)
    choice = Choice(frozenset(query.kind), query.run, query.job, query.queue, query.handler)
    chunks = _chunks(tail, last if after is None else after, last, choice, call.principal)
    return Stream(chunks, lambda: tail.leave(caller), CONTENT_TYPE, _AS_IT_COMES)


def _last_id(given: str | None) -> int | None:
    text = (given or "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 17):
        raise Problem(400, "malformed", f"Last-Event-ID: {given}: the id of an earlier event is needed, a number")
    return int(text)


async def _chunks(
    tail: EventTail, after: int, last: int, choice: Choice, principal: Principal
) -> AsyncGenerator[bytes, None]:
    """The stream, from after one notice on, as it is sent. Where it is quiet a comment and the present id are sent."""
    yield _RETRY
    if after > last:  # an id of another store, or of one that has lost its tail
        yield _gap(after, last + 1)
        after = last
    said = after
    while not tail.over:
        news = tail.news
        found = await _next(tail, after)
        message, after = _messages(found, after, choice, principal)
        if message:
            said = after
            yield message
        elif not found and not await _heard(news):
            yield b": nothing new\n\n" if said == after else b": nothing new\nid: %d\n\n" % after
            said = after


async def _next(tail: EventTail, after: int) -> list[Told]:
    try:
        return await tail.after(after)
    except BackendError:  # the tail has told; what is published meanwhile can be read later
        await asyncio.sleep(_ASK_AGAIN)
        return []


async def _heard(news: asyncio.Event) -> bool:
    """Wait for something new; whether there is, or it has been quiet for long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(KEEP_ALIVE):
            return await news.wait()
    return False


def _messages(found: list[Told], after: int, choice: Choice, principal: Principal) -> tuple[bytes, int]:
    """These notices as messages, as far as they are wanted and may be seen; and the number of the last."""
    parts: list[bytes] = []
    for told in found:
        if told.id != after + 1:
            parts.append(_gap(after, told.id))
        after = told.id
        if choice.takes(told) and sees_notice(principal, told):
            parts.append(b"id: %d\nevent: %b\ndata: %b\n\n" % (told.id, told.words.kind.encode(), told.text))
    return b"".join(parts), after


def _gap(after: int, following: int) -> bytes:
    """Its id is the one before what follows: whoever resumes there has been told."""
    return b"id: %d\nevent: gap\ndata: %b\n\n" % (following - 1, msgspec.json.encode(Gap(after, following)))
