"""Times, durations and text of unknown origin, formatted for a terminal."""

from __future__ import annotations

from datetime import UTC, datetime

from duly.rules.durations import span

__all__ = ["full", "line", "lines", "relative", "short", "span"]


def relative(at: datetime, now: datetime) -> str:
    """The distance of a time from now: "in 3 min", "3 min ago", "now"."""
    seconds = (at - now).total_seconds()
    if abs(seconds) < 0.5:
        return "now"
    near = span(max(1.0, round(abs(seconds))))
    return f"in {near}" if seconds > 0 else f"{near} ago"


def short(at: datetime, now: datetime) -> str:
    """A time in UTC, with its date unless it is today, and its year unless it is this year."""
    here, today = at.astimezone(UTC), now.astimezone(UTC)
    if here.date() == today.date():
        return f"{here:%H:%M:%S}"
    return f"{here:%m-%d %H:%M:%S}" if here.year == today.year else f"{here:%Y-%m-%d %H:%M:%S}"


def full(at: datetime) -> str:
    """A time in UTC with its date, without trailing zeros."""
    text = f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}".rstrip("0").rstrip(".")
    return f"{text}Z"


def line(text: str, most: int = 0) -> str:
    """Text as one line without control characters, cut to `most` characters (0: not cut)."""
    plain = " ".join(_printable(word) for word in text.split())
    return plain if not most or len(plain) <= most else f"{plain[: most - 1]}…"


def lines(text: str) -> list[str]:
    """Text of several lines, such as a traceback, without control characters."""
    return [_printable(each.expandtabs(4)) for each in text.splitlines()]


def _printable(text: str) -> str:
    return text if text.isprintable() else "".join(character if character.isprintable() else "�" for character in text)
