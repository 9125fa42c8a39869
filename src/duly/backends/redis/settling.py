"""Settlements as the arguments of their script: one row each, and their records put together."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from duly.backends.redis.codec import OUTCOME_NUMBERS, encode, settled_life
from duly.model import Settlement, to_micros


def rows_of(settlements: Sequence[Settlement]) -> tuple[bytes, bytes, bytes]:
    """Rows, texts and keys. Runs claimed together have one start, and many share their ready time, node and job."""
    rows: list[str | int] = []
    texts: list[bytes] = []
    keys: dict[tuple[str, str], int] = {}
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
        key = (each.job, each.queue)
        number = keys.get(key)
        if number is None:
            number = keys[key] = len(keys) + 1
        life = settled_life(each, started, ended, ready, node)
        texts.append(life)
        attempt = b"" if each.attempt is None else encode(each.attempt)
        if attempt:
            texts.append(attempt)
        outcome = 0 if each.outcome is None else OUTCOME_NUMBERS[each.outcome]
        group = None if each.keyed else each.group
        rows += (each.run_id, len(life), len(attempt), number, outcome, started, ended, ready, group or "")
    flat = [part for key in keys for part in key]
    return encode(rows), b"".join(texts), encode(flat)
