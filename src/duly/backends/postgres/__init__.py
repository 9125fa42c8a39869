"""The PostgreSQL backend."""

from duly.backends.postgres.backend import PostgresBackend, open_url

__all__ = ["PostgresBackend", "open_url"]
