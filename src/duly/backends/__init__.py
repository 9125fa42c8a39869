"""Backends, opened by URL. A scheme's package is imported when it is asked for, never before."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from duly.errors import ConfigurationError, MissingExtra
from duly.ports import Backend, Opening

Factory = Callable[[str, Opening], Backend]

_REDIS = "duly.backends.redis"
_POSTGRES = "duly.backends.postgres"
_OWN = {
    "memory": "duly.backends.memory",
    "sqlite": "duly.backends.sqlite",
    "redis": _REDIS,
    "rediss": _REDIS,
    "redis+sentinel": _REDIS,
    "rediss+sentinel": _REDIS,
    "postgresql": _POSTGRES,
    "postgres": _POSTGRES,
}
# The extra that brings what a package of ours imports.
_EXTRAS = {_REDIS: "redis", _POSTGRES: "postgres"}
_GROUP = "duly.backends"


def open_backend(url: str, opening: Opening) -> Backend:
    """The backend for a URL, not yet opened. Unknown schemes are looked up among installed packages."""
    scheme, separator, _ = url.partition("://")
    if not separator or not scheme:
        raise ConfigurationError(f"{_shown(url)!r} is no URL: write for example sqlite:///duly.db")
    return _factory(scheme)(url, opening)


def _factory(scheme: str) -> Factory:
    if scheme in _OWN:
        return _own(scheme)
    from importlib.metadata import entry_points  # noqa: PLC0415  # costs 30 ms, and only foreign schemes need it

    for found in entry_points(group=_GROUP, name=scheme):
        loaded: Factory = found.load()
        return loaded
    known = sorted({*_OWN, *(each.name for each in entry_points(group=_GROUP))})
    raise ConfigurationError(f"unknown scheme {scheme!r}: installed are {', '.join(known)}")


def _own(scheme: str) -> Factory:
    package = _OWN[scheme]
    try:
        factory: Factory = importlib.import_module(package).open_url
    except ModuleNotFoundError as exc:
        if package not in _EXTRAS or (exc.name or "").startswith("duly"):
            raise
        raise MissingExtra(f"{scheme}://", _EXTRAS[package]) from exc
    return factory


def _shown(url: str) -> str:
    """A URL without what may be a secret in it."""
    return url if "@" not in url else url.rpartition("@")[2]
