"""The parts that URLs of several servers share. No error message contains a value that may be a secret."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import parse_qsl

from msgspec import Struct

from duly.backends.tls import TLS_OPTIONS
from duly.errors import ConfigurationError

_HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\[\]:@\s]+)(?::(?P<port>\d{1,5}))?")
_NAMESPACE = re.compile(r"[A-Za-z0-9_][\w.-]{0,63}", re.ASCII)

Address = tuple[str, int]


class Login(Struct, frozen=True):
    """User name and password. Its repr shows neither."""

    username: str | None
    password: str

    def __repr__(self) -> str:
        return "Login(…)"


class UrlParts(Struct, frozen=True):
    """A URL in pieces, each still percent-encoded except for the options."""

    scheme: str
    userinfo: str
    hosts: str
    path: str
    options: dict[str, str]


def split_url(url: str, server: str, schemes: Sequence[str]) -> UrlParts:
    """Take a URL apart. `server` is the product's name, for error messages."""
    scheme, _, rest = url.partition("://")
    if scheme not in schemes:
        expected = ", ".join(f"{name}://" for name in schemes)
        raise ConfigurationError(f"invalid {server} URL: it begins with {expected}")
    before, _, query = rest.partition("?")
    authority, _, path = before.partition("/")
    if "@" in path or "@" in query or "#" in rest:  # a secret with an unquoted character ended up in the wrong part
        raise ConfigurationError(
            f"invalid {server} URL: percent-encode user name and password (/ is %2F, ? is %3F, # is %23, @ is %40)"
        )
    userinfo, _, hosts = authority.rpartition("@")
    return UrlParts(scheme, userinfo, hosts, path, dict(parse_qsl(query, keep_blank_values=True)))


def check_options(options: dict[str, str], server: str, known: Sequence[str], tls_scheme: str | None) -> None:
    """Refuse unknown options. `tls_scheme` is the scheme to use instead for TLS options; None: this one has TLS."""
    known = (*known, *(TLS_OPTIONS if tls_scheme is None else ()))
    for name in options:
        if name in TLS_OPTIONS and tls_scheme is not None:
            raise ConfigurationError(f"the option {name!r} goes with {tls_scheme}://, this URL has no TLS")
        if name not in known:
            raise ConfigurationError(f"unknown option {name!r} in the {server} URL: known are {', '.join(known)}")


def addresses_in(hosts: str, server: str, default_port: int) -> tuple[Address, ...]:
    """The servers of a URL."""
    found = []
    for text in hosts.split(","):
        match = _HOST.fullmatch(text)
        port = int(match["port"] or default_port) if match else 0
        if match is None or not 0 < port < 65536:
            raise ConfigurationError(
                f"the {server} URL names no server: after the @, if there is one, write host or host:port (an IPv6"
                " address in brackets)"
            )
        found.append((match["host"].strip("[]"), port))
    return tuple(found)


def host_and_port(address: Address) -> str:
    """An address as text. A host that begins with / is the path of a Unix socket."""
    host, port = address
    if host.startswith("/"):
        return host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def checked_namespace(namespace: str, server: str) -> str:
    """The namespace, if it can be part of a key."""
    if _NAMESPACE.fullmatch(namespace) is None:
        raise ConfigurationError(
            f"invalid namespace {namespace!r} for {server}: expected letters, digits, _ . and -, at most 64 characters"
        )
    return namespace
