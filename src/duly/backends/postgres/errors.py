"""Converts foreign exceptions to Duly's, only here: a temporary one becomes unavailable, which is safe to retry."""

from __future__ import annotations

import ssl

import asyncpg

from duly.errors import BackendError, BackendUnavailable

# What the driver and the network raise. Other exceptions pass through unchanged.
FOREIGN = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)

# By SQLSTATE, or by its first characters: temporary errors.
_PASSING = {
    "08": "lost the connection",
    "25006": "takes no writes: it is a standby, or read-only",
    "25P03": "closed the connection, which was idle in a transaction for too long",
    "40": "could not do this beside others at once",
    "53": "has no room: connections, memory or disk",
    "53300": "has as many connections as it allows: raise its max_connections, or put a pooler before it",
    "53100": "has no disk left",
    "55P03": "could not get a lock that another client holds",
    "55006": "reports that this is in use by another client",
    "57014": "cancelled the statement (statement_timeout, or an administrator)",
    "57P": "is stopping, starting, or had to close the connection",
    "58": "reports a system error of its machine",
}
_LASTING = {
    "28": "does not know this user and password, or does not let them in from here",
    "3D000": "has no such database: create it",
    "42501": "does not allow this user what Duly needs: all on its own schema, and CREATE on the database to make it",
    "42P01": "lacks a table of Duly: run `duly migrate`",
    "42703": "lacks a column of Duly: run `duly migrate`",
    "3F000": "lacks the schema of Duly: run `duly migrate`",
    "26000": "seems to be behind a pooler, which hands connections around: say so with ?pooler=transaction",
    "42P05": "seems to be behind a pooler, which hands connections around: say so with ?pooler=transaction",
}


def translated(error: BaseException, place: str) -> BackendError:
    """Duly's exception for a foreign one."""
    match error:
        case asyncpg.TargetServerAttributeNotMatched():
            return BackendUnavailable(f"{place}: none of these servers takes writes now")
        case asyncpg.PostgresError():
            return _refused(error, place)
        case ssl.SSLCertVerificationError():
            return BackendError(
                f"{place} did not prove who it is: {error.verify_message}. Name its authority with sslrootcert=, or its"
                " right host"
            )
        case asyncpg.ClientConfigurationError():
            return BackendError(f"{place}: {error}")
        case asyncpg.InterfaceError() if "closed" in str(error):
            return unreachable(error, place)
        case asyncpg.InternalClientError():  # the server ended the connection just before it was used
            return unreachable(error, place)
        case ConnectionError() if "SSL" in str(error):  # a server that is stopping answers like one that has no TLS
            return BackendUnavailable(f"{place} speaks no TLS now: turn ssl on in the server if sslmode wants it")
        case OSError():
            return unreachable(error, place)
        case _:
            return BackendError(f"{place}: {type(error).__name__}: {error}")


def unreachable(error: BaseException, place: str) -> BackendUnavailable:
    """Why a connection could not be made or kept."""
    return BackendUnavailable(f"{place} cannot be reached: {str(error) or type(error).__name__}")


def spoils(error: BaseException) -> bool:
    """Whether the connection is unusable after this: the driver is in a bad state, or the server became a standby."""
    match error:
        case asyncpg.ReadOnlySQLTransactionError():
            return True
        case asyncpg.PostgresError() | asyncpg.DataError():
            return False
        case _:
            return True


def _refused(error: asyncpg.PostgresError, place: str) -> BackendError:
    state = error.sqlstate or ""
    text = f"({error}) [{state}]"
    for length in (5, 3, 2):
        if state[:length] in _PASSING:
            return BackendUnavailable(f"{place} {_PASSING[state[:length]]} {text}")
        if state[:length] in _LASTING:
            return BackendError(f"{place} {_LASTING[state[:length]]} {text}")
    return BackendError(f"{place} refused: {error} [{state}]")
