"""Keeping and taking over claims: renewals, the amnesty after an outage, and the reaping of what has expired."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from duly.backends.rows import to_json
from duly.backends.sqlite.transitions import by_seqs
from duly.backends.sqlite.unit_of_work import UnitOfWork, as_list
from duly.model import Beat, BeatReply, Claim, Renewal, from_micros

BEAT = "beat"
SPARED_UNTIL = "spared_until"

_STANDING = """
SELECT r.id, c.seq, c.fence, c.cancelling
FROM json_each(?) AS wanted
CROSS JOIN {ns}_runs AS r ON r.id = wanted.value
CROSS JOIN {ns}_claims AS c ON c.seq = r.seq
"""
_EXTEND = "UPDATE {ns}_claims SET expires_at = ? WHERE seq IN (SELECT value FROM json_each(?))"
_PROGRESS = "UPDATE {ns}_claims SET progress = ? WHERE seq = ?"
_EXPIRED = "SELECT seq, expires_at FROM {ns}_claims WHERE expires_at <= ? ORDER BY expires_at, seq LIMIT ?"
# No longer lent by the request that lent it: a repeat of that must not learn the reaper's fence.
_TAKE_OVER = "UPDATE {ns}_claims SET fence = ?, expires_at = ?, request = 0 WHERE seq = ?"
_BEGINNING = "SELECT applied_at FROM {ns}_schema WHERE version = 1"


def renew(unit: UnitOfWork, beats: Sequence[Beat], silence: int | None, now: int, expires_at: int) -> Renewal:
    """Extend what is still owned; what is not, and what an operator wants cancelled."""
    last = _last_beat(unit)
    silent = silence is not None and now - last > silence
    if silent or (now < last and (unit.meta(SPARED_UNTIL) or 0) > expires_at):
        unit.set_meta(SPARED_UNTIL, expires_at)
    silent_since = from_micros(last) if silent else None
    unit.set_meta(BEAT, now)
    if not beats:
        return Renewal(silent_since=silent_since)
    rows = unit.all(_STANDING, as_list(beat.run_id for beat in beats))
    standing = {(run_id, fence): (seq, cancelling) for run_id, seq, fence, cancelling in rows}
    kept = {(beat.run_id, beat.fence): beat for beat in beats if (beat.run_id, beat.fence) in standing}
    unit.run(_EXTEND, expires_at, as_list(standing[claim][0] for claim in kept))
    told = [(to_json(beat.progress), standing[claim][0]) for claim, beat in kept.items() if beat.progress is not None]
    unit.many(_PROGRESS, told)
    return Renewal(tuple(_reply(standing.get((beat.run_id, beat.fence))) for beat in beats), silent_since)


def _reply(standing: tuple[int, bool] | None) -> BeatReply:
    if standing is None:
        return BeatReply.LOST
    return BeatReply.CANCEL if standing[1] else BeatReply.KEPT


def reap(unit: UnitOfWork, limit: int, silence: int | None, now: int, expires_at: int) -> list[Claim]:
    """Take expired claims over under fresh fences, the longest expired first."""
    expired = unit.all(_EXPIRED, now, limit)
    silent = silence is not None and now - _last_beat(unit) > silence
    if not expired or silent or now < (unit.meta(SPARED_UNTIL) or 0):
        return []
    first = unit.fences(len(expired))
    unit.many(_TAKE_OVER, [(fresh, expires_at, seq) for fresh, (seq, _) in enumerate(expired, first)])
    before: dict[int, int] = dict(expired)
    until = from_micros(expires_at)
    return [
        Claim(replace(record.run, expires_at=from_micros(before[record.seq])), record.run.fence, until)
        for record in by_seqs(unit, list(before))
    ]


def _last_beat(unit: UnitOfWork) -> int:
    """When somebody last reached the store; at the latest when it was made."""
    beat = unit.meta(BEAT)
    if beat is not None:
        return beat
    row = unit.one(_BEGINNING)
    assert row is not None
    return int(row[0])
