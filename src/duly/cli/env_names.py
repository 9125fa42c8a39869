"""Plain variables of the environment that say where the store is: POSTGRES_DSN, REDIS_URL, ETCD_ENDPOINTS.

POSTGRES_DSN or REDIS_URL alone is that backend, both are store and queue, and ETCD_ENDPOINTS adds the coordinator. Only
the `duly` command reads them: a library has no business with names that others may use.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote

from duly.errors import ConfigurationError

if TYPE_CHECKING:
    from duly.backends.address import Address

PLAIN = ("POSTGRES_DSN", "REDIS_URL", "ETCD_ENDPOINTS", "REDIS_STREAM_NAME", "REDIS_GROUP_NAME")

_SCHEMES = ("etcd", "etcds", "etcd+https")
_TLS = "https://"
_PLAIN = "http://"


def plain_address(environment: Mapping[str, str]) -> Address | None:
    """What these variables say; an empty one says nothing."""
    from duly.backends.address import Address  # noqa: PLC0415

    store, redis, etcd = (environment.get(name) for name in ("POSTGRES_DSN", "REDIS_URL", "ETCD_ENDPOINTS"))
    coordinator = etcd_url(etcd) if etcd else None
    if store:
        return Address(_postgres_url(store), _stream_url(redis, environment) if redis else None, coordinator)
    if redis:
        return Address(_redis_url(redis), None, coordinator)
    if coordinator:
        raise ConfigurationError("ETCD_ENDPOINTS says who leads, and nothing says where the runs are: set POSTGRES_DSN")
    return None


def _postgres_url(text: str) -> str:
    if "://" not in text:
        raise ConfigurationError("POSTGRES_DSN is no URL: write postgresql://user:password@host:5432/database")
    return text


def _redis_url(text: str) -> str:
    """A URL as it is, or made of a bare host:port."""
    return text if "://" in text else f"redis://{text}"


def _stream_url(text: str, environment: Mapping[str, str]) -> str:
    """The same, with the names of the stream and of the group of its readers where they are given."""
    url = _redis_url(text)
    named = {"stream": environment.get("REDIS_STREAM_NAME"), "group": environment.get("REDIS_GROUP_NAME")}
    options = "&".join(f"{name}={quote(value, safe='')}" for name, value in named.items() if value)
    if not options:
        return url
    return f"{url}{'&' if '?' in url else '?'}{options}"


def etcd_url(endpoints: str) -> str:
    """One URL of a list of host:port, each of which may begin with http:// or https://."""
    scheme, separator, _ = endpoints.partition("://")
    if separator and scheme in _SCHEMES:
        return endpoints
    named = [endpoint.strip().rstrip("/") for endpoint in endpoints.split(",") if endpoint.strip()]
    secure = [endpoint.startswith(_TLS) for endpoint in named]
    if any(secure) and not all(secure):
        raise ConfigurationError("ETCD_ENDPOINTS has https:// for some members and not for others: write it for all")
    hosts = ",".join(endpoint.removeprefix(_TLS).removeprefix(_PLAIN) for endpoint in named)
    return f"{'etcds' if any(secure) else 'etcd'}://{hosts}"
