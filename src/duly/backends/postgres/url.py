"""PostgreSQL URLs, and the environment variables that replace what a URL leaves out.

    postgresql://user:password@host:5432/database?sslmode=verify-full&sslrootcert=/etc/ca.pem
    postgresql://h1,h2:5433/database    the one of them that takes writes    postgresql:///database?host=/run/postgresql

Reserved characters in a password are percent-encoded. The password may also come from `PGPASSWORD`, from a
file named by `PGPASSWORD_FILE` (read again for every connection), or from `~/.pgpass`.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote

from msgspec import Struct
from msgspec.structs import replace

from duly.backends.options import timeout_of
from duly.errors import ConfigurationError

if TYPE_CHECKING:
    import asyncpg

SCHEMES = ("postgresql", "postgres")
SSLMODES = ("disable", "prefer", "require", "verify-ca", "verify-full")
POOLERS = ("auto", "none", "transaction")
MIGRATE = ("yes", "no")

_PORT = 5432
_OPTIONS = (
    "sslmode", "sslrootcert", "sslcert", "sslkey", "host", "application_name", "timeout", "pooler", "migrate",
)  # fmt: skip
_HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\[\]:@/\s]+)(?::(?P<port>\d{1,5}))?")
_NAMESPACE = re.compile(r"[A-Za-z0-9_][\w.-]{0,62}", re.ASCII)

Address = tuple[str, int]


class Login(Struct, frozen=True):
    """User and password. Its repr shows neither. The driver calls a password that is a function for each connection."""

    user: str | None = None
    password: str | Callable[[], Any] | None = None
    password_file: str | None = None

    def __repr__(self) -> str:
        return "Login(…)"

    def secret(self) -> str | Callable[[], Any] | None:
        """The password as it is now: a file may have been changed since the last time."""
        if self.password is not None or self.password_file is None:
            return self.password
        try:
            return Path(self.password_file).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeError) as exc:
            raise ConfigurationError(f"PGPASSWORD_FILE={self.password_file!r} cannot be read: {exc}") from exc


class Tls(Struct, frozen=True):
    """How to verify the server, and the client's own certificate: paths of PEM files, or a context."""

    mode: str = "prefer"
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    made: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext:
        """For modes that require TLS. Reads the files, so it may wait for a disk."""
        if self.made is not None:
            return self.made
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.cert is not None:
                context.load_cert_chain(self.cert, self.key)
        except (OSError, ssl.SSLError) as exc:
            named = ", ".join(file for file in (self.ca, self.cert, self.key) if file)
            raise ConfigurationError(f"a TLS file cannot be used, one of {named}: {exc}") from exc
        context.check_hostname = self.mode == "verify-full"
        # As everywhere with PostgreSQL, an authority that is named is used, even where only TLS is required.
        verifies = self.mode.startswith("verify-") or (self.mode == "require" and self.ca is not None)
        context.verify_mode = ssl.CERT_REQUIRED if verifies else ssl.CERT_NONE
        return context


class Place(Struct, frozen=True):
    """A database. `timeout` is the deadline of every call, in seconds; `pooler` what is in front of the server."""

    addresses: tuple[Address, ...]
    database: str | None = None
    login: Login = Login()
    tls: Tls = Tls()
    timeout: float = 5.0
    pooler: str = "auto"
    migrates: bool = True
    application: str = "duly"

    @property
    def shown(self) -> str:
        """The URL for people and logs: without credentials and options."""
        hosts = ",".join(f"{f'[{host}]' if ':' in host else host}:{port}" for host, port in self.addresses)
        return f"postgresql://{hosts}/{self.database or ''}"


def parse(url: str, environment: Mapping[str, str] | None = None) -> Place:
    """Read a URL. Errors name the kind of mistake; they show values only where these cannot be secrets."""
    known = os.environ if environment is None else environment
    scheme, _, rest = url.partition("://")
    if scheme not in SCHEMES:
        expected = " or ".join(f"{name}://" for name in SCHEMES)
        raise ConfigurationError(f"invalid PostgreSQL URL: it begins with {expected}")
    authority, path, query = _split(rest)
    options = dict(parse_qsl(query, keep_blank_values=True))
    _check_options(options)
    userinfo, _, hosts = authority.rpartition("@")
    return Place(
        addresses=_addresses(hosts, options, known),
        database=unquote(path) or known.get("PGDATABASE") or None,
        login=_login(userinfo, known),
        tls=_tls(options, known),
        timeout=timeout_of(options),
        pooler=_one_of("pooler", options.get("pooler", "auto"), POOLERS),
        migrates=_one_of("migrate", options.get("migrate", "yes"), MIGRATE) == "yes",
        application=options.get("application_name") or known.get("PGAPPNAME") or "duly",
    )


# --- the settings of a pool

_CARRIED = frozenset({"dsn", "host", "port", "user", "password", "database", "ssl", "server_settings"})
# What a pool sets for its own connections, and what says nothing about the server.
_IGNORED = frozenset(
    {
        *("timeout", "command_timeout", "statement_cache_size", "max_cached_statement_lifetime"),
        *("max_cacheable_statement_size", "target_session_attrs", "loop", "connection_class", "record_class"),
    }
)


