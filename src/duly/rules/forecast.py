"""Forecasts: which runs of the next 30 days appear, vanish or move if a job's definition changes.

Due instants of the old and of the new schedule are compared. A fast schedule has millions of them in that time, so a
bounded number is compared: the forecast then ends earlier, says so, and estimates the rest.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from msgspec import Struct

from duly.errors import InvalidSchedule
from duly.model import JobRecord, JobSpec
from duly.rules.describe import duration, instant
from duly.rules.schedules import Cron, Schedule, from_spec, step

WINDOW = timedelta(days=30)
MOST_INSTANTS = 2_000  # of one schedule
MOST_IN_ALL = 40_000  # of all jobs of a file together
_SAMPLES = 3
_DAY = timedelta(days=1)

Move = tuple[datetime, datetime]


class Forecast(Struct, frozen=True):
    """How many runs of a job appear, vanish, move or stay until a time, with the first of each.

    `until` is the end of the 30 days, or earlier if the schedule has too many instants: then `complete` is False. A
    `paused` job runs nothing until it is resumed. `notes` say how clock changes affect instants of the new schedule.
    """

    until: datetime
    complete: bool
    appear: int = 0
    vanish: int = 0
    move: int = 0
    stay: int = 0
    appearing: tuple[datetime, ...] = ()
    vanishing: tuple[datetime, ...] = ()
    moving: tuple[Move, ...] = ()
    shifts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    paused: bool = False

    def words(self, now: datetime) -> tuple[str, ...]:
        """The forecast, one line each."""
        reach = "in the next 30 days" if self.complete else f"until {instant(self.until)}"
        lines = []
        if self.move:
            pairs = _joined((f"{instant(old)} → {instant(new)}" for old, new in self.moving), self.move)
            lines.append(f"move: {_runs(self.move)} {reach}, {' and '.join(self.shifts)}: {pairs}")
        for what, count, first in (("vanish", self.vanish, self.vanishing), ("appear", self.appear, self.appearing)):
            if count:
                times = _joined(map(instant, first), count)
                lines.append(f"{what}: {_runs(count)} {reach}{self._rate(count, now)}: {times}")
        if not lines:
            lines.append(f"{_runs(self.stay)} {reach}, as before" if self.stay else f"no run is due {reach}")
        return (*lines, *self.notes)

    def _rate(self, count: int, now: datetime) -> str:
        """About how many that are in 30 days, if not all were counted."""
        if self.complete or self.until <= now:
            return ""
        return f" (about {round(count * (WINDOW / (self.until - now)))} in 30 days)"


def forecast(before: JobRecord | None, after: JobSpec | None, now: datetime, most: int = MOST_INSTANTS) -> Forecast:
    """What changes if a job gets a definition (None: it is removed). `most` instants of each schedule are computed."""
    old_schedule = None if before is None else _schedule(before.spec)
    new_schedule = None if after is None else _schedule(after)
    end = now + WINDOW
    old, old_end = _instants(old_schedule, now, end, most)
    new, new_end = _instants(new_schedule, now, end, most)
    until = min(old_end, new_end)
    old = _allowed([due for due in old if due <= until], before, None if before is None else before.spec)
    new = _allowed([due for due in new if due <= until], before, after)
    gone, come = _without(old, new), _without(new, old)
    moves = _moves(gone, come)
    vanishing, appearing = _without(gone, [old for old, _ in moves]), _without(come, [new for _, new in moves])
    return Forecast(
        until=until,
        complete=until == end,
        appear=len(appearing),
        vanish=len(vanishing),
        move=len(moves),
        stay=len(old) - len(gone),
        appearing=tuple(appearing[:_SAMPLES]),
        vanishing=tuple(vanishing[:_SAMPLES]),
        moving=tuple(moves[:_SAMPLES]),
        shifts=_shifts(moves),
        notes=_clock_changes(new_schedule, new),
        paused=before is not None and before.paused is not None and after is not None,
    )


def forecasts(changes: Iterable[tuple[JobRecord | None, JobSpec | None]], now: datetime) -> list[Forecast | None]:
    """Forecasts of several changes; None for those that come after `MOST_IN_ALL` instants were computed."""
    found: list[Forecast | None] = []
    left = MOST_IN_ALL
    for before, after in changes:
        most = min(MOST_INSTANTS, left // 2)
        each = forecast(before, after, now, most) if most else None
        found.append(each)
        if each is not None:
            left -= 2 * max(each.appear, each.vanish) + 2 * each.move + each.stay + 1
    return found


def _schedule(spec: JobSpec) -> Schedule | None:
    """What computes a definition's instants; None without a schedule, or where only code can."""
    try:
        return None if spec.schedule is None else from_spec(spec.schedule)
    except InvalidSchedule:
        return None


