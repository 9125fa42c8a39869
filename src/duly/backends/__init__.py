"""Backends, opened by URL. The package of a scheme is imported only when it is needed."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from typing import Any

from duly.errors import ConfigurationError, MissingExtra
from duly.ports import Backend, CoordinatorSession, Opening
from duly.rules.redaction import redacted

_REDIS = "duly.backends.redis"
_POSTGRES = "duly.backends.postgres"
_ETCD = "duly.backends.etcd"
_OWN = {
    "memory": "duly.backends.memory",
    "sqlite": "duly.backends.sqlite",
    "redis": _REDIS,
    "rediss": _REDIS,
    "redis+sentinel": _REDIS,
    "rediss+sentinel": _REDIS,
    "redis+cluster": _REDIS,
    "rediss+cluster": _REDIS,
    "postgresql": _POSTGRES,
    "postgres": _POSTGRES,
}
# These coordinate and keep no runs.
_OWN_COORDINATORS = {
    "etcd": _ETCD,
    "etcds": _ETCD,
    "etcd+https": _ETCD,
}
# The extra that installs what a package imports.
_EXTRAS = {_REDIS: "redis", _POSTGRES: "postgres", _ETCD: "etcd"}
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_GROUP = "duly.backends"
_COORDINATORS_GROUP = "duly.coordinators"


def open_backend(url: str, opening: Opening) -> Backend:
    """The backend for a URL, not yet opened. Other schemes come from entry points of installed packages."""
    scheme = scheme_of(url)
    if scheme in _OWN_COORDINATORS:
        raise ConfigurationError(
            f"{scheme}:// can only coordinate, it keeps no runs: use Scheduler(store='postgresql://…', coordinator='{scheme}://…')"
        )
    backend: Backend = _factory(scheme, _OWN, _GROUP)(url, opening)
    return backend


def open_coordinator(url: str, opening: Opening) -> CoordinatorSession:
    """The coordinator for a URL, not yet opened: one that only coordinates, or a whole backend's."""
    scheme = scheme_of(url)
    if scheme in _OWN:
        return open_backend(url, opening)
    coordinator: CoordinatorSession = _factory(scheme, _OWN_COORDINATORS, _COORDINATORS_GROUP)(url, opening)
    return coordinator


def scheme_of(url: str) -> str:
    """The scheme of a URL."""
    scheme, separator, _ = url.partition("://")
    if not separator or not _SCHEME.fullmatch(scheme):
        raise ConfigurationError(f"{redacted(url)!r} is not a URL: write for example sqlite:///duly.db")
    return scheme


def _factory(scheme: str, own: Mapping[str, str], group: str) -> Callable[[str, Opening], Any]:
    if scheme in own:
        return _own(scheme, own[scheme])
    from importlib.metadata import entry_points  # noqa: PLC0415  # costs 30 ms, and only foreign schemes need it

    for found in entry_points(group=group, name=scheme):
        loaded: Callable[[str, Opening], Any] = found.load()
        return loaded
    known = sorted({*own, *(each.name for each in entry_points(group=group))})
    raise ConfigurationError(f"unknown scheme {scheme!r}: installed are {', '.join(known)}")


def _own(scheme: str, package: str) -> Callable[[str, Opening], Any]:
    try:
        factory: Callable[[str, Opening], Any] = importlib.import_module(package).open_url
    except ModuleNotFoundError as exc:
        if package not in _EXTRAS or (exc.name or "").startswith("duly"):
            raise
        raise MissingExtra(f"{scheme}://", _EXTRAS[package]) from exc
    return factory
