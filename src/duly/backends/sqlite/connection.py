"""Connections: opened the same way everywhere, each used by one thread only, none carried across a fork."""

from __future__ import annotations

import os
import random
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from duly.backends.sqlite.files import Place, RuntimeDir, network_file_system
from duly.errors import BackendError, BackendUnavailable

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
    """In the child. Its copies of connections are neither used nor closed: closing might delete the write-ahead log."""
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
    """Refuse paths that are known to fail, before SQLite opens them."""
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
    """A connection for transactions; makes the file a database with a write-ahead log if it is not one yet."""
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


_PASSING = {
    sqlite3.SQLITE_BUSY: "is locked by another process",
    sqlite3.SQLITE_LOCKED: "is locked",
    sqlite3.SQLITE_FULL: "cannot grow: the disk is full",
    sqlite3.SQLITE_IOERR: "cannot be read or written now",
    sqlite3.SQLITE_NOMEM: "needs more memory than there is",
    sqlite3.SQLITE_INTERRUPT: "was interrupted",
}
_LASTING = {
    sqlite3.SQLITE_NOTADB: "is not an SQLite database: give another file name, or move that file away",
    sqlite3.SQLITE_CORRUPT: (
        "is damaged: stop every process that uses it, keep a copy, then restore a backup or salvage it with"
        " `sqlite3 FILE .recover`"
    ),
    sqlite3.SQLITE_READONLY: "is read-only: give this user write permission on the file and on its directory",
    sqlite3.SQLITE_PERM: "may not be opened: give this user permission on the file and on its directory",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened: check that its directory exists and that this user may write there",
    sqlite3.SQLITE_AUTH: "refused a statement",
}


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another connection has the lock, so that waiting may help."""
    return _code(error) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def translated(error: sqlite3.Error, path: Path) -> BackendError:
    """Duly's exception for this error. To be raised from the original."""
    code = _code(error)
    if code in _PASSING:
        return BackendUnavailable(f"{path} {_PASSING[code]} ({error})")
    if code in _LASTING:
        return BackendError(f"{path} {_LASTING[code]} ({error})")
    return BackendError(f"{path}: {error}")


def _code(error: sqlite3.Error) -> int:
    """The primary result code; errors of the Python module itself have none."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


_SHORTEST = 0.0002
_LONGEST = 0.010
_GROWTH = 1.5
_LONGEST_FOR_TURN = 0.003
_NEXT_IN_LINE = 0.0002
_COURTESY = 0.1

if sys.platform == "win32":  # pragma: no cover - no such locks: everybody waits by chance

    def _lock(file: int) -> None:
        raise OSError(f"file {file} cannot be locked here")

    def _unlock(file: int) -> None:
        raise OSError(f"file {file} cannot be locked here")
else:
    import fcntl

    def _lock(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _unlock(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_UN)


def pauses(seconds: float, longest: float = _LONGEST) -> Iterator[None]:
    """Yield at once, then after short random pauses that grow, until `seconds` have passed."""
    deadline = time.monotonic() + seconds
    pause = _SHORTEST
    while True:
        yield
        left = deadline - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(left, random.uniform(_SHORTEST, pause)))
        pause = min(pause * _GROWTH, longest)


def patiently(action: Callable[[], object], seconds: float) -> None:
    """Retry something while another connection's lock prevents it; the last error is raised."""
    refusal = None
    for _ in pauses(seconds):
        try:
            action()
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
            refusal = error
        else:
            return
    assert refusal is not None
    raise refusal


class LockWait:
    """One per connection that writes. Belongs to one thread."""

    def __init__(self, runtime_dir: RuntimeDir) -> None:
        self._runtime_dir = runtime_dir
        self._open: int | None = None

    def pass_through(self, begin: Callable[[], object], seconds: float) -> None:
        """Begin a transaction when it is this connection's turn; the last error is raised after `seconds`."""
        if not self._turn_comes(min(seconds, _COURTESY)):
            patiently(begin, seconds)
            return
        try:
            _as_next_in_line(begin, seconds)
        finally:
            if self._open is not None:
                _unlock(self._open)

    def _turn_comes(self, seconds: float) -> bool:
        for _ in pauses(seconds, _LONGEST_FOR_TURN):
            try:
                _lock(self._opened())
            except BlockingIOError:
                continue
            except OSError:
                return False
            return True
        return False

    def _opened(self) -> int:
        if (
            self._open is not None and not os.fstat(self._open).st_nlink
        ):  # deleted with the directory: others have made a new one
            self.close()
        if self._open is None:
            if not self._runtime_dir.make():
                raise FileNotFoundError
            self._open = os.open(self._runtime_dir.turn, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        return self._open

    def close(self) -> None:
        """Close the lock file, which also gives up a turn."""
        if self._open is not None:
            os.close(self._open)
            self._open = None


def _as_next_in_line(begin: Callable[[], object], seconds: float) -> None:
    """No other writer can overtake, so the pauses need not grow."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            begin()
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > deadline:
                raise
            time.sleep(_NEXT_IN_LINE)
        else:
            return
