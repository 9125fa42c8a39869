"""Jobs as the server keeps them: what scripts compare and move at fixed places, then the record as it was saved."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from duly.backends.redis.codec import batch_of, encode
from duly.backends.redis.connection import Word
from duly.backends.tolerance import UNREADABLE, damaged_job
from duly.model import Firing, JobChange, JobRecord, JobStatus, Run, from_micros, to_micros

_HEAD = struct.Struct(">IBqqq")
_ACTIVE, _BLOCKED, _HAS_CURSOR, _HAS_PLAN = 1, 2, 4, 8
_STOPPED = (JobStatus.REMOVED, JobStatus.PAUSED, JobStatus.RETIRED)
_BLOCKING = (JobStatus.REMOVED, JobStatus.PAUSED)

_decode = msgspec.msgpack.Decoder(JobRecord).decode


def job_text(record: JobRecord) -> bytes:
    """A record as it is stored. Uid and shard are read by scripts, what follows is not."""
    status = record.status
    flags = (
        (_ACTIVE if status not in _STOPPED else 0)
        | (_BLOCKED if status in _BLOCKING else 0)
        | (_HAS_CURSOR if record.cursor is not None else 0)
        | (_HAS_PLAN if record.plan_at is not None else 0)
    )
    head = _HEAD.pack(record.revision, flags, _micros(record.cursor), _micros(record.plan_at), record.planned)
    return head + encode(record.uid) + encode(record.shard) + encode(record)


def record_of(name: str, text: bytes) -> JobRecord:
    """A record as it stands: cursor, time to plan and count as scripts have moved them since it was saved."""
    try:
        revision, flags, cursor, plan_at, planned = _HEAD.unpack_from(text)
        uid_ends = _past_text(text, _HEAD.size)
        uid = bytes(text[_HEAD.size : uid_ends])
    except UNREADABLE as exc:
        return damaged_job(name, "", 0, exc)
    try:
        record = _decode(memoryview(text)[_past_text(text, uid_ends) :])
    except UNREADABLE as exc:
        record = damaged_job(name, msgspec.msgpack.decode(uid, type=str), revision, exc)
    return replace(
        record,
        cursor=from_micros(cursor) if flags & _HAS_CURSOR else None,
        plan_at=from_micros(plan_at) if flags & _HAS_PLAN else None,
        planned=planned,
    )


def records_of(names: Sequence[str | bytes], texts: Sequence[bytes | None]) -> list[JobRecord]:
    """The records of these jobs, of those that are there."""
    return [
        record_of(name.decode() if isinstance(name, bytes) else name, text)
        for name, text in zip(names, texts, strict=True)
        if text is not None
    ]


def _past_text(text: bytes, at: int) -> int:
    """Where a msgpack string that begins here ends."""
    kind = text[at]
    if kind < 0xC0:
        return at + 1 + (kind & 0x1F)
    width = 1 << (kind - 0xD9)
    return at + 1 + width + int.from_bytes(text[at + 1 : at + 1 + width], "big")


def _micros(instant: datetime | None) -> int:
    return 0 if instant is None else to_micros(instant)


def change_words(change: JobChange) -> tuple[Word, ...]:
    """One change as arguments of `save`."""
    ledger = batch_of(change.ledger)
    return (
        change.record.name,
        "" if change.expect is None else change.expect,
        "1" if change.moves_cursor else "",
        change.waiting.value,
        job_text(change.record),
        encode(ledger.flat),
        ledger.bodies,
        encode(ledger.odd),
    )


def firing_words(firings: Sequence[Firing]) -> tuple[Word, ...]:
    """Firings as arguments of `fire`, all their runs together."""
    steps = [
        (
            firing.name,
            firing.uid,
            firing.revision,
            to_micros(firing.expect),
            False if firing.cursor is None else to_micros(firing.cursor),
            False if firing.plan_at is None else to_micros(firing.plan_at),
            len(firing.runs),
        )
        for firing in firings
    ]
    runs: list[Run] = [run for firing in firings for run in firing.runs]
    batch = batch_of(runs)
    return encode(steps), encode(batch.flat), batch.bodies, encode(batch.odd)


def slices_by_runs(firings: Sequence[Firing], most: int) -> Iterator[Sequence[Firing]]:
    """Firings in order, as many at a time as have together no more than `most` runs and steps; at least one."""
    some: list[Firing] = []
    weight = 0
    for firing in firings:
        own = 1 + len(firing.runs)
        if some and weight + own > most:
            yield some
            some, weight = [], 0
        some.append(firing)
        weight += own
    if some:
        yield some
