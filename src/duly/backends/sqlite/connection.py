"""Connections: opened the same way everywhere, each used by one thread only, none carried across a fork."""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path

from duly.backends.sqlite.errors import translated
from duly.backends.sqlite.lock_wait import patiently
from duly.backends.sqlite.mounts import network_file_system
from duly.backends.sqlite.url import Place
from duly.errors import BackendError

OLDEST = (3, 35, 0)  # RETURNING, and upserts of several rows

# Fewer checkpoints: under load the same hot pages are written over and over, and only their last version is copied.
_CHECKPOINT_PAGES = 4000
_LARGEST_IDLE_WAL = 64 << 20
_STATEMENTS = 400
_WRITER_CACHE_KIB = 32_000
_READER_CACHE_KIB = 8_000

_forks = 0
_open: set[sqlite3.Connection] = set()


def _forked() -> None:
    """In the child. Its copies of connections are never used, nor closed: that might end the log of the file."""
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def forks() -> int:
    """How many forks lie between this process and the one that loaded this module."""
    return _forks


def check_library() -> None:
    """Refuse an SQLite that lacks what the statements use."""
    if sqlite3.sqlite_version_info < OLDEST:
        raise BackendError(
            f"SQLite {sqlite3.sqlite_version} is too old: Duly needs {'.'.join(map(str, OLDEST))} or newer."
            " Use a Python that was built with a newer library"
        )


def check_file(path: Path) -> None:
    """Refuse what can be told to go wrong before SQLite is asked."""
    if path.is_dir():
        raise BackendError(f"{path} is a directory: name a file in it, such as {path / 'duly.db'}")
    if not path.parent.is_dir():
        raise BackendError(f"{path.parent} is not a directory: create it, or give another file name")
    remote = network_file_system(path.parent)
    if remote is not None:
        raise BackendError(
            f"{path} is on a network file system ({remote}), where SQLite's log loses data:"
            " use a local disk, or a server such as postgresql:// or redis://"
        )


def connect_writer(place: Place) -> sqlite3.Connection:
    """A connection for transactions; makes the file a database with a write-ahead log if it is none yet."""
    _make_private(place.path)
    connection = _connect(place)
    try:
        patiently(lambda: _log_ahead(connection, place.path), place.busy_timeout)
        _set_up(connection, _WRITER_CACHE_KIB)
        connection.execute(f"PRAGMA synchronous={place.synchronous}")
        connection.execute(f"PRAGMA wal_autocheckpoint={_CHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit={_LARGEST_IDLE_WAL}")
    except sqlite3.Error as error:
        close(connection)
        raise translated(error, place.path) from error
    return connection


def connect_reader(place: Place) -> sqlite3.Connection:
    """A connection that cannot write."""
    connection = _connect(place)
    try:
        patiently(lambda: connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall(), place.busy_timeout)
        _set_up(connection, _READER_CACHE_KIB)
        connection.execute("PRAGMA query_only=ON")
    except sqlite3.Error as error:
        close(connection)
        raise translated(error, place.path) from error
    return connection


def close(connection: sqlite3.Connection) -> None:
    """Close a connection of this process."""
    _open.discard(connection)
    connection.close()


def _make_private(path: Path) -> None:
    """A new file is readable for its owner alone, whatever the umask: it will hold payloads, results and errors.

    What SQLite keeps beside it, the log and its index, gets the same mode. A file that exists keeps its own.
    """
    with suppress(OSError):  # it exists, or cannot be made: SQLite says why
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))


def _connect(place: Place) -> sqlite3.Connection:
    try:
        connection = sqlite3.connect(
            place.path, timeout=0, isolation_level=None, check_same_thread=False, cached_statements=_STATEMENTS
        )
    except sqlite3.Error as error:
        raise translated(error, place.path) from error
    _open.add(connection)
    return connection


def _log_ahead(connection: sqlite3.Connection, path: Path) -> None:
    [(mode,)] = connection.execute("PRAGMA journal_mode=WAL")
    if mode != "wal":
        raise BackendError(f"{path} cannot have a write-ahead log (its journal is {mode}): use a file on a local disk")


def _set_up(connection: sqlite3.Connection, cache: int) -> None:
    connection.execute(f"PRAGMA cache_size=-{cache}")
    connection.execute("PRAGMA temp_store=MEMORY")
    connection.execute("PRAGMA foreign_keys=OFF")
