"""Where the server is and how it is reached, read from a URL. Nothing here repeats a secret, not even to complain.

redis://user:password@host:6379/0    rediss://host?ssl_ca=/etc/ca.pem    redis+sentinel://h1:26379,h2:26379/service/0

A password is percent-encoded where it has signs that a URL uses itself. `rediss` and `rediss+sentinel` verify the
server's certificate and name unless told otherwise.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, unquote

from msgspec import Struct

from duly.backends.options import timeout_of
from duly.backends.tls import TLS_OPTIONS, Tls, tls_of
from duly.errors import ConfigurationError

SCHEMES = ("redis", "rediss", "redis+sentinel", "rediss+sentinel")

_PORT = 6379
_SENTINEL_PORT = 26379
_HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\[\]:@\s]+)(?::(?P<port>\d{1,5}))?")
_SENTINEL_OPTIONS = ("sentinel_username", "sentinel_password")
_NAMESPACE = re.compile(r"[A-Za-z0-9_][\w.-]{0,63}", re.ASCII)

Address = tuple[str, int]


class Login(Struct, frozen=True):
    """What a server is told before anything else. Shows nothing of itself."""

    username: str | None
    password: str

    def __repr__(self) -> str:
        return "Login(…)"

    @property
    def words(self) -> tuple[str, ...]:
        return ("AUTH", self.password) if self.username is None else ("AUTH", self.username, self.password)


class Place(Struct, frozen=True):
    """A server, or the sentinels that know which server it is. `timeout` is the deadline of every call, in seconds."""

    addresses: tuple[Address, ...]
    service: str | None = None
    db: int = 0
    login: Login | None = None
    sentinel_login: Login | None = None
    tls: Tls | None = None
    timeout: float = 5.0

    @property
    def shown(self) -> str:
        """The URL for people and logs: without credentials and options."""
        scheme = ("redis" if self.tls is None else "rediss") + ("" if self.service is None else "+sentinel")
        hosts = ",".join(f"{f'[{host}]' if ':' in host else host}:{port}" for host, port in self.addresses)
        service = "" if self.service is None else f"/{self.service}"
        return f"{scheme}://{hosts}{service}/{self.db}"


def parse(url: str) -> Place:
    """Read a URL. What is wrong is named by its kind; values are repeated only where no secret can hide in them."""
    scheme, _, rest = url.partition("://")
    if scheme not in SCHEMES:
        raise ConfigurationError(f"no Redis URL: it begins with {', '.join(f'{name}://' for name in SCHEMES)}")
    authority, path, query = _split(rest)
    sentinel = scheme.endswith("+sentinel")
    userinfo, _, hosts = authority.rpartition("@")
    options = dict(parse_qsl(query, keep_blank_values=True))
    _check_options(options, tls=scheme.startswith("rediss"), sentinel=sentinel)
    service, db = _service_and_db(path, sentinel=sentinel)
    return Place(
        addresses=_addresses(hosts, sentinel=sentinel),
        service=service,
        db=db,
        login=_login(userinfo),
        sentinel_login=_sentinel_login(options),
        tls=tls_of(options) if scheme.startswith("rediss") else None,
        timeout=timeout_of(options),
    )


def _split(rest: str) -> tuple[str, str, str]:
    """Authority, path and query. A secret with an unquoted sign in it would end up in the wrong one."""
    before, _, query = rest.partition("?")
    authority, _, path = before.partition("/")
    if "@" in path or "@" in query or "#" in rest:
        raise ConfigurationError(
            "the Redis URL has a sign where none belongs: percent-encode user name and password"
            " (/ is %2F, ? is %3F, # is %23, @ is %40)"
        )
    return authority, path, query


def _check_options(options: dict[str, str], *, tls: bool, sentinel: bool) -> None:
    known = ["timeout", *(TLS_OPTIONS if tls else ()), *(_SENTINEL_OPTIONS if sentinel else ())]
    for name in options:
        if name in TLS_OPTIONS and not tls:
            raise ConfigurationError(f"the option {name!r} goes with rediss://, this URL has no TLS")
        if name not in known:
            raise ConfigurationError(f"the Redis URL has an unknown option {name!r}: known are {', '.join(known)}")


def _addresses(hosts: str, *, sentinel: bool) -> tuple[Address, ...]:
    found = []
    for text in hosts.split(","):
        match = _HOST.fullmatch(text)
        port = int(match["port"] or (_SENTINEL_PORT if sentinel else _PORT)) if match else 0
        if match is None or not 0 < port < 65536:
            raise ConfigurationError(
                "the Redis URL names no server: after the @, if there is one, comes host or host:port"
                " (an IPv6 address in brackets)"
            )
        found.append((match["host"].strip("[]"), port))
    if len(found) > 1 and not sentinel:
        raise ConfigurationError("several hosts go with redis+sentinel:// only")
    return tuple(found)


def _service_and_db(path: str, *, sentinel: bool) -> tuple[str | None, int]:
    parts = unquote(path).strip("/").split("/") if path.strip("/") else []
    service = None
    if sentinel:
        if not parts:
            raise ConfigurationError("the sentinel URL names no service: redis+sentinel://host:26379/<service>/<db>")
        service = parts.pop(0)
    if len(parts) > 1 or (parts and not parts[0].isdecimal()):
        raise ConfigurationError("the Redis URL's path is the number of the database, for example /0")
    return service, int(parts[0]) if parts else 0


def _login(userinfo: str) -> Login | None:
    username, colon, password = userinfo.partition(":")
    if not userinfo:
        return None
    if not colon:
        raise ConfigurationError("the Redis URL has a user without a password: write user:password@ or :password@")
    return Login(unquote(username) or None, unquote(password))


def _sentinel_login(options: dict[str, str]) -> Login | None:
    if "sentinel_password" not in options:
        if "sentinel_username" in options:
            raise ConfigurationError("sentinel_username needs a sentinel_password")
        return None
    return Login(options.get("sentinel_username") or None, options["sentinel_password"])


def checked_namespace(namespace: str) -> str:
    """The namespace, if it can be a hash tag."""
    if _NAMESPACE.fullmatch(namespace) is None:
        raise ConfigurationError(
            f"namespace {namespace!r} is not possible on Redis: letters, digits, _ . and -, at most 64 in all"
        )
    return namespace
