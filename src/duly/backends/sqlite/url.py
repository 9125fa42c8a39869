"""Where the database is and how it is opened, read from a URL.

sqlite:///relative.db    sqlite:////absolute/path.db    sqlite:///jobs.db?synchronous=full&busy_timeout=2.5
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct

from duly.errors import ConfigurationError
from duly.rules.redaction import redacted

_NAMESPACE = re.compile(r"[a-z][a-z0-9_]{0,31}")
_SYNCHRONOUS = ("normal", "full")


class Place(Struct, frozen=True):
    """A database file and the options it is opened with. `busy_timeout` is in seconds."""

    path: Path
    synchronous: str = "normal"
    busy_timeout: float = 5.0


def parse(url: str) -> Place:
    """Read a URL. A relative path is taken from the present directory, whatever that is later."""
    parts = urlsplit(url)
    path = unquote(parts.path)
    if parts.scheme != "sqlite" or parts.netloc or len(path) < 2 or path.endswith("/"):
        raise ConfigurationError(
            f"{redacted(url)!r} names no SQLite file:"
            " sqlite:///relative.db or sqlite:////absolute/path.db (mind the slashes)"
        )
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    place = Place(Path(path[1:]).absolute(), _synchronous(options), _busy_timeout(options))
    if options:
        raise ConfigurationError(
            f"{redacted(url)!r} has an unknown option {next(iter(options))!r}: known are synchronous and busy_timeout"
        )
    return place


def _synchronous(options: dict[str, str]) -> str:
    value = options.pop("synchronous", "normal").lower()
    if value not in _SYNCHRONOUS:
        raise ConfigurationError(f"synchronous={value!r} is not possible: normal or full")
    return value


def _busy_timeout(options: dict[str, str]) -> float:
    text = options.pop("busy_timeout", "5")
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= 3600:
        raise ConfigurationError(f"busy_timeout={text!r} is not possible: seconds, from 0 to 3600")
    return seconds


def checked_namespace(namespace: str) -> str:
    """The namespace, if it can be the beginning of a table's name."""
    if _NAMESPACE.fullmatch(namespace) is None:
        raise ConfigurationError(
            f"namespace {namespace!r} is not possible on SQLite: a small letter, then small letters, digits or _,"
            " at most 32 in all"
        )
    return namespace
