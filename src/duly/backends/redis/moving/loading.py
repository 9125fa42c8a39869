"""Writing records of another store into a Redis store, as they are, under the names of a store that is being loaded."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from duly.backends.redis import reporting
from duly.backends.redis.client import ClientView, slices_of
from duly.backends.redis.codec import (
    CANCELLING,
    NUMBERS,
    STATUS,
    encode,
    encode_job,
    queue_key_of,
    rest_of,
)
from duly.backends.redis.connection import Argument
from duly.backends.redis.records import VERSION, place_of, statistics_text
from duly.errors import BackendError
from duly.model import Attempt, Entry, Run, to_micros
from duly.model.definitions import definitions_log
from duly.model.transfer import (
    Gone,
    JobEntry,
    KeyEntry,
    Loaded,
    LogEntry,
    QueueEntry,
    RunEntry,
    StatisticsEntry,
    TotalEntry,
    ValueEntry,
    kind_of,
)

_HAS_PROGRESS, _ONLY_HELD = 4, 8
_ARGUMENTS = 10
_RUNS = 200
_NIL = encode(None)
_COUNT = struct.Struct(">I")
_UNIQUE = struct.Struct(">qq")
_TIME = struct.Struct(">q")
_SLICE = 1_000


async def load(view: ClientView, records: Sequence[Loaded]) -> None:
    """Store these records; those that exist are replaced."""
    by_kind: defaultdict[str, list[Any]] = defaultdict(list)
    for record in records:
        by_kind[kind_of(record)].append(record)
    for gone in by_kind.pop("gone", ()):
        await _forget(view, gone)
    for kind, some in by_kind.items():
        await _LOADS[kind](view, some)


async def _forget(view: ClientView, gone: Gone) -> None:
    first, _, second = gone.key.partition("\0")
    match gone.kind:
        case "job":
            await view.call("load_job", gone.key, b"", b"")
            await _replace_earlier(view, gone.key, ())
        case "queue":
            await view.on_key("SREM", "paused", gone.key)
        case "value":
            await view.on_key("HDEL", f"kind:{first}", second)
        case "run":
            await view.call("load_runs", gone.key, *[b""] * (_ARGUMENTS - 1))
            await reporting.replace_chunks(view.client, {gone.key: ()})
        case "dedupe_key":
            await view.on_key("HDEL", "unique", gone.key)
            await view.on_key("ZREM", "uniques", gone.key)
        case _:
            raise BackendError(f"a record of kind {gone.kind!r} cannot be removed")


async def _jobs(view: ClientView, entries: Sequence[JobEntry]) -> None:
    for entry in entries:
        await view.call("load_job", entry.record.name, encode_job(entry.record), place_of(entry.record))
        await _replace_earlier(view, entry.record.name, entry.earlier)


async def _replace_earlier(view: ClientView, job: str, earlier: Sequence[Entry]) -> None:
    log = definitions_log(job)
    await view.on_key("DEL", f"log:{log}")
    await view.on_key("HDEL", "gone", log)
    await _logs(view, [LogEntry(log, each.sequence, each.at, each.value) for each in earlier])


async def _queues(view: ClientView, entries: Sequence[QueueEntry]) -> None:
    await view.on_key("SADD", "paused", *[entry.name for entry in entries])


async def _totals(view: ClientView, entries: Sequence[TotalEntry]) -> None:
    await view.on_key("HSET", "totals", *[part for each in entries for part in (NUMBERS[each.state], each.ended)])


async def _statistics(view: ClientView, entries: Sequence[StatisticsEntry]) -> None:
    for some in slices_of(entries, _SLICE):
        flat = [part for each in some for part in (each.job, statistics_text(each.statistics))]
        await view.on_key("HSET", "statistics", *flat)


async def _values(view: ClientView, entries: Sequence[ValueEntry]) -> None:
    for each in entries:
        await view.on_key("HSET", f"kind:{each.kind}", each.name, VERSION.pack(each.version) + each.value)


async def _keys(view: ClientView, entries: Sequence[KeyEntry]) -> None:
    for some in slices_of(entries, _SLICE):
        times = [(to_micros(each.until), to_micros(each.created_at)) for each in some]
        texts = [_UNIQUE.pack(*pair) + each.run_id.encode() for each, pair in zip(some, times, strict=True)]
        flat = [part for each, text in zip(some, texts, strict=True) for part in (each.key, text)]
        await view.on_key("HSET", "unique", *flat)
        scores = [part for each, (until, _) in zip(some, times, strict=True) for part in (until, each.key)]
        await view.on_key("ZADD", "uniques", *scores)


async def _logs(view: ClientView, entries: Sequence[LogEntry]) -> None:
    """A log is a list, and `gone` says how many entries came before its first."""
    by_log: defaultdict[str, list[LogEntry]] = defaultdict(list)
    for entry in entries:
        by_log[entry.log].append(entry)
    for log, some in by_log.items():
        await view.on_key("HSETNX", "gone", log, some[0].sequence - 1)
        first = 1 + int(await view.on_key("HGET", "gone", log))
        present = await view.on_key("LLEN", f"log:{log}")
        texts = {each.sequence - first: _TIME.pack(to_micros(each.at)) + each.value for each in some}
        for number, text in texts.items():
            if number < present:
                await view.on_key("LSET", f"log:{log}", number, text)
        new = [text for number, text in sorted(texts.items()) if number >= present]
        for part in slices_of(new, _SLICE):
            await view.on_key("RPUSH", f"log:{log}", *part)


# --- runs


async def _runs(view: ClientView, entries: Sequence[RunEntry]) -> None:
    for some in slices_of(entries, _RUNS):
        await view.call("load_runs", *[argument for entry in some for argument in _arguments(entry)])
        await reporting.replace_chunks(view.client, {entry.run.id: entry.lines for entry in some})


def _arguments(entry: RunEntry) -> tuple[Argument, ...]:
    run = entry.run
    ready = to_micros(run.ready_at)
    return (
        run.id,
        ready,
        run.job,
        0 if run.created_at is None else to_micros(run.created_at),
        NUMBERS[run.state],
        0 if run.finished_at is None else to_micros(run.finished_at),
        b"1" if run.member else b"",
        rest_of(run, 0, to_micros(run.due), ready, queue_key_of(run)),
        status_text(run, ready) if _has_status(run) else b"",
        attempts_text(entry.attempts) if entry.attempts else b"",
    )


def _has_status(run: Run) -> bool:
    """Whether something has become of a run since it was put."""
    return bool(run.final or run.hold is not None or run.fence or run.failures or run.losses or run.reason is not None)


def status_text(run: Run, ready: int) -> bytes:
    """The status of a run, as `write_status` in run_records.lua writes it."""
    only_held = run.hold is not None and not (run.fence or run.failures or run.losses or run.reason is not None)
    flags = _ONLY_HELD if only_held else _HAS_PROGRESS if run.progress is not None else 0
    numbers = STATUS.pack(
        *(0x9F, NUMBERS[run.state], flags | (CANCELLING if run.cancelling else 0)),
        *(0xCF, run.fence, 0xD3, ready, 0xCE, run.failures, 0xCE, run.losses),
        *(0xD3, 0 if run.started_at is None else to_micros(run.started_at)),
        *(0xD3, 0 if run.finished_at is None else to_micros(run.finished_at)),
        *(0xCF, run.request),
    )
    rest = (run.node, run.hold, run.reason, run.progress, run.result, run.failure)
    return numbers + b"".join(_NIL if part is None else encode(part) for part in rest)


def attempts_text(attempts: Sequence[Attempt]) -> bytes:
    """Attempts as they are stored: their number, then one after the other."""
    return _COUNT.pack(len(attempts)) + b"".join(encode(attempt) for attempt in attempts)


_LOADS: Mapping[str, Callable[[ClientView, Any], Awaitable[None]]] = {
    "job": _jobs,
    "queue": _queues,
    "total": _totals,
    "statistics": _statistics,
    "value": _values,
    "run": _runs,
    "dedupe_key": _keys,
    "log": _logs,
}
