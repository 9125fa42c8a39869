"""Which store a scheduler uses, and with which settings."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from msgspec import Struct

from duly.backends.address import Address, open_address
from duly.errors import ConfigurationError, shown
from duly.model import SchedulerConfig
from duly.ports import Backend, Clock, Opening
from duly.rules.redaction import redacted

DEFAULT_URL = "sqlite:///duly.db"
_FILE = "sqlite"

OpenBackend = Callable[[Opening], Backend]


class StoreAddress(Struct, frozen=True):
    """A store's address and the settings of the nodes on it. None means: read from the environment when needed."""

    url: str | None = None
    config: SchedulerConfig = SchedulerConfig()
    store: str | None = None
    queue: str | None = None
    coordinator: str | None = None
    backend: Backend | OpenBackend | None = None

    def __post_init__(self) -> None:
        if self.backend is None:
            return
        if any(part is not None for part in (self.url, self.store, self.queue, self.coordinator)):
            raise ConfigurationError("backend= and the URL of a store were both given: the store is named once")
        if not callable(self.backend) and not hasattr(self.backend, "session"):
            expected = "a Backend, or a function that takes an Opening and returns one"
            raise ConfigurationError(f"backend={shown(self.backend)}: expected {expected}")

    def __repr__(self) -> str:
        named = ", ".join(f"{name}={redacted(str(getattr(self, name)))}" for name in self.__struct_fields__)
        return f"StoreAddress({named})"

    def address(self, environment: Mapping[str, str] = os.environ) -> Address:
        """The argument's URLs, the environment's, or a file beside the program.

        One URL in code overrides the environment; of several parts, those not given in code may be in the environment.
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

    def moved_to(self, address: str) -> StoreAddress:
        """The address of a store that has moved there, which has no credentials: one of the same kind gets ours."""
        scheme, _, place = address.partition("://")
        own_scheme, _, own = self.address().store.partition("://")
        login, sign, _ = own.partition("?")[0].rpartition("@")
        if scheme == own_scheme and sign and scheme != _FILE:
            address = f"{scheme}://{login}@{place}"
        return StoreAddress(address, self.config)

    def open(self, clock: Clock) -> Backend:
        """The backend, not yet opened."""
        opening = Opening(self.config.namespace, clock, lease=self.config.lease)
        if self.backend is None:
            return open_address(self.address(), opening)
        return self.backend(opening) if callable(self.backend) else self.backend
