"""How to reach a server: read from a URL, or from a client of redis-py. Errors and `repr` show no secret.

redis://user:password@host:6379/0    rediss://host?ssl_ca=/etc/ca.pem    redis+sentinel://h1:26379,h2:26379/service/0
redis+cluster://h1:6379,h2:6379?replicas=1

User name and password are percent-encoded. The schemes that begin with `rediss` verify the server's certificate and
name unless an option says otherwise.
"""

from __future__ import annotations

import ssl
from typing import Any
from urllib.parse import unquote

from msgspec import Struct

from duly.backends.options import timeout_of
from duly.backends.tls import Tls, tls_of
from duly.backends.url_parts import Address, Login, addresses_in, check_options, host_and_port, split_url
from duly.errors import ConfigurationError

SCHEMES = ("redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster")

_PORT = 6379
_SENTINEL_PORT = 26379
_MAX_REPLICAS = 100

# The TLS options of redis-py that have a counterpart here, and what its certificate requirements mean.
_TLS_OPTIONS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname")
_UNVERIFIED = ("none", ssl.CERT_NONE)
# Options of redis-py that run code on each connection.
_CALLBACKS = ("credential_provider", "redis_connect_func")


class ConnectionSettings(Struct, frozen=True):
    """One server, the sentinels that know it, or some nodes of a cluster.

    `timeout` is the deadline of every call, in seconds. `replicas` is how many replicas must have a change before it
    counts as stored.
    """

    addresses: tuple[Address, ...]
    service: str | None = None
    db: int = 0
    login: Login | None = None
    sentinel_login: Login | None = None
    tls: Tls | None = None
    timeout: float = 5.0
    cluster: bool = False
    replicas: int = 0

    @property
    def safe_url(self) -> str:
        """The URL for people and logs, without credentials and options."""
        kind = "+cluster" if self.cluster else "" if self.service is None else "+sentinel"
        scheme = ("redis" if self.tls is None else "rediss") + kind
        hosts = ",".join(map(host_and_port, self.addresses))
        service = "" if self.service is None else f"/{self.service}"
        return f"{scheme}://{hosts}{service}/{self.db}"


def parse(url: str) -> ConnectionSettings:
    """Read a URL."""
    parts = split_url(url, "Redis", SCHEMES)
    options = parts.options
    tls, sentinel = parts.scheme.startswith("rediss"), parts.scheme.endswith("+sentinel")
    cluster = parts.scheme.endswith("+cluster")
    sentinel_options = ("sentinel_username", "sentinel_password") if sentinel else ()
    check_options(options, "Redis", ("timeout", "replicas", *sentinel_options), None if tls else "rediss")
    addresses = addresses_in(parts.hosts, "Redis", _SENTINEL_PORT if sentinel else _PORT)
    if len(addresses) > 1 and not (sentinel or cluster):
        raise ConfigurationError(
            "the Redis URL names several hosts: only redis+sentinel:// and redis+cluster:// take more than one"
        )
    service, db = _service_and_db(parts.path, sentinel=sentinel)
    if cluster and db:
        raise ConfigurationError(f"the Redis URL names database {db}: a cluster has only database 0")
    return ConnectionSettings(
        addresses=addresses,
        service=service,
        db=db,
        login=_login(parts.userinfo),
        sentinel_login=_sentinel_login(options),
        tls=tls_of(options) if tls else None,
        timeout=timeout_of(options),
        cluster=cluster,
        replicas=_replicas(options),
    )


def _replicas(options: dict[str, str]) -> int:
    text = options.get("replicas", "0")
    if not text.isdecimal() or int(text) > _MAX_REPLICAS:
        raise ConfigurationError(f"invalid option replicas={text!r}: expected a number from 0 to {_MAX_REPLICAS}")
    return int(text)


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


# --- clients of redis-py


def settings_of_client(client: object, timeout: float, replicas: int = 0) -> ConnectionSettings:
    """Address, credentials, database and TLS of a client, sync or asyncio, for one server or behind sentinels.

    Refuses a setting that cannot be taken over, so that no connection is less protected than the client's.
    """
    pool: Any = getattr(client, "connection_pool", None)
    if pool is None or not hasattr(pool, "connection_kwargs"):
        raise ConfigurationError(
            f"cannot use a {type(client).__name__}: pass a redis-py client of one server, or Sentinel.master_for(…);"
            " for a cluster, use a redis+cluster:// URL that names some of its nodes"
        )
    if not getattr(pool, "is_master", True):
        raise ConfigurationError("the client is for replicas, which take no writes: pass Sentinel.master_for(…)")
    service = getattr(pool, "service_name", None)
    sentinels = [] if service is None else [each.connection_pool for each in pool.sentinel_manager.sentinels]
    tls = _client_tls(pool)
    if any(_client_tls(sentinel) != tls for sentinel in sentinels):
        raise ConfigurationError("the sentinels and their servers have different TLS settings: use the same for both")
    logins = {_client_login(sentinel): None for sentinel in sentinels}
    if len(logins) > 1:
        raise ConfigurationError("the sentinels have different credentials: use the same for all")
    return ConnectionSettings(
        addresses=tuple(_client_address(each) for each in sentinels or [pool]),
        service=service,
        db=int(pool.connection_kwargs.get("db") or 0),
        login=_client_login(pool),
        sentinel_login=next(iter(logins), None),
        tls=tls,
        timeout=timeout_of({"timeout": f"{timeout:g}"}),
        replicas=_replicas({"replicas": str(replicas)}),
    )


def _client_address(pool: Any) -> Address:
    options = pool.connection_kwargs
    if "path" in options:
        return str(options["path"]), 0
    return options.get("host", "localhost"), int(options.get("port", _PORT))


def _client_login(pool: Any) -> Login | None:
    options = pool.connection_kwargs
    for name in _CALLBACKS:
        if options.get(name) is not None:
            raise ConfigurationError(f"the client has a {name}, which cannot be taken over: use username and password")
    if options.get("username") or options.get("password"):
        return Login(options.get("username") or None, options.get("password") or "")
    return None


def _client_tls(pool: Any) -> Tls | None:
    """The TLS settings of a pool. Like redis-py 6 and newer, this verifies the server's name by default."""
    options = pool.connection_kwargs
    if not any(each.__name__ == "SSLConnection" for each in pool.connection_class.__mro__):
        return None
    for name, value in options.items():
        if name.startswith("ssl_") and value and name not in _TLS_OPTIONS:
            raise ConfigurationError(f"the client has the option {name}, which cannot be taken over: use a URL")
    verify = "full" if options.get("ssl_check_hostname", True) else "ca"
    if options.get("ssl_cert_reqs", "required") in _UNVERIFIED:
        verify = "none"
    return Tls(options.get("ssl_ca_certs"), options.get("ssl_certfile"), options.get("ssl_keyfile"), verify)
