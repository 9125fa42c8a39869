"""Stores that campaigns can take away for a while."""

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from duly.testing.postgres_servers import postgres_server
from duly.testing.servers import redis_server


class FileStore:
    """A SQLite file. It is away while somebody else has it locked."""

    def __init__(self, folder: str) -> None:
        self.path = Path(folder) / "duly.db"
        self.url = f"sqlite:///{self.path}"
        self._lock: sqlite3.Connection | None = None

    def pause(self) -> None:
        self._lock = sqlite3.connect(self.path, timeout=30, isolation_level=None)
        self._lock.execute("BEGIN EXCLUSIVE")

    def resume(self) -> None:
        assert self._lock is not None
        self._lock.rollback()
        self._lock.close()


@contextmanager
def store(kind: str) -> Iterator:
    """A store with `url`, `pause` and `resume`."""
    match kind:
        case "sqlite":
            with tempfile.TemporaryDirectory() as folder:
                yield FileStore(folder)
        case "redis":
            with redis_server() as server:
                yield server
        case _:
            with postgres_server() as server:
                yield server


KINDS = ("sqlite", "redis", "postgres")
