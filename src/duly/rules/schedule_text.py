"""Schedules as one text: a cron expression, or the words with which Duly describes a schedule.

"30 2 * * *", "@daily", "every 15 minutes", "every 15m", "at 02:30 on Sunday, Europe/Berlin", "once at
2027-03-14T02:30:00Z"; what `describe` adds about bounds, clock changes and jitter is understood, too.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from duly.errors import ConfigurationError, InvalidSchedule, shown
from duly.model import Dst
from duly.rules.durations import seconds_of
from duly.rules.schedule_words import is_words
from duly.rules.schedules import DST_WORDS, Cron, Every, Once
from duly.rules.zones import zone_key

_INSTANT = r"(\d{4}-\d\d-\d\dT\S+)"
_ONCE = re.compile(rf"once at {_INSTANT}", re.IGNORECASE)
_JITTER = re.compile(r", up to ([^,]+) later$")
_UNTIL, _FROM = (re.compile(rf"(,?) {word} {_INSTANT}$") for word in ("until", "from"))
_ZONE = re.compile(r", ([A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)*)$")
_AMOUNT = re.compile(r"every\s+(\d\S*)", re.IGNORECASE)
_EVERY = re.compile(r"every\s+(.*)", re.IGNORECASE)


def schedule_from(text: str, timezone: str | None = None) -> Cron | Every | Once:
    """The schedule that a text describes; raises `InvalidSchedule`.

    `timezone` is that of a text which names none. "every 15 minutes" without a time zone is a fixed interval, as it is
    where Duly prints it; with one it is a cron schedule.
    """
    rest, options = _options(text.strip())
    if (once := _ONCE.fullmatch(rest)) is not None:
        return Once(_instant(once[1]), **options)
    if (interval := _interval(rest)) is not None and not options.keys() & {"timezone", "dst"}:
        return Every(interval, **options)
    if not is_words(rest):
        return Cron(text, timezone=timezone)
    if (amount := _AMOUNT.fullmatch(rest)) is not None and not options.keys() & {"timezone", "dst"}:
        _seconds(amount[1])  # it is meant to be an interval: say what is wrong with it
    zone = options.pop("timezone", timezone)
    if timezone is not None and zone != timezone:
        raise InvalidSchedule(f"the schedule {shown(text)} names another time zone than {timezone}", field="timezone")
    return Cron(rest, timezone=zone, **options)


def interval_of(text: str) -> float:
    """The seconds of an interval: "15m", "15 minutes", "every 15 minutes", "every hour"."""
    found = _interval(text.strip())
    return seconds_of(text) if found is None else found


def _interval(text: str) -> float | None:
    match = _EVERY.fullmatch(text)
    if match is None:
        return None
    for length in (match[1], f"1 {match[1]}"):
        try:
            return seconds_of(length)
        except ConfigurationError:
            continue
    return None


def _options(text: str) -> tuple[str, dict[str, Any]]:
    """The text without what follows the times, and that as arguments of a schedule."""
    found: dict[str, Any] = {}
    if (match := _JITTER.search(text)) is not None:
        text, found["jitter"] = text[: match.start()], _seconds(match[1])
    for name, pattern in (("end_at", _UNTIL), ("start_at", _FROM)):
        if (match := pattern.search(text)) is not None:
            text, found[name] = text[: match.start()], _instant(match[2])
    for dst, words in DST_WORDS.items():
        if text.endswith(f", {words}"):
            text, found["dst"] = text.removesuffix(f", {words}"), Dst(dst)
    if (match := _ZONE.search(text)) is not None and is_words(text):
        text, found["timezone"] = text[: match.start()], zone_key(match[1])
    return text, found


def _seconds(text: str) -> float:
    try:
        return seconds_of(text)
    except ConfigurationError as exc:
        raise InvalidSchedule(str(exc)) from exc


def _instant(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidSchedule(f"invalid time {shown(text)}", hint="write for example 2027-03-14T02:30:00Z") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
