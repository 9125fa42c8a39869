"""How to reach the members of an etcd cluster: read from a URL. Errors and `repr` show no secret.

etcd://h1:2379,h2:2379,h3:2379    etcds://user:password@h1,h2?ssl_ca=/etc/ca.pem&ssl_cert=/etc/me.pem&ssl_key=/etc/me.key

`etcds` (also written `etcd+https`) verifies the members' certificates and names unless an option says otherwise.
"""

from __future__ import annotations

from urllib.parse import unquote

from msgspec import Struct

from duly.backends.options import timeout_of
from duly.backends.tls import Tls, tls_of
from duly.backends.url_parts import Login, addresses_in, check_options, host_and_port, split_url
from duly.errors import ConfigurationError

SCHEMES = ("etcd", "etcds", "etcd+https")

_PORT = 2379


class ConnectionSettings(Struct, frozen=True):
    """The members of a cluster; any of them can be used. `timeout` is the deadline of every call, in seconds."""

    hosts: tuple[str, ...]
    login: Login | None = None
    tls: Tls | None = None
    timeout: float = 5.0

    @property
    def safe_url(self) -> str:
        """The URL for people and logs, without credentials and options."""
        return f"{'etcd' if self.tls is None else 'etcds'}://{','.join(self.hosts)}"

    @property
    def origins(self) -> tuple[str, ...]:
        """The base URL of each member's HTTP server."""
        scheme = "http" if self.tls is None else "https"
        return tuple(f"{scheme}://{host}" for host in self.hosts)


def parse(url: str) -> ConnectionSettings:
    """Read a URL."""
    parts = split_url(url, "etcd", SCHEMES)
    if parts.path:
        raise ConfigurationError("the etcd URL has a path, and etcd has none: etcd://host:2379,host:2379?options")
    tls = parts.scheme != "etcd"
    check_options(parts.options, "etcd", ("timeout",), None if tls else "etcds")
    hosts = map(host_and_port, addresses_in(parts.hosts, "etcd", _PORT))
    return ConnectionSettings(
        hosts=tuple(dict.fromkeys(hosts)),
        login=_login(parts.userinfo),
        tls=tls_of(parts.options) if tls else None,
        timeout=timeout_of(parts.options),
    )


def _login(userinfo: str) -> Login | None:
    if not userinfo:
        return None
    name, _, password = userinfo.partition(":")
    if not name or not password:
        raise ConfigurationError("the etcd URL lacks a user name or a password: write user:password@")
    return Login(unquote(name), unquote(password))
