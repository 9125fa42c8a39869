"""How to reach a server: read from a URL. Errors and `repr` show no secret.

redis://user:password@host:6379/0    rediss://host?ssl_ca=/etc/ca.pem    redis+sentinel://h1:26379,h2:26379/service/0

User name and password are percent-encoded. `rediss` and `rediss+sentinel` verify the server's certificate and name
unless an option says otherwise.
"""

from __future__ import annotations

from urllib.parse import unquote

from msgspec import Struct

from duly.backends.options import timeout_of
from duly.backends.tls import Tls, tls_of
from duly.backends.url_parts import Address, Login, addresses_in, check_options, host_and_port, split_url
from duly.errors import ConfigurationError

SCHEMES = ("redis", "rediss", "redis+sentinel", "rediss+sentinel")

_PORT = 6379
_SENTINEL_PORT = 26379


class ConnectionSettings(Struct, frozen=True):
    """One server, or the sentinels that know it. `timeout` is the deadline of every call, in seconds."""

    addresses: tuple[Address, ...]
    service: str | None = None
    db: int = 0
    login: Login | None = None
    sentinel_login: Login | None = None
    tls: Tls | None = None
    timeout: float = 5.0

    @property
    def safe_url(self) -> str:
        """The URL for people and logs, without credentials and options."""
        scheme = ("redis" if self.tls is None else "rediss") + ("" if self.service is None else "+sentinel")
        hosts = ",".join(map(host_and_port, self.addresses))
        service = "" if self.service is None else f"/{self.service}"
        return f"{scheme}://{hosts}{service}/{self.db}"


def parse(url: str) -> ConnectionSettings:
    """Read a URL."""
    parts = split_url(url, "Redis", SCHEMES)
    options = parts.options
    tls, sentinel = parts.scheme.startswith("rediss"), parts.scheme.endswith("+sentinel")
    sentinel_options = ("sentinel_username", "sentinel_password") if sentinel else ()
    check_options(options, "Redis", ("timeout", *sentinel_options), None if tls else "rediss")
    addresses = addresses_in(parts.hosts, "Redis", _SENTINEL_PORT if sentinel else _PORT)
    if len(addresses) > 1 and not sentinel:
        raise ConfigurationError("the Redis URL names several hosts: only redis+sentinel:// takes more than one")
    service, db = _service_and_db(parts.path, sentinel=sentinel)
    return ConnectionSettings(
        addresses=addresses,
        service=service,
        db=db,
        login=_login(parts.userinfo),
        sentinel_login=_sentinel_login(options),
        tls=tls_of(options) if tls else None,
        timeout=timeout_of(options),
    )


def _service_and_db(path: str, *, sentinel: bool) -> tuple[str | None, int]:
    parts = unquote(path).strip("/").split("/") if path.strip("/") else []
    service = None
    if sentinel:
        if not parts:
            raise ConfigurationError("the sentinel URL names no service: redis+sentinel://host:26379/<service>/<db>")
        service = parts.pop(0)
    if len(parts) > 1 or (parts and not parts[0].isdecimal()):
        raise ConfigurationError("the path of the Redis URL must be the number of the database, for example /0")
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
