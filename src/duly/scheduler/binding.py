"""Binding: which store a scheduler talks to, and with which settings."""

from __future__ import annotations

import os
from collections.abc import Mapping

from msgspec import Struct

from duly.backends import open_backend
from duly.errors import ConfigurationError
from duly.model import SchedulerConfig
from duly.ports import Backend, Clock, Opening

DEFAULT_URL = "sqlite:///duly.db"


class Binding(Struct, frozen=True):
    """A store's address and the settings of the nodes on it. None means: as the environment says, when it is asked."""

    url: str | None = None
    config: SchedulerConfig = SchedulerConfig()
    store: str | None = None
    queue: str | None = None
    coordinator: str | None = None

    def address(self, environment: Mapping[str, str] = os.environ) -> str:
        """The URL of the one store: the argument's, the environment's, or a file beside the program."""
        url = self.url or self.store
        queue, coordinator = self.queue, self.coordinator
        if url is None:
            url = environment.get("DULY_URL") or environment.get("DULY_STORE")
            queue = queue or environment.get("DULY_QUEUE")
            coordinator = coordinator or environment.get("DULY_COORDINATOR")
        url = url or DEFAULT_URL
        for part, given in (("queue", queue), ("coordinator", coordinator)):
            if given is not None and given != url:
                raise ConfigurationError(f"{part}={given!r} cannot be combined with the store of this scheduler")
        return url

    def open(self, clock: Clock) -> Backend:
        """The backend, not yet opened."""
        return open_backend(self.address(), Opening(self.config.namespace, clock))
