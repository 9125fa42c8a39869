"""The SQLite backend."""

from duly.backends.sqlite.backend import SqliteBackend, open_url

__all__ = ["SqliteBackend", "open_url"]
