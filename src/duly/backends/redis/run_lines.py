"""The logs of runs on Redis: a list of chunks for each run (scripts/report.lua)."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from duly.backends.line_chunks import Chunk, encoded, read, size_of_lines
from duly.backends.redis.client import RedisClient, slices_of
from duly.backends.redis.codec import encode
from duly.backends.redis.connection import Argument
from duly.backends.tolerance import readable
from duly.model import LogLine, Report
from duly.model.run_log import room_for

_HEAD = struct.Struct(">QQQQII")  # of a chunk, as report.lua writes it
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
    chunks = await client.on_key("LRANGE", f"lines:{run_id}", 0, -1)
    return read(readable(_chunk, chunks), after, limit, attempt)


def _chunk(text: bytes) -> Chunk:
    return Chunk(*(*_HEAD.unpack_from(text), text[_HEAD.size :]))
