"""Where a job is in the index of handlers (`lib/job_index.lua`)."""

from __future__ import annotations

from duly.model import JobRecord


def place_of(record: JobRecord) -> str:
    """The place of a job; empty for one that needs no handler."""
    return index_place(record.spec.handler, record.retired_at is not None) if record.needs_handler else ""


def index_place(handler: str, retired: bool) -> str:
    """Where the jobs of a handler are."""
    return f"{'r' if retired else 'a'}{handler}"
