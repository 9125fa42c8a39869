"""A second opinion on cron schedules: slow, plain, and written from the definitions.

It tries every minute (or second) of a window and knows nothing of stretches, offsets or cronsim. Wall times become
instants through zoneinfo alone: a wall time is real if it survives the way to UTC and back, for either fold.
"""

from __future__ import annotations

import calendar
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)

NAMES = {
    4: ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    5: ["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
}
LIMITS = [(0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 7)]


def due(expression: str, zone: str, policy: str, low: datetime, high: datetime) -> list[datetime]:
    """Every due instant from `low` to before `high`."""
    fields = expression.lower().split()
    fields = fields if len(fields) == 6 else ["0", *fields]
    if fields[1].startswith("*") or fields[2].startswith("*"):
        found = real_matches(fields, zone, low, high)
    else:
        found = policy_matches(fields, zone, policy, low, high)
    return sorted(instant for instant in found if low <= instant < high)


def real_matches(fields, zone, low, high) -> set[datetime]:
    """Every instant whose wall clock matches."""
    times = set(times_of_day(tuple(fields[:3])))
    days: dict[date, bool] = {}
    found = set()
    for instant, wall in clock(zone, low, high, SECOND if fields[0] != "0" else MINUTE):
        if (wall.hour, wall.minute, wall.second) in times:
            day = wall.date()
            if day not in days:
                days[day] = day_matches(fields, day)
            if days[day]:
                found.add(instant)
    return found


@lru_cache(maxsize=8)
def clock(zone, low, high, step) -> list[tuple[datetime, datetime]]:
    """Every instant of the window and what a clock in the zone shows then."""
    tz = ZoneInfo(zone)
    return [(low + n * step, (low + n * step).astimezone(tz)) for n in range((high - low) // step)]


def policy_matches(fields, zone, policy, low, high) -> set[datetime]:
    """Every matching wall time, turned into instants as the policy says."""
    found = set()
    times = times_of_day(tuple(fields[:3]))
    first, last = (low - 2 * DAY).date(), (high + 2 * DAY).date()
    for number in range((last - first).days + 1):
        day = first + number * DAY
        if day_matches(fields, day):
            for hour, minute, second in times:
                wall = datetime.combine(day, time(hour, minute, second))
                found.update(instants(wall, ZoneInfo(zone), policy))
    return found


def instants(wall: datetime, zone: ZoneInfo, policy: str) -> list[datetime]:
    real = real_instants(wall, zone)
    if not real:
        return [] if policy == "skip" else [after_gap(wall, zone)]
    return real if policy == "both" else real[:1]


def real_instants(wall: datetime, zone: ZoneInfo) -> list[datetime]:
    tries = {wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)}
    return sorted(instant for instant in tries if instant.astimezone(zone).replace(tzinfo=None) == wall)


def after_gap(wall: datetime, zone: ZoneInfo) -> datetime:
    """The first instant at which the clock shows more than a wall time it never shows."""
    low = wall.replace(tzinfo=UTC) - timedelta(hours=26)
    high = wall.replace(tzinfo=UTC) + timedelta(hours=26)
    while high - low > SECOND:
        middle = low + (high - low) // SECOND // 2 * SECOND
        shown = middle.astimezone(zone).replace(tzinfo=None)
        low, high = (low, middle) if shown > wall else (middle, high)
    return high


@lru_cache(maxsize=256)
def times_of_day(fields: tuple[str, str, str]) -> list[tuple[int, int, int]]:
    seconds, minutes, hours = ([v for v in range(60) if number_matches(fields[i], v, i)] for i in range(3))
    return [(hour, minute, second) for hour in hours for minute in minutes for second in seconds]


def day_matches(fields: list[str], day: date) -> bool:
    if not number_matches(fields[4], day.month, 4):
        return False
    in_month = any(month_day_matches(item, day) for item in fields[3].replace("?", "*").split(","))
    in_week = any(weekday_matches(item, day) for item in fields[5].replace("?", "*").split(","))
    if fields[3][0] in "*?" or fields[5][0] in "*?":
        return in_month and in_week
    return in_month or in_week


def month_day_matches(item: str, day: date) -> bool:
    length = calendar.monthrange(day.year, day.month)[1]
    if item == "l":
        return day.day == length
    if item == "lw":
        weekdays = [n for n in range(1, length + 1) if date(day.year, day.month, n).weekday() < 5]
        return day.day == weekdays[-1]
    return number_matches(item, day.day, 3)


def weekday_matches(item: str, day: date) -> bool:
    numbers = {day.isoweekday(), day.isoweekday() % 7}
    if "#" in item:
        name, _, nth = item.partition("#")
        return value(name, 5) in numbers and (day.day - 1) // 7 + 1 == int(nth)
    if item.endswith("l"):
        return value(item[:-1], 5) in numbers and (day + 7 * DAY).month != day.month
    return any(number_matches(item, number, 5) for number in numbers)


def number_matches(field: str, number: int, index: int) -> bool:
    return any(item_matches(item, number, index) for item in field.split(","))


def item_matches(item: str, number: int, index: int) -> bool:
    low, high = LIMITS[index]
    body, _, step_text = item.partition("/")
    step = int(step_text or 1)
    if not low <= number <= high:
        return False
    if body == "*":
        return (number - low) % step == 0
    first_text, dash, last_text = body.partition("-")
    first = value(first_text, index)
    last = value(last_text, index) if dash else high if step_text else first
    if first <= last:
        return first <= number <= last and (number - first) % step == 0
    size = 7 if index == 5 else high - low + 1
    distance = (number - first) % size
    return distance <= (last - first) % size and distance % step == 0


def value(text: str, index: int) -> int:
    names = NAMES.get(index, [])
    return names.index(text) + LIMITS[index][0] if text in names else int(text)
