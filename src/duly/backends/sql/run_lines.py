"""What running attempts report: their progress, and the lines of their runs' logs.

Takes no lock on claims, except for progress where nobody else has one: a report never waits for a settlement, nor a
settlement for a report. A report that meets a takeover of its run counts as sent before it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from duly.backends.codec import to_json
from duly.backends.line_chunks import bounds, chunk_after, read
from duly.backends.sql.unit import Column, Insert, Row, Unit, Update, columns
from duly.model import LogLine, Report
from duly.model.run_log import Chunk

# The runs of these ids that are running or have ended: their number, fence, whether they run, and their newest chunk.
_OWNED = """
SELECT r.id, r.seq, coalesce(c.fence, e.fence), c.fence IS NOT NULL,
    l.number, l.size, l.fence, l.written, l.keep, l.attempt
FROM {ns}.runs AS r
{with_newest_lines}
WHERE r.id = ANY($1::text[]) AND coalesce(c.fence, e.fence) IS NOT NULL
"""
_APPEND = Insert(
    "run_lines",
    columns(
        seq="bigint",
        number="bigint",
        fence="bigint",
        size="bigint",
        written="bigint",
        keep="int",
        attempt="int",
        lines="text",
    ),
    "ON CONFLICT (seq, number, fence) DO NOTHING",
)
_TRIM = "DELETE FROM {ns}.run_lines WHERE seq = $1 AND (number <= $2 OR size <= $3)"
_PROGRESS = Update(
    "claims",
    (Column("seq"), Column("fence")),
    columns(progress="text"),
    condition="{claim_is_free}",
    answers=False,
)
_READ_ALL = """
SELECT seq, number, size, fence, written, keep, attempt, lines FROM {ns}.run_lines
WHERE seq = ANY($1::bigint[]) ORDER BY seq, number, fence
"""
_READ = """
SELECT number, size, fence, written, keep, attempt, lines FROM {ns}.run_lines
WHERE seq = (SELECT seq FROM {ns}.runs WHERE id = $1) AND number > $2 ORDER BY number, fence
"""


async def report(unit: Unit, reports: Sequence[Report]) -> list[bool]:
    """Keep progress and lines of attempts whose fences are valid; whether each is."""
    rows = {row[0]: row for row in await unit.all(_OWNED, [report.run_id for report in reports])}
    fresh = [report.run_id in rows and rows[report.run_id][2] == report.fence for report in reports]
    valid = [report for report, is_fresh in zip(reports, fresh, strict=True) if is_fresh]
    progress = {report.run_id: report for report in valid if report.progress is not None and rows[report.run_id][3]}
    if progress:
        found = [(rows[run_id][1], each.fence, to_json(each.progress)) for run_id, each in progress.items()]
        await unit.change(_PROGRESS, found)
    await _append(unit, valid, rows)
    return fresh


async def _append(unit: Unit, reports: Sequence[Report], rows: dict[str, Row]) -> None:
    newest = {run_id: _newest(row) for run_id, row in rows.items()}
    before = dict(newest)
    chunks: list[tuple[int, Chunk]] = []
    for each in reports:
        chunk = chunk_after(newest[each.run_id], each)
        if chunk is not None:
            newest[each.run_id] = chunk
            chunks.append((rows[each.run_id][1], chunk))
    if not chunks:
        return
    await unit.insert(_APPEND, [_row(seq, chunk) for seq, chunk in chunks])
    for run_id, last in newest.items():
        number, size = (0, 0) if last is None or last is before[run_id] else bounds(last)
        if number > 0 or size > 0:
            await unit.run(_TRIM, rows[run_id][1], number, size)


def _newest(row: Row) -> Chunk | None:
    number, size, fence, written, keep, attempt = row[4:]
    return None if number is None else Chunk(number, size, fence, written, keep, attempt, b"")


def _row(seq: int, chunk: Chunk) -> tuple[object, ...]:
    lines = chunk.lines.decode()
    return seq, chunk.number, chunk.fence, chunk.size, chunk.written, chunk.keep, chunk.attempt, lines


async def lines(unit: Unit, run_id: str, after: int, limit: int, attempt: int | None) -> list[LogLine]:
    """Lines of a run after a number."""
    rows = await unit.all(_READ, run_id, after)
    return read([_chunk(row) for row in rows], after, limit, attempt)


def _chunk(row: Row) -> Chunk:
    return Chunk(*(*row[:6], row[6].encode()))


# --- for moving a store


async def chunks(unit: Unit, seqs: Sequence[int]) -> dict[int, list[Chunk]]:
    """The whole logs of runs, by their numbers; none for a run without one."""
    found: defaultdict[int, list[Chunk]] = defaultdict(list)
    for row in await unit.all(_READ_ALL, seqs):
        found[row[0]].append(_chunk(tuple(row)[1:]))
    return found


async def put_chunks(unit: Unit, chunks: Iterable[tuple[int, Chunk]]) -> None:
    """Store parts of logs of runs that have none."""
    await unit.insert(_APPEND, [_row(seq, chunk) for seq, chunk in chunks])