def _instants(schedule: Schedule | None, now: datetime, end: datetime, most: int) -> tuple[list[datetime], datetime]:
    """The instants after now, and up to when they are complete."""
    found: list[datetime] = []
    due = None if schedule is None else step(schedule, now)
    while schedule is not None and due is not None and due <= end:
        if len(found) == most:
            return found, found[-1] if found else now
        found.append(due)
        due = step(schedule, due)
    return found, end


def _allowed(instants: list[datetime], record: JobRecord | None, spec: JobSpec | None) -> list[datetime]:
    """Those that `max_runs` allows. Runs that are planned but not yet due count when they are due."""
    if spec is None or spec.max_runs is None:
        return instants
    if record is None:
        return instants[: spec.max_runs]
    ahead = 0 if record.cursor is None else sum(due < record.cursor for due in instants)
    return instants[: max(0, spec.max_runs - record.planned + ahead)]


def _without(instants: Sequence[datetime], others: Iterable[datetime]) -> list[datetime]:
    left_out = set(others)
    return [due for due in instants if due not in left_out]


# --- moves: instants that are replaced one by one, by less than the distance to the next


def _moves(gone: Sequence[datetime], come: Sequence[datetime]) -> list[Move]:
    """Pair vanishing and appearing instants in order, if each is nearer to its partner than to its neighbours.

    At the ends of the window one of the two may lie outside: the first or last of the longer list has no partner.
    """
    if not gone or not come or abs(len(gone) - len(come)) > 1:
        return []
    for skip_gone, skip_come in ((0, 0), (1, 0), (0, 1)):
        pairs = list(zip(gone[skip_gone:], come[skip_come:], strict=False))
        if pairs and _are_moves(pairs):
            return pairs
    return []


def _are_moves(pairs: Sequence[Move]) -> bool:
    farthest = max(abs(new - old) for old, new in pairs)
    gaps = [later[side] - earlier[side] for earlier, later in itertools.pairwise(pairs) for side in (0, 1)]
    return farthest < min(gaps, default=_DAY)


def _shifts(moves: Sequence[Move]) -> tuple[str, ...]:
    """By how much instants move, the most frequent first; clock changes may move some by another time."""
    counted = Counter(new - old for old, new in moves)
    first = {shift: old for old, new in reversed(moves) for shift in [new - old]}
    words = [_shift(shift) for shift, _ in counted.most_common(1)]
    words += [f"{_shift(shift)} (first at {instant(first[shift])})" for shift, _ in counted.most_common()[1:_SAMPLES]]
    return tuple(words)


def _shift(shift: timedelta) -> str:
    return f"{duration(abs(shift))} {'later' if shift > timedelta(0) else 'earlier'}"


# --- words


def _clock_changes(schedule: Schedule | None, instants: Sequence[datetime]) -> tuple[str, ...]:
    """Notes about instants on a night when clocks change."""
    if not isinstance(schedule, Cron) or schedule.timezone is None:
        return ()
    zone = ZoneInfo(schedule.timezone)
    near = (
        due
        for due in instants
        if (due - _DAY).astimezone(zone).utcoffset() != (due + _DAY).astimezone(zone).utcoffset()
    )
    notes = dict.fromkeys(f"{instant(due)}: {note}" for due in near if (note := schedule.note(due)) is not None)
    return tuple(notes)[:_SAMPLES]


def _joined(texts: Iterable[str], count: int) -> str:
    shown = list(texts)
    return ", ".join(shown) + (", …" if count > len(shown) else "")


def _runs(count: int) -> str:
    return f"{count} run{'s'[: count != 1]}"
