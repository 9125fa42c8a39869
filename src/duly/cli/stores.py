"""Which store the plain names of the environment mean: one alone is that backend, several are put together."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duly.cli.settings import Settings

_VARIABLES = {"store": "DULY_STORE", "queue": "DULY_QUEUE", "coordinator": "DULY_COORDINATOR"}


def composed(postgres: str | None, redis: str | None, etcd: str | None) -> dict[str, str]:
    """The addresses by part. PostgreSQL and Redis together are store and queue, etcd adds the coordinator."""
    queue = None if redis is None else with_scheme(redis, "redis")
    store = postgres or queue
    found: dict[str, str] = {}
    if store is not None:
        alone = etcd is None and (postgres is None or queue is None)
        found["url" if alone else "store"] = store
    if postgres is not None and queue is not None:
        found["queue"] = queue
    if etcd is not None:
        found["coordinator"] = with_scheme(etcd, "etcd")
    return found


def with_scheme(address: str, scheme: str) -> str:
    """A bare host:port as a URL."""
    return address if "://" in address else f"{scheme}://{address}"


def stand_in(settings: Settings) -> None:
    """Let what was found around the program stand in the environment: the library looks there, after code."""
    if settings.url is not None:
        os.environ["DULY_URL"] = settings.url
    for name, variable in _VARIABLES.items():
        value = getattr(settings, name)
        if value is not None:
            os.environ[variable] = value
