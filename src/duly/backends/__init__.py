"""Backends, opened by URL. A scheme's package is imported when it is asked for, never before."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from duly.errors import ConfigurationError
from duly.ports import Backend, Opening

Factory = Callable[[str, Opening], Backend]

_OWN = {"memory": "duly.backends.memory", "sqlite": "duly.backends.sqlite"}
_GROUP = "duly.backends"


def open_backend(url: str, opening: Opening) -> Backend:
    """The backend for a URL, not yet opened. Unknown schemes are looked up among installed packages."""
    scheme, separator, _ = url.partition("://")
    if not separator or not scheme:
        raise ConfigurationError(f"{_shown(url)!r} is no URL: write for example sqlite:///duly.db")
    return _factory(scheme)(url, opening)


def _factory(scheme: str) -> Factory:
    if scheme in _OWN:
        factory: Factory = importlib.import_module(_OWN[scheme]).open_url
        return factory
    from importlib.metadata import entry_points  # noqa: PLC0415  # costs 30 ms, and only foreign schemes need it

    for found in entry_points(group=_GROUP, name=scheme):
        loaded: Factory = found.load()
        return loaded
    known = sorted({*_OWN, *(each.name for each in entry_points(group=_GROUP))})
    raise ConfigurationError(f"unknown scheme {scheme!r}: installed are {', '.join(known)}")


def _shown(url: str) -> str:
    """A URL without what may be a secret in it."""
    return url if "@" not in url else url.rpartition("@")[2]
