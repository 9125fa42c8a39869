"""Foreign exceptions become ours here, and nowhere else: what may pass is unavailable, what will not is an error."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from duly.errors import BackendError, BackendUnavailable

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
    """Whether somebody else has the lock, so that waiting may help."""
    return _code(error) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def translated(error: sqlite3.Error, path: Path) -> BackendError:
    """The same news in Duly's words. To be raised from the original."""
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
