"""Values, counters and places of jobs as the server keeps them."""

from __future__ import annotations

import struct

from duly.backends.redis.codec import OUTCOME_NUMBERS, OUTCOMES, optional_instant
from duly.model import Item, JobRecord, JobStatistics, to_micros

VERSION = struct.Struct(">Q")
_COUNTERS = struct.Struct(">7qB8x")  # as job_counters.lua writes them


def item_of(key: str, text: bytes) -> Item:
    """A value, which is stored behind its version."""
    return Item(key, text[VERSION.size :], VERSION.unpack_from(text)[0])


def statistics_of(text: bytes) -> JobStatistics:
    """The counters of a job."""
    completed, failed, cancelled, lost, retried, micros, last, outcome = _COUNTERS.unpack(text)
    last_outcome = OUTCOMES[outcome - 1] if outcome else None
    seconds = micros / 1_000_000
    return JobStatistics(completed, failed, cancelled, lost, retried, seconds, optional_instant(last), last_outcome)


def statistics_text(each: JobStatistics) -> bytes:
    """The counters of a job as they are stored."""
    last = 0 if each.last_run_at is None else to_micros(each.last_run_at)
    outcome = 0 if each.last_outcome is None else OUTCOME_NUMBERS[each.last_outcome]
    counted = (each.completed, each.failed, each.cancelled, each.lost, each.retried)
    return _COUNTERS.pack(*counted, round(each.seconds * 1_000_000), last, outcome)


# --- where a job is in the index of handlers (`lib/job_index.lua`)


def place_of(record: JobRecord) -> str:
    """The place of a job; empty for one that needs no handler."""
    return index_place(record.spec.handler, record.retired_at is not None) if record.needs_handler else ""


def index_place(handler: str, retired: bool) -> str:
    """Where the jobs of a handler are."""
    return f"{'r' if retired else 'a'}{handler}"
