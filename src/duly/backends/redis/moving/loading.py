"""Writing records of another store into a Redis store, as they are, under the names of a store that is being loaded."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from duly.backends.record_kinds import load_records, log_of, pair_of
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
from duly.model import Attempt, Run, to_micros, transfer
from duly.model.definitions import definitions_log

_HAS_PROGRESS, _ONLY_HELD = 4, 8
_ARGUMENTS = 10
_RUNS = 200
_NIL = encode(None)
_COUNT = struct.Struct(">I")
_UNIQUE = struct.Struct(">qq")
_TIME = struct.Struct(">q")
_SLICE = 1_000


async def load(view: ClientView, records: Sequence[transfer.Loaded]) -> None:
    """Store these records; those that exist are replaced."""
    await load_records(view, records, _LOADS, _FORGETS)


async def _forget_job(view: ClientView, name: str) -> None:
    await view.call("load_job", name, b"", b"")
    await _forget_log(view, definitions_log(name))


async def _forget_queue(view: ClientView, name: str) -> None:
    await view.on_key("SREM", "paused", name)


async def _forget_value(view: ClientView, key: str) -> None:
    kind, name = pair_of(key)
    await view.on_key("HDEL", f"kind:{kind}", name)


async def _forget_run(view: ClientView, run_id: str) -> None:
    await view.call("load_runs", run_id, *[b""] * (_ARGUMENTS - 1))
    await reporting.replace_chunks(view.client, {run_id: ()})


async def _forget_key(view: ClientView, key: str) -> None:
    await view.on_key("HDEL", "unique", key)
    await view.on_key("ZREM", "uniques", key)


async def _jobs(view: ClientView, entries: Sequence[transfer.JobEntry]) -> None:
    for entry in entries:
        await view.call("load_job", entry.record.name, encode_job(entry.record), place_of(entry.record))
        await _forget_log(view, definitions_log(entry.record.name))
        await _logs(view, log_of(entry))


async def _forget_log(view: ClientView, log: str) -> None:
    await view.on_key("DEL", f"log:{log}")
    await view.on_key("HDEL", "gone", log)


async def _queues(view: ClientView, entries: Sequence[transfer.QueueEntry]) -> None:
    await view.on_key("SADD", "paused", *[entry.name for entry in entries])


async def _totals(view: ClientView, entries: Sequence[transfer.TotalEntry]) -> None:
    await view.on_key("HSET", "totals", *[part for each in entries for part in (NUMBERS[each.state], each.ended)])


async def _statistics(view: ClientView, entries: Sequence[transfer.StatisticsEntry]) -> None:
    for some in slices_of(entries, _SLICE):
        flat = [part for each in some for part in (each.job, statistics_text(each.statistics))]
        await view.on_key("HSET", "statistics", *flat)


async def _values(view: ClientView, entries: Sequence[transfer.ValueEntry]) -> None:
    for each in entries:
        await view.on_key("HSET", f"kind:{each.kind}", each.name, VERSION.pack(each.version) + each.value)


async def _keys(view: ClientView, entries: Sequence[transfer.KeyEntry]) -> None:
    for some in slices_of(entries, _SLICE):
        times = [(to_micros(each.until), to_micros(each.created_at)) for each in some]
        texts = [_UNIQUE.pack(*pair) + each.run_id.encode() for each, pair in zip(some, times, strict=True)]
        flat = [part for each, text in zip(some, texts, strict=True) for part in (each.key, text)]
        await view.on_key("HSET", "unique", *flat)
        scores = [part for each, (until, _) in zip(some, times, strict=True) for part in (until, each.key)]
        await view.on_key("ZADD", "uniques", *scores)


async def _logs(view: ClientView, entries: Sequence[transfer.LogEntry]) -> None:
    """A log is a list, and `gone` says how many entries came before its first."""
    by_log: defaultdict[str, list[transfer.LogEntry]] = defaultdict(list)
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


async def _runs(view: ClientView, entries: Sequence[transfer.RunEntry]) -> None:
    for some in slices_of(entries, _RUNS):
        await view.call("load_runs", *[argument for entry in some for argument in _arguments(entry)])
        await reporting.replace_chunks(view.client, {entry.run.id: entry.lines for entry in some})


def _arguments(entry: transfer.RunEntry) -> tuple[Argument, ...]:
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
_FORGETS: Mapping[str, Callable[[ClientView, str], Awaitable[None]]] = {
    "job": _forget_job,
    "queue": _forget_queue,
    "value": _forget_value,
    "run": _forget_run,
    "dedupe_key": _forget_key,
}
