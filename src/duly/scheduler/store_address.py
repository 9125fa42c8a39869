"""Binding: which store a scheduler talks to, and with which settings."""

from __future__ import annotations

import os
from collections.abc import Mapping

from msgspec import Struct

from duly.backends.address import Address, open_address
from duly.errors import ConfigurationError
from duly.model import SchedulerConfig
from duly.ports import Backend, Clock, Opening
from duly.rules.redaction import redacted

DEFAULT_URL = "sqlite:///duly.db"


class StoreAddress(Struct, frozen=True):
    """A store's address and the settings of the nodes on it. None means: as the environment says, when it is asked."""

    url: str | None = None
    config: SchedulerConfig = SchedulerConfig()
    store: str | None = None
    queue: str | None = None
    coordinator: str | None = None

    def __repr__(self) -> str:
        named = ", ".join(f"{name}={redacted(str(getattr(self, name)))}" for name in self.__struct_fields__)
        return f"Binding({named})"

    def address(self, environment: Mapping[str, str] = os.environ) -> Address:
        """The argument's URLs, the environment's, or a file beside the program.

        One URL in code is all that counts; of several parts, those that code does not name may be in the environment.
        """
        if self.url is not None:
            if self.store is not None and self.store != self.url:
                raise ConfigurationError("a URL and a store= were given: the store is named once, in either way")
            return Address(self.url, self.queue, self.coordinator)
        return Address(
            self.store or environment.get("DULY_URL") or environment.get("DULY_STORE") or DEFAULT_URL,
            self.queue or environment.get("DULY_QUEUE") or None,
            self.coordinator or environment.get("DULY_COORDINATOR") or None,
        )

    def open(self, clock: Clock) -> Backend:
        """The backend, not yet opened."""
        return open_address(self.address(), Opening(self.config.namespace, clock, lease=self.config.lease))
