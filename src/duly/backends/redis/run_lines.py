"""The logs of runs on Redis: a list of chunks for each run (scripts/report.lua)."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from duly.backends.line_chunks import encoded, read, size_of_lines
from duly.backends.redis.client import RedisClient, slices_of
from duly.backends.redis.codec import encode
from duly.backends.redis.connection import Argument
from duly.backends.tolerance import readable
from duly.model import LogLine, Report
from duly.model.run_log import Chunk, room_for

_HEAD = struct.Struct(">QQQQII")  # of a chunk, as report.lua writes it
LINES = "lines:"  # what the names of logs of runs begin with
_FENCE = struct.Struct(">Q")
_REPORTS = 100


async def report(client: RedisClient, reports: Sequence[Report]) -> list[bool]:
    """Keep progress and lines of attempts whose fences are valid; whether each is."""
    replies: list[bool] = []
    for some in slices_of(reports, _REPORTS):
        arguments = [argument for report in some for argument in _arguments(report)]
        replies += [reply == 1 for reply in await client.call("report", *arguments)]
    return replies


def _arguments(report: Report) -> tuple[Argument, ...]:
    """One report as arguments of the script."""
    lines = report.lines
    return (
        report.run_id,
        _FENCE.pack(report.fence),
        b"" if report.progress is None else encode(report.progress),
        report.written,
        len(lines),
        size_of_lines(lines),
        report.keep,
        room_for(report.keep),
        lines[0].attempt if lines else 0,
        encoded(lines) if lines else b"",
    )


async def lines(client: RedisClient, run_id: str, after: int, limit: int, attempt: int | None) -> list[LogLine]:
    """Lines of a run after a number."""
    return read(await chunks(client, run_id), after, limit, attempt)


def _chunk(text: bytes) -> Chunk:
    return Chunk(*(*_HEAD.unpack_from(text), text[_HEAD.size :]))


# --- for moving a store: logs of runs keep their names meanwhile, because there can be one for each run


async def chunks(client: RedisClient, run_id: str) -> list[Chunk]:
    """The whole log of a run."""
    return readable(_chunk, await client.on_key("LRANGE", f"{LINES}{run_id}", 0, -1))


async def replace_chunks(client: RedisClient, logs: Mapping[str, Sequence[Chunk]]) -> None:
    """Replace the whole logs of runs."""
    await client.command("DEL", *[client.prefix + f"{LINES}{run_id}".encode() for run_id in logs])
    for run_id, chunks in logs.items():
        if chunks:
            await client.on_key("RPUSH", f"{LINES}{run_id}", *[_text(chunk) for chunk in chunks])


def _text(chunk: Chunk) -> bytes:
    numbers = (chunk.number, chunk.size, chunk.fence, chunk.written, chunk.keep, chunk.attempt)
    return _HEAD.pack(*numbers) + chunk.lines
