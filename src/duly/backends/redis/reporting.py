"""What nodes report about attempts: how they ended, and the lines of their runs' logs.

Nearly all settlements are plain completions: a run without group and dedupe key succeeded at its first attempt. They
travel to the script `settle` as short rows, with statuses made from a template; everything else as full rows. Runs that
were claimed together have one start, and many share ready time, node and job: each distinct value is converted once.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from duly.backends.line_chunks import encoded, read, size_of_lines
from duly.backends.redis.client import RedisClient, slices_of
from duly.backends.redis.codec import NUMBERS, OUTCOME_NUMBERS, STATUS, encode
from duly.backends.redis.connection import Argument
from duly.backends.tolerance import readable
from duly.model import LogLine, Report, Settlement, State, to_micros
from duly.model.run_log import Chunk, room_for

_HEAD = struct.Struct(">QQQQII")  # of a chunk, as report.lua writes it
LINES = "lines:"  # what the names of logs of runs begin with
_FENCE = struct.Struct(">Q")
_REPORTS = 100
_MAX_PLAIN_KEYS = 8  # the counters of each are written with the settlement; those of more are added up later
_FIRST_FINAL = NUMBERS[State.COMPLETED]
_NIL = b"\xc0"
# The status of a plain completion: what precedes the fence, the fence, what follows up to the end, the end.
_BEFORE_FENCE = bytes((0x9F, _FIRST_FINAL, 0, 0xCF))
_AFTER_FENCE = struct.Struct(">BqBIBIBqB")
_PLAIN = struct.Struct(f">{len(_BEFORE_FENCE)}sQ{_AFTER_FENCE.size}sq")
_MICROSECOND = timedelta(microseconds=1)
_NO_REQUEST = b"\xcf" + bytes(8)


class SettlementBatch:
    """One call of `settle`: its `arguments`, and which settlement each number in its reply means."""

    arguments: tuple[Argument, ...]

    def __init__(self, settlements: Sequence[Settlement]) -> None:
        self._size = len(settlements)
        self._keys: dict[tuple[str, str], int] = {}
        self._full: list[int] = []
        self._plain: list[int] = []
        plain = self._plain_arguments(settlements)
        full = self._full_arguments([settlements[number] for number in self._full])
        self.arguments = (*full, encode([part for key in self._keys for part in key]), *plain)

    def answers(self, stale: Sequence[int]) -> list[bool]:
        """Whether each settlement is fresh, by the reply: the numbers of the stale ones, full rows first."""
        answers = [True] * self._size
        for number in stale:
            answers[(self._full + self._plain)[number - 1]] = False
        return answers

    def _plain_arguments(self, settlements: Sequence[Settlement]) -> tuple[bytes, bytes, bytes]:
        """Rows, texts and sums of the plain completions. The others are noted in `_full`."""
        full, plain = self._full, self._plain
        rows: list[str | int] = []
        texts: list[bytes] = []
        sums: dict[int, list[int]] = {}
        seen: set[str] = set()
        node = settlements[0].node
        tail = b"".join((_NO_REQUEST, encode(node), _NIL * 5))
        before: Settlement | None = None
        number = started = 0
        middle = b""
        for index, each in enumerate(settlements):
            if (
                each.state is not State.COMPLETED
                or each.attempt is not None
                or each.group is not None
                or each.keyed
                or each.reason is not None
                or each.node != node
                or each.failures
                or each.losses
                or each.run_id in seen
            ):
                full.append(index)
                continue
            if before is None or each.job != before.job or each.queue != before.queue:
                number = self._plain_key(each)
            if number == 0:
                full.append(index)
                continue
            if before is None or each.started_at is not before.started_at or each.ready_at is not before.ready_at:
                started = to_micros(each.started_at)
                middle = _AFTER_FENCE.pack(0xD3, to_micros(each.ready_at), 0xCE, 0, 0xCE, 0, 0xD3, started, 0xD3)
            before = each
            ended = started + (each.ended_at - each.started_at) // _MICROSECOND
            text = _PLAIN.pack(_BEFORE_FENCE, each.fence, middle, ended) + tail
            if each.result is not None:
                text = b"".join((text[:-2], encode(each.result), _NIL))
            texts.append(text)
            rows += (each.run_id, str(ended), len(text), number)
            plain.append(index)
            seen.add(each.run_id)
            totals = sums.get(number)
            if totals is None:
                totals = sums[number] = [0, 0, 0]
            totals[0] += 1
            totals[1] += ended - started
            totals[2] = max(totals[2], started)
        flat = [part for number in sorted(sums) for part in sums[number]]
        return (encode(rows), b"".join(texts), encode(flat)) if plain else (b"", b"", b"")

    def _plain_key(self, settlement: Settlement) -> int:
        """The number of the key of a plain completion; 0 if there are as many keys as may be counted at once."""
        key = (settlement.job, settlement.queue)
        number = self._keys.get(key, 0)
        if number == 0 and len(self._keys) < _MAX_PLAIN_KEYS:
            number = self._keys[key] = len(self._keys) + 1
        return number

    def _full_arguments(self, settlements: Sequence[Settlement]) -> tuple[bytes, bytes]:
        """Rows and texts of all others."""
        keys = self._keys
        rows: list[str | int] = []
        texts: list[bytes] = []
        nodes: dict[str, bytes] = {}
        started_at: datetime | None = None
        ended_at: datetime | None = None
        ready_at: datetime | None = None
        started = ended = ready = 0
        for each in settlements:
            if each.started_at is not started_at:
                started_at = each.started_at
                started = to_micros(started_at)
            if each.ended_at is not ended_at:
                ended_at = each.ended_at
                ended = to_micros(ended_at)
            if each.ready_at is not ready_at:
                ready_at = each.ready_at
                ready = to_micros(ready_at)
            node = nodes.get(each.node)
            if node is None:
                node = nodes[each.node] = encode(each.node)
            number = keys.setdefault((each.job, each.queue), len(keys) + 1)
            status = _status_of(each, started, ended, ready, node)
            texts.append(status)
            attempt = b"" if each.attempt is None else encode(each.attempt)
            if attempt:
                texts.append(attempt)
            outcome = 0 if each.outcome is None else OUTCOME_NUMBERS[each.outcome]
            group = None if each.keyed else each.group
            rows += (each.run_id, len(status), len(attempt), number, outcome, started, ended, ready, group or "")
        return encode(rows), b"".join(texts)


def _status_of(settlement: Settlement, started: int, ended: int, ready: int, node: bytes) -> bytes:
    """The status of a run after this settlement, as far as the settlement knows it. `node` is its encoded name."""
    state = NUMBERS[settlement.state]
    head = STATUS.pack(
        0x9F,
        state,
        0,
        0xCF,
        settlement.fence,
        0xD3,
        ready,
        0xCE,
        settlement.failures,
        0xCE,
        settlement.losses,
        0xD3,
        started,
        0xD3,
        ended if state >= _FIRST_FINAL else 0,
        0xCF,
        0,
    )
    reason, result, failure = settlement.reason, settlement.result, settlement.failure
    return b"".join(
        (
            head,
            node,
            _NIL if settlement.hold is None else encode(settlement.hold),
            _NIL if reason is None else encode(reason),
            _NIL,
            _NIL if result is None else encode(result),
            _NIL if failure is None else encode(failure),
        )
    )


# --- logs of runs: a list of chunks for each run (scripts/report.lua)


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
