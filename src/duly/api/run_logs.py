"""The log of a run: a page of its lines, or a stream of server-sent events until the run has ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from duly.api.calls import Call, Reply, Stream, answer
from duly.api.events import CONTENT_TYPE, KEEP_ALIVE, LAST_ID, RETRY, UNBUFFERED, last_id
from duly.api.queries import LogsQuery
from duly.api.responses import LogLineAnswer, encode, log_line_answer
from duly.api.runs import find_run
from duly.errors import BackendError
from duly.model import LogLine
from duly.ports import RunStore
from duly.scheduler.log_reader import follow

_RETRY_AFTER = 1.0


class LogEnd(Struct, frozen=True):
    """The data of the last message of a stream, of kind `end`: the run has this state, or is gone."""

    status: str | None


async def get_logs(call: Call[LogsQuery, None]) -> Reply | Stream:
    """The lines of a run's log, or with `follow` a stream of them until the run has ended."""
    run, query = await find_run(call), call.query
    store = (await call.context.client()).backend.store
    if query.follow == "true":
        after = last_id(call.header(LAST_ID))
        return _stream(call, store, run.id, query.after if after is None else after)
    lines = await store.lines(run.id, query.after, query.limit, attempt=query.attempt)
    return answer([log_line_answer(line) for line in lines], headers=_next_page(call, lines))


def _next_page(call: Call[LogsQuery, None], lines: list[LogLine]) -> tuple[tuple[bytes, bytes], ...]:
    query = call.query
    if len(lines) < query.limit:
        return ()
    again = {"attempt": query.attempt, "limit": query.limit, "after": lines[-1].number}
    target = f"{call.path}?{urlencode({key: value for key, value in again.items() if value is not None})}"
    return ((b"link", f'<{target}>; rel="next"'.encode()),)


def _stream(call: Call[LogsQuery, None], store: RunStore, run_id: str, after: int) -> Stream:
    tail, caller = call.context.tail, call.principal.token_id or call.principal.name
    tail.admit(caller)
    chunks = _chunks(call, store, run_id, after)
    return Stream(chunks, lambda: tail.leave(caller), CONTENT_TYPE, UNBUFFERED)


async def _chunks(call: Call[LogsQuery, None], store: RunStore, run_id: str, after: int) -> AsyncGenerator[bytes, None]:
    yield RETRY
    ended = False
    while not ended and not call.context.tail.over:
        try:
            async with aclosing(_messages(call, store, run_id, after)) as messages:
                async for message, reached in messages:
                    after = reached
                    yield message
            ended = True
        except BackendError:  # the lines are read later
            await asyncio.sleep(_RETRY_AFTER)


async def _messages(
    call: Call[LogsQuery, None], store: RunStore, run_id: str, after: int
) -> AsyncGenerator[tuple[bytes, int], None]:
    """The messages of the stream, each with the number of the last line until then."""
    quiet_since = time.monotonic()
    async with aclosing(follow(store, run_id, after, call.query.attempt)) as news:
        async for lines in news:
            if call.context.tail.over:
                return
            if lines:
                after, quiet_since = lines[-1].number, time.monotonic()
                yield b"".join(_message(log_line_answer(line)) for line in lines), after
            elif time.monotonic() - quiet_since >= KEEP_ALIVE:
                quiet_since = time.monotonic()
                yield b": nothing new\n\n", after
    run = await store.run(run_id)
    end = LogEnd(None if run is None else run.state.value)
    yield b"id: %d\nevent: end\ndata: %b\n\n" % (after, msgspec.json.encode(end)), after


def _message(line: LogLineAnswer) -> bytes:
    return b"id: %d\nevent: line\ndata: %b\n\n" % (line.number, encode(line))
