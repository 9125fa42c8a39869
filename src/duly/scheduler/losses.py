"""Reads what the store has recorded about changes that it lost."""

from __future__ import annotations

from contextlib import suppress

import msgspec

from duly.model.loss import KEPT_LOSSES, LOSSES, Loss, LossReport, combined
from duly.ports import ValueStore

_report = msgspec.json.Decoder(LossReport)


async def losses_of(store: ValueStore) -> list[Loss]:
    """The latest losses, the earliest first."""
    reports = []
    for entry in await store.read(LOSSES, limit=KEPT_LOSSES):
        with suppress(msgspec.MsgspecError):
            reports.append((entry.at, _report.decode(entry.value)))
    return combined(reports)
