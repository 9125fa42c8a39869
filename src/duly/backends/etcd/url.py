"""Where the members of an etcd cluster are and how they are reached, read from a URL. Repeats no secret.

etcd://h1:2379,h2:2379,h3:2379    etcds://user:password@h1,h2?ssl_ca=/etc/ca.pem&ssl_cert=/etc/me.pem&ssl_key=/etc/me.key

`etcds` (also written `etcd+https`) verifies the members' certificates and names unless told otherwise.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, unquote

from msgspec import Struct

from duly.backends.options import timeout_of
from duly.backends.tls import TLS_OPTIONS, Tls, tls_of
from duly.errors import ConfigurationError

SCHEMES = ("etcd", "etcds", "etcd+https")

_PORT = 2379
_HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\[\]:@\s/]+)(?::(?P<port>\d{1,5}))?")
_NAMESPACE = re.compile(r"[A-Za-z0-9_][\w.-]{0,63}", re.ASCII)


class Login(Struct, frozen=True):
    """Who we are. Shows nothing of itself."""

    name: str
    password: str

    def __repr__(self) -> str:
        return "Login(…)"


class Place(Struct, frozen=True):
    """The members of a cluster, any of which will do. `timeout` is the deadline of every call, in seconds."""

    hosts: tuple[str, ...]
    login: Login | None = None
    tls: Tls | None = None
    timeout: float = 5.0

    @property
    def shown(self) -> str:
        """The URL for people and logs: without credentials and options."""
        return f"{'etcd' if self.tls is None else 'etcds'}://{','.join(self.hosts)}"

    @property
    def origins(self) -> tuple[str, ...]:
        """What to knock at."""
        scheme = "http" if self.tls is None else "https"
        return tuple(f"{scheme}://{host}" for host in self.hosts)


def parse(url: str) -> Place:
    """Read a URL. What is wrong is named by its kind; values are repeated only where no secret can hide in them."""
    scheme, _, rest = url.partition("://")
    if scheme not in SCHEMES:
        raise ConfigurationError(f"no etcd URL: it begins with {', '.join(f'{name}://' for name in SCHEMES)}")
    before, _, query = rest.partition("?")
    authority, _, path = before.partition("/")
    if "@" in path or "@" in query or "#" in rest:
        raise ConfigurationError(
            "the etcd URL has a sign where none belongs: percent-encode user name and password"
            " (/ is %2F, ? is %3F, # is %23, @ is %40)"
        )
    if path:
        raise ConfigurationError("the etcd URL has a path, and etcd has none: etcd://host:2379,host:2379?options")
    userinfo, _, hosts = authority.rpartition("@")
    options = dict(parse_qsl(query, keep_blank_values=True))
    tls = scheme != "etcd"
    _check_options(options, tls=tls)
    return Place(
        hosts=_hosts(hosts),
        login=_login(userinfo),
        tls=tls_of(options) if tls else None,
        timeout=timeout_of(options),
    )


def _check_options(options: dict[str, str], *, tls: bool) -> None:
    known = ["timeout", *(TLS_OPTIONS if tls else ())]
    for name in options:
        if name in TLS_OPTIONS and not tls:
            raise ConfigurationError(f"the option {name!r} goes with etcds://, this URL has no TLS")
        if name not in known:
            raise ConfigurationError(f"the etcd URL has an unknown option {name!r}: known are {', '.join(known)}")


def _hosts(text: str) -> tuple[str, ...]:
    found = []
    for host in text.split(","):
        match = _HOST.fullmatch(host)
        port = int(match["port"] or _PORT) if match else 0
        if match is None or not 0 < port < 65536:
            raise ConfigurationError(
                "the etcd URL names no member: after the @, if there is one, come host or host:port, with commas"
                " between (an IPv6 address in brackets)"
            )
        found.append(f"{match['host']}:{port}")
    return tuple(dict.fromkeys(found))


def _login(userinfo: str) -> Login | None:
    if not userinfo:
        return None
    name, _, password = userinfo.partition(":")
    if not name or not password:
        raise ConfigurationError("the etcd URL has half a login: write user:password@")
    return Login(unquote(name), unquote(password))


def prefix_of(namespace: str) -> str:
    """What all keys of a namespace begin with."""
    if _NAMESPACE.fullmatch(namespace) is None:
        raise ConfigurationError(
            f"namespace {namespace!r} is not possible in etcd: letters, digits, _ . and -, at most 64 in all"
        )
    return f"duly/{namespace}/"
