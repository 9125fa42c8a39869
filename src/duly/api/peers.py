"""Checks that a call comes from a program on this machine, for an API without authentication.

The address of the client decides. The header Host is checked as well, because a browser on this machine sends requests
for web pages of other hosts. Behind a proxy on this machine every caller would be local, so such calls are refused.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

from duly.api.problems import Problem

_LOCAL_HOSTS = frozenset({b"localhost", b"127.0.0.1", b"[::1]"})
_FORWARDED = (b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip", b"via")
_BROWSER_HEADERS = (b"origin",)
_SAME_SITE = frozenset({b"none", b"same-origin"})


def require_local(client: Any, headers: Mapping[bytes, bytes]) -> None:
    """Raise a `Problem` unless a program on this machine calls. `client` is the address in the ASGI scope."""
    reason = _not_local(client, headers)
    if reason is not None:
        detail = f"this API has no authentication and serves only programs on the same machine: {reason}"
        raise Problem(403, "forbidden", detail)


def _not_local(client: Any, headers: Mapping[bytes, bytes]) -> str | None:
    if not _is_loopback(client):
        return "the call does not come from a loopback address"
    forwarded = next((name for name in _FORWARDED if name in headers), None)
    if forwarded is not None:
        return f"the call went through a proxy ({forwarded.decode()}); use tokens behind a proxy"
    if _host(headers) not in _LOCAL_HOSTS:
        return "the call is for another host than localhost"
    if any(name in headers for name in _BROWSER_HEADERS) or headers.get(b"sec-fetch-site", b"none") not in _SAME_SITE:
        return "the call comes from a web page"
    return None


def _is_loopback(client: Any) -> bool:
    """Whether the client is on this machine. An unknown address counts as another machine."""
    try:
        address = ipaddress.ip_address(str(client[0]))
    except (TypeError, ValueError, IndexError):
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def _host(headers: Mapping[bytes, bytes]) -> bytes:
    host = headers.get(b"host", b"localhost").lower()
    if host.startswith(b"[") and b"]" in host:
        return host[: host.rindex(b"]") + 1]
    return host.partition(b":")[0]
