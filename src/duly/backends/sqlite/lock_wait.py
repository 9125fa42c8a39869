"""Patience: how a session waits for another one's lock, so that many share a file fairly and with small delays.

SQLite's own waiting sleeps in coarse steps and lets a busy writer overtake whoever sleeps. Here a writer first takes
its turn: a file lock that the next in line keeps until it has the database. Whoever has just committed must queue for
the turn like everybody else, so it cannot overtake. The turn is a courtesy, never a safety: one that does not come soon
(its holder is stopped, or nothing can be locked here) is not waited for.
"""

from __future__ import annotations

import os
import random
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator

from duly.backends.sqlite.errors import is_busy
from duly.backends.sqlite.runtime_dir import RuntimeDir

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
    """Come at once, then after short random pauses that grow, until so many seconds have passed."""
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
    """Do something that another one's lock may forbid, as soon as it does not; the last refusal is raised."""
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

    def __init__(self, meeting: RuntimeDir) -> None:
        self._meeting = meeting
        self._open: int | None = None

    def pass_through(self, begin: Callable[[], object], seconds: float) -> None:
        """Begin a transaction when it is this one's turn; the last refusal is raised after so many seconds."""
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
        if self._open is not None and not os.fstat(self._open).st_nlink:  # taken away with the place: others made anew
            self.close()
        if self._open is None:
            if not self._meeting.make():
                raise FileNotFoundError
            self._open = os.open(self._meeting.turn, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        return self._open

    def close(self) -> None:
        """Let go of the file; a turn goes with it."""
        if self._open is not None:
            os.close(self._open)
            self._open = None


def _as_next_in_line(begin: Callable[[], object], seconds: float) -> None:
    """Nobody can overtake, so the pauses need not grow."""
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
