"""How stores keep the logs of runs: the lines of one report together, as a chunk.

So a report is one record to write, and old records are deleted as a whole. A chunk says how many lines and bytes the
run has written up to its end. What is beyond the bounds in the oldest chunk is left out by reading.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import msgspec

from duly.backends.tolerance import UNREADABLE
from duly.model import LineSource, LogLine, Report, from_micros, to_micros
from duly.model.run_log import Chunk, room_for, size_of

_Line = tuple[int, LineSource, str, str, str]  # micros, source, text, level, logger
_lines = msgspec.json.Decoder(list[_Line])


def encoded(lines: Iterable[LogLine]) -> bytes:
    """The lines of a chunk."""
    return msgspec.json.encode(
        [(to_micros(line.at), line.source.value, line.text, line.level, line.logger) for line in lines]
    )


def size_of_lines(lines: Iterable[LogLine]) -> int:
    """The bytes of these lines."""
    return sum(size_of(line.text) for line in lines)


def chunk_after(newest: Chunk | None, report: Report) -> Chunk | None:
    """The chunk of a report that follows the newest one of the run; None if it has no lines, or they are there."""
    if not report.lines:
        return None
    same_attempt = newest is not None and newest.fence == report.fence
    known = newest.written if same_attempt and newest is not None else 0
    if report.written < known:
        return None
    number, size = (0, 0) if newest is None else (newest.number, newest.size)
    return Chunk(
        number=number + report.written - known + len(report.lines),
        size=size + size_of_lines(report.lines),
        fence=report.fence,
        written=report.written + len(report.lines),
        keep=report.keep,
        attempt=report.lines[0].attempt,
        lines=encoded(report.lines),
    )


def bounds(newest: Chunk) -> tuple[int, int]:
    """A chunk whose number is not above the first of these, or whose size not above the second, is out of bounds."""
    return newest.number - newest.keep, newest.size - room_for(newest.keep)


def read(chunks: Sequence[Chunk], after: int, limit: int, attempt: int | None) -> list[LogLine]:
    """Lines of a run, from its chunks in order, of which the last is the newest of the run."""
    if not chunks:
        return []
    after_number, after_size = bounds(chunks[-1])
    first = max(after, after_number)
    found = (
        line
        for chunk in chunks
        if attempt is None or chunk.attempt == attempt
        for line in _within(chunk, after_size)
        if line.number > first
    )
    return list(islice(found, max(0, limit)))


def _within(chunk: Chunk, after_size: int) -> Iterator[LogLine]:
    """The lines of a chunk that begin after so many bytes."""
    lines = _decoded(chunk)
    begin = chunk.size - sum(size_of(text) for _, _, text, _, _ in lines)
    for number, (at, source, text, level, logger) in enumerate(lines, chunk.number - len(lines) + 1):
        if begin >= after_size:
            yield LogLine(number, chunk.attempt, from_micros(at), source, text, level, logger)
        begin += size_of(text)


def _decoded(chunk: Chunk) -> list[_Line]:
    """The lines; none of a damaged record, whose numbers are then missing."""
    try:
        return _lines.decode(chunk.lines)
    except UNREADABLE:
        return []
