"""Announced nodes: how their records, JSON in every store, distinguish two processes with the same id."""

from __future__ import annotations

from datetime import datetime

import msgspec


def life_mark(started_at: datetime | None) -> str:
    """The text that only the record of a node started at this time contains; empty to accept any record."""
    return "" if started_at is None else f'"started_at":{msgspec.json.encode(started_at).decode()}'
