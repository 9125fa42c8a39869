"""Addresses of up to three parts: the store, the queue, and the coordinator; and which of them can be combined.

One URL is a backend that does everything itself. In a combination the store is PostgreSQL and holds the data; the queue
notifies nodes sooner, and the coordinator elects the leader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from duly.backends import open_backend, open_coordinator, scheme_of
from duly.errors import ConfigurationError, MissingExtra
from duly.ports import Backend, Opening
from duly.rules.redaction import redacted

if TYPE_CHECKING:
    from duly.backends.split.stream_notifier import StreamNotifier

STORES = ("postgresql", "postgres")
_QUEUES = ("redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster")
_COORDINATORS = (*_QUEUES, "etcd", "etcds", "etcd+https")
_ALLOWED = (
    "one URL does everything, or store='postgresql://…' goes with queue='redis://…' and with"
    " coordinator='etcd://…' or 'redis://…', each of which may be left out"
)


class Address(Struct, frozen=True):
    """The URLs of the parts. None: the store does it."""

    store: str
    queue: str | None = None
    coordinator: str | None = None

    def __repr__(self) -> str:
        named = ", ".join(f"{name}={redacted(str(getattr(self, name)))}" for name in self.__struct_fields__)
        return f"Address({named})"

    @property
    def parts(self) -> dict[str, str]:
        """The parts that are not the store, by name."""
        named = {"queue": self.queue, "coordinator": self.coordinator}
        return {name: url for name, url in named.items() if url is not None and url != self.store}


def open_address(address: Address, opening: Opening) -> Backend:
    """The backend for an address, not yet opened. Raises `ConfigurationError` for parts that cannot be combined."""
    parts = address.parts
    if not parts:
        return open_backend(address.store, opening)
    _check(address.store, parts)
    main = open_backend(address.store, opening)
    theirs = replace(opening, clock=main.clock)  # the coordinator's times are compared with the store's
    coordinator = open_coordinator(parts["coordinator"], theirs) if "coordinator" in parts else None
    from duly.backends.split import SplitBackend  # noqa: PLC0415  # one URL does not need it

    return SplitBackend(main, coordinator, _stream(parts.get("queue"), opening))


def _stream(url: str | None, opening: Opening) -> StreamNotifier | None:
    if url is None:
        return None
    try:
        from duly.backends.split.stream_notifier import stream_notifier_at  # noqa: PLC0415  # what it imports is an extra
    except ModuleNotFoundError as exc:
        if (exc.name or "").startswith("duly"):
            raise
        raise MissingExtra(f"{scheme_of(url)}://", "redis") from exc
    return stream_notifier_at(url, opening.namespace)


def _check(store: str, parts: dict[str, str]) -> None:
    kinds = {"store": scheme_of(store)} | {name: scheme_of(url) for name, url in parts.items()}
    fits = {"store": STORES, "queue": _QUEUES, "coordinator": _COORDINATORS}
    if any(kind not in fits[name] for name, kind in kinds.items()):
        given = ", ".join(f"{name}={kind}://…" for name, kind in kinds.items())
        raise ConfigurationError(f"{given} cannot be combined: {_ALLOWED}")
