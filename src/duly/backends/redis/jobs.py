"""Jobs on the server: fields that scripts compare and change, at fixed offsets, then the record as it was saved."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from duly.backends.codec import in_shard
from duly.backends.redis.codec import BatchArguments, batch_arguments, encode
from duly.backends.redis.connection import Argument
from duly.backends.tolerance import UNREADABLE, damaged_job
from duly.model import Firing, JobChange, JobRecord, JobStatus, from_micros, to_micros

_HEAD = struct.Struct(">IBqqq")
_ACTIVE, _BLOCKED, _HAS_CURSOR, _HAS_PLAN = 1, 2, 4, 8
_STOPPED = (JobStatus.REMOVED, JobStatus.PAUSED, JobStatus.RETIRED)
_BLOCKING = (JobStatus.REMOVED, JobStatus.PAUSED)

_decode = msgspec.msgpack.Decoder(JobRecord).decode


def encode_job(record: JobRecord) -> bytes:
    """A record as it is stored. Scripts read uid and shard, and not what follows."""
    status = record.status
    flags = (
        (_ACTIVE if status not in _STOPPED else 0)
        | (_BLOCKED if status in _BLOCKING else 0)
        | (_HAS_CURSOR if record.cursor is not None else 0)
        | (_HAS_PLAN if record.plan_at is not None else 0)
    )
    head = _HEAD.pack(record.revision, flags, _micros(record.cursor), _micros(record.plan_at), record.planned)
    return head + encode(record.uid) + encode(record.shard) + encode(record)


def decode_job(name: str, text: bytes) -> JobRecord:
    """A record as it is now: scripts may have changed cursor, time to plan and count since it was saved."""
    try:
        revision, flags, cursor, plan_at, planned = _HEAD.unpack_from(text)
        uid_end = _string_end(text, _HEAD.size)
        uid = bytes(text[_HEAD.size : uid_end])
        shard_end = _string_end(text, uid_end)
        shard = msgspec.msgpack.decode(text[uid_end:shard_end], type=str)
    except UNREADABLE as exc:
        return damaged_job(name, "", 0, exc)
    try:
        record = _decode(memoryview(text)[shard_end:])
    except UNREADABLE as exc:
        record = damaged_job(name, msgspec.msgpack.decode(uid, type=str), revision, exc)
    return replace(
        in_shard(record, shard),
        cursor=from_micros(cursor) if flags & _HAS_CURSOR else None,
        plan_at=from_micros(plan_at) if flags & _HAS_PLAN else None,
        planned=planned,
    )


def decode_jobs(names: Sequence[str | bytes], texts: Sequence[bytes | None]) -> list[JobRecord]:
    """The records of those jobs that exist."""
    return [
        decode_job(name.decode() if isinstance(name, bytes) else name, text)
        for name, text in zip(names, texts, strict=True)
        if text is not None
    ]


def _string_end(text: bytes, at: int) -> int:
    """The end of the msgpack string that begins at this offset."""
    kind = text[at]
    if kind < 0xC0:
        return at + 1 + (kind & 0x1F)
    width = 1 << (kind - 0xD9)
    return at + 1 + width + int.from_bytes(text[at + 1 : at + 1 + width], "big")


def _micros(instant: datetime | None) -> int:
    return 0 if instant is None else to_micros(instant)


def change_arguments(change: JobChange) -> tuple[Argument, ...]:
    """One change as arguments of `save`."""
    return (
        change.record.name,
        "" if change.expect is None else change.expect,
        "1" if change.moves_cursor else "",
        change.waiting.value,
        encode_job(change.record),
        *batch_arguments(change.ledger),
        place_of(change.record),
        "1" if change.redefines else "",
    )


def place_of(record: JobRecord) -> str:
    """Where a job is in the index of handlers (`lib/job_index.lua`)."""
    return index_place(record.spec.handler, record.retired_at is not None) if record.needs_handler else ""


def index_place(handler: str, retired: bool) -> str:
    """Where the jobs of a handler are."""
    return f"{'r' if retired else 'a'}{handler}"


def firing_arguments(firings: Sequence[Firing]) -> tuple[bytes, *BatchArguments]:
    """Firings as arguments of `fire`, with the runs of all of them together."""
    steps = [
        (
            firing.name,
            firing.uid,
            firing.revision,
            to_micros(firing.expect),
            False if firing.cursor is None else to_micros(firing.cursor),
            False if firing.plan_at is None else to_micros(firing.plan_at),
            len(firing.runs),
            *(() if firing.move_to is None else (firing.move_to,)),
        )
        for firing in firings
    ]
    return encode(steps), *batch_arguments([run for firing in firings for run in firing.runs])


def slices_by_runs(firings: Sequence[Firing], most: int) -> Iterator[Sequence[Firing]]:
    """Firings in order, in slices of at most `most` firings and runs together; at least one firing each."""
    some: list[Firing] = []
    size = 0
    for firing in firings:
        added = 1 + len(firing.runs)
        if some and size + added > most:
            yield some
            some, size = [], 0
        some.append(firing)
        size += added
    if some:
        yield some