def place_of_pool(pool: asyncpg.Pool[Any], timeout: float) -> Place:
    """The database that a pool of asyncpg leads to. The pool is neither used nor changed."""
    # asyncpg has no public way to ask for them.
    arguments, options = getattr(pool, "_connect_args", None), getattr(pool, "_connect_kwargs", None)
    if arguments is None or options is None:
        raise ConfigurationError(
            f"from_pool takes a pool of asyncpg, not {type(pool).__name__}: open the store by its URL instead"
        )
    options = dict(options)
    if arguments and arguments[0] is not None:
        options["dsn"] = arguments[0]
    given = {name: value for name, value in options.items() if value is not None and name not in _IGNORED}
    strange = sorted(given.keys() - _CARRIED)
    if strange:
        raise ConfigurationError(
            f"the pool sets {', '.join(strange)}, which Duly cannot take over: open the store by its URL instead"
        )
    return _with_pool(parse(given.get("dsn", "postgresql://")), given, timeout)


def _with_pool(place: Place, given: Mapping[str, Any], timeout: float) -> Place:
    hosts, ports = (_listed(given.get(name)) for name in ("host", "port"))
    addresses = place.addresses
    if hosts or ports:
        hosts = hosts or [host for host, _ in addresses]
        ports = ports or [addresses[0][1]]
        ports = [int(port) for port in (ports if len(ports) == len(hosts) else ports * len(hosts))]
        addresses = tuple(zip((str(host) for host in hosts), ports, strict=True))
    login = place.login
    return replace(
        place,
        addresses=addresses,
        database=given.get("database", place.database),
        login=replace(login, user=given.get("user", login.user), password=given.get("password", login.password)),
        tls=_tls_of_pool(given["ssl"]) if "ssl" in given else place.tls,
        timeout=timeout,
        application=dict(given.get("server_settings", {})).get("application_name", place.application),
    )


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [] if value is None else [value]


def _tls_of_pool(value: Any) -> Tls:
    """`ssl` as asyncpg takes it: a context, a mode, or whether."""
    match value:
        case ssl.SSLContext():
            named = "verify-full" if value.check_hostname else "verify-ca"
            return Tls("require" if value.verify_mode == ssl.CERT_NONE else named, made=value)
        case bool():
            return Tls("verify-full" if value else "disable")
        case _:
            return Tls(_one_of("ssl", str(value), SSLMODES))


# --- the parts of a URL


def _split(rest: str) -> tuple[str, str, str]:
    """Authority, path and query. A secret with an unquoted special character would end up in the wrong one."""
    before, _, query = rest.partition("?")
    authority, _, path = before.partition("/")
    if "@" in path or "/" in path or "@" in query or "#" in rest:
        raise ConfigurationError(
            "the PostgreSQL URL has a misplaced special character: percent-encode user name and password"
            " (/ is %2F, ? is %3F, # is %23, @ is %40)"
        )
    return authority, path, query


def _check_options(options: Mapping[str, str]) -> None:
    if "password" in options or "user" in options:
        raise ConfigurationError("user and password belong before the host, user:password@host, or into PGPASSWORD")
    for name in options:
        if name not in _OPTIONS:
            known = ", ".join(_OPTIONS)
            raise ConfigurationError(f"the PostgreSQL URL has an unknown option {name!r}: known are {known}")


def _addresses(hosts: str, options: Mapping[str, str], known: Mapping[str, str]) -> tuple[Address, ...]:
    if not hosts:
        hosts = options.get("host") or known.get("PGHOST") or "localhost"
    elif "host" in options:
        raise ConfigurationError("the PostgreSQL URL names its host twice: before the path, and as the option host")
    usual = known.get("PGPORT") or str(_PORT)
    return tuple(_address(text, usual) for text in hosts.split(","))


def _address(text: str, usual: str) -> Address:
    if text.startswith("/"):
        return text, _port(usual)
    match = _HOST.fullmatch(text)
    if match is None:
        raise ConfigurationError(
            "the PostgreSQL URL names no server: after the @, if there is one, comes host or host:port (an IPv6 address"
            " in brackets), or several of them with commas; a folder of sockets is ?host=/run/postgresql"
        )
    return unquote(match["host"].strip("[]")), _port(match["port"] or usual)


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise ConfigurationError(f"port {text!r} is not possible: a number from 1 to 65535")
    return int(text)


def _login(userinfo: str, known: Mapping[str, str]) -> Login:
    user, colon, password = userinfo.partition(":")
    return Login(
        user=unquote(user) or known.get("PGUSER") or None,
        password=unquote(password) if colon else known.get("PGPASSWORD"),
        password_file=known.get("PGPASSWORD_FILE") or None,
    )


def _tls(options: Mapping[str, str], known: Mapping[str, str]) -> Tls:
    tls = Tls(
        mode=_one_of("sslmode", options.get("sslmode") or known.get("PGSSLMODE") or "prefer", SSLMODES),
        ca=options.get("sslrootcert") or known.get("PGSSLROOTCERT") or None,
        cert=options.get("sslcert") or known.get("PGSSLCERT") or None,
        key=options.get("sslkey") or known.get("PGSSLKEY") or None,
    )
    if tls.key is not None and tls.cert is None:
        raise ConfigurationError("sslkey needs an sslcert")
    if tls.mode == "disable" and (tls.ca or tls.cert):
        raise ConfigurationError("sslrootcert and sslcert do not go with sslmode=disable")
    return tls


def _one_of(name: str, value: str, possible: tuple[str, ...]) -> str:
    if value not in possible:
        raise ConfigurationError(f"{name}={value!r} is not possible: {', '.join(possible)}")
    return value


def checked_namespace(namespace: str) -> str:
    """The namespace, if it can be the name of a schema."""
    if _NAMESPACE.fullmatch(namespace) is None or namespace.lower().startswith("pg_"):
        raise ConfigurationError(
            f"namespace {namespace!r} is not possible on PostgreSQL, where it names a schema: letters, digits, _ . and"
            " -, at most 63 in all, and no pg_ at the beginning"
        )
    return namespace
