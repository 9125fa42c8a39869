"""Keeping and taking over claims: renewals, the amnesty after an outage, and the reaping of what has expired."""

from __future__ import annotations

from collections.abc import Sequence

from duly.backends.sqlite.codec import to_json
from duly.backends.sqlite.moves import by_seqs
from duly.backends.sqlite.unit import Unit, as_list
from duly.model import Beat, Claim, Renewal

BEAT = "beat"
SPARED_UNTIL = "spared_until"

# The claims that are still owned: by fence, and the run must be the one that was lent under it.
_OWNED = """
SELECT c.fence, r.id, c.cancelling
FROM json_each(?) AS wanted
CROSS JOIN {ns}_claims AS c ON c.fence = wanted.value
CROSS JOIN {ns}_runs AS r ON r.seq = c.seq
"""
_EXTEND = "UPDATE {ns}_claims SET expires_at = ? WHERE fence IN (SELECT value FROM json_each(?))"
_PROGRESS = "UPDATE {ns}_claims SET progress = ? WHERE fence = ?"
_EXPIRED = "SELECT fence, seq FROM {ns}_claims WHERE expires_at <= ? ORDER BY expires_at, fence LIMIT ?"
# No longer lent by the request that lent it: a repeat of that must not learn the reaper's fence.
_TAKE_OVER = "UPDATE {ns}_claims SET fence = ?, expires_at = ?, request = 0 WHERE fence = ?"
_BEGINNING = "SELECT applied_at FROM {ns}_schema WHERE version = 1"


def renew(unit: Unit, beats: Sequence[Beat], now: int, expires_at: int) -> Renewal:
    """Extend what is still owned; what is not, and what an operator wants cancelled."""
    unit.set_meta(BEAT, now)
    if not beats:
        return Renewal()
    rows = unit.all(_OWNED, as_list(beat.fence for beat in beats))
    owned = {fence: (run_id, cancelling) for fence, run_id, cancelling in rows}
    kept = [beat for beat in beats if owned.get(beat.fence, ("",))[0] == beat.run_id]
    unit.run(_EXTEND, expires_at, as_list(beat.fence for beat in kept))
    unit.many(_PROGRESS, [(to_json(beat.progress), beat.fence) for beat in kept if beat.progress is not None])
    mine = {beat.fence for beat in kept}
    return Renewal(
        lost=tuple(beat.run_id for beat in beats if beat.fence not in mine),
        cancelled=tuple(beat.run_id for beat in kept if owned[beat.fence][1]),
    )


def reap(unit: Unit, limit: int, now: int, expires_at: int) -> list[Claim]:
    """Take expired claims over under fresh fences, the longest expired first."""
    if now < (unit.meta(SPARED_UNTIL) or 0):
        return []
    expired = unit.all(_EXPIRED, now, limit)
    if not expired:
        return []
    first = unit.fences(len(expired), now)
    unit.many(_TAKE_OVER, [(fresh, expires_at, fence) for fresh, (fence, _) in enumerate(expired, first)])
    runs = [record.run for record in by_seqs(unit, [seq for _, seq in expired])]
    return [Claim(run, run.fence, run.expires_at) for run in runs if run.expires_at is not None]


def spare(unit: Unit, silence: int, now: int, until: int) -> bool:
    """Grant an amnesty if nobody has beaten for so long; whether one is in force."""
    if now - _last_beat(unit) > silence:
        unit.set_meta(SPARED_UNTIL, until)
    unit.set_meta(BEAT, now)
    return now < (unit.meta(SPARED_UNTIL) or 0)


def _last_beat(unit: Unit) -> int:
    """When somebody last reached the store; at the latest when it was made."""
    beat = unit.meta(BEAT)
    if beat is not None:
        return beat
    row = unit.one(_BEGINNING)
    assert row is not None
    return int(row[0])
