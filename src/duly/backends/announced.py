"""Announced nodes: how their records, which are JSON in every store, tell one process from another of the same id."""

from __future__ import annotations

from datetime import datetime

import msgspec


def life_mark(started_at: datetime | None) -> str:
    """The text that the record of a node with this start has in it and no other has; empty if any will do."""
    return "" if started_at is None else f'"started_at":{msgspec.json.encode(started_at).decode()}'
