"""Peers: whether a call comes from a program of this machine, for an API that asks for no tokens.

What decides is the address at the other end of the connection. The header Host is looked at as well: a browser on this
machine sends what a page from elsewhere tells it to, under the name of that page. A proxy on this machine would make
every caller local, so calls that went through one are refused.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

from duly.api.problems import Problem

_HOME = frozenset({b"localhost", b"127.0.0.1", b"[::1]"})
_FORWARDED = (b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip", b"via")
_OF_PAGES = (b"origin",)
_SAME_SITE = frozenset({b"none", b"same-origin"})


def refuse_foreign(client: Any, headers: Mapping[bytes, bytes]) -> None:
    """Raise a `Problem` unless a program of this machine calls. `client` is the peer as ASGI has it."""
    reason = _foreign(client, headers)
    if reason is not None:
        detail = f"this API has no authentication and answers programs of its own machine only: {reason}"
        raise Problem(403, "forbidden", detail)


def _foreign(client: Any, headers: Mapping[bytes, bytes]) -> str | None:
    if not _is_loopback(client):
        return "the call does not come from a loopback address"
    forwarded = next((name for name in _FORWARDED if name in headers), None)
    if forwarded is not None:
        return f"the call went through a proxy ({forwarded.decode()}); use tokens behind a proxy"
    if _host(headers) not in _HOME:
        return "the call is for another host than localhost"
    if any(name in headers for name in _OF_PAGES) or headers.get(b"sec-fetch-site", b"none") not in _SAME_SITE:
        return "the call comes from a web page"
    return None


def _is_loopback(client: Any) -> bool:
    """Whether the peer is this machine. A peer that the server does not know may be anybody."""
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
