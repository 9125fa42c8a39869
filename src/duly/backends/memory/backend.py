"""The memory backend: the readable reference, and what tests and simulations run on. Nothing survives the process."""

from __future__ import annotations

from typing import Self
from weakref import WeakValueDictionary

from duly.backends.marks import refused
from duly.backends.memory.contents import Contents
from duly.backends.memory.coordinator import MemoryCoordinator
from duly.backends.memory.queue import MemoryQueue
from duly.backends.memory.store import MemoryStore
from duly.errors import ConfigurationError
from duly.ports import Capabilities, Coordinator, Finding, Opening, Queue, Severity, Store
from duly.rules.redaction import redacted

CAPABILITIES = Capabilities(
    durable=False,
    durable_start=False,
    shared=False,
    transactions=False,
    push=True,
    threads=False,
    reads_ahead=True,
)

_SCHEME = "memory://"
_named: WeakValueDictionary[tuple[str, str], Contents] = WeakValueDictionary()


class MemoryBackend:
    """One session on a memory store. Sessions of one store see the same contents."""

    capabilities = CAPABILITIES
    store: Store
    queue: Queue
    coordinator: Coordinator

    def __init__(self, contents: Contents, url: str = _SCHEME, *, migrates: bool = True) -> None:
        self.url = url
        self._migrates = migrates
        self.contents = contents
        self.clock = contents.clock
        self.store = MemoryStore(contents)
        self.queue = MemoryQueue(contents)
        self.coordinator = MemoryCoordinator(contents)

    async def open(self) -> None:
        if self._migrates and self.contents.mark is not None:
            raise refused(self.contents.mark, self.url)

    async def close(self) -> None:
        """Nothing to close."""

    def session(self, timeout: float | None = None) -> Self:  # no call takes any time
        return type(self)(self.contents, self.url, migrates=self._migrates)

    async def refresh(self) -> Capabilities:
        return self.capabilities

    async def examine(self) -> list[Finding]:
        return [Finding(Severity.WARNING, "durability", "memory:// forgets everything when the process ends")]

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        return None


def open_url(url: str, opening: Opening) -> MemoryBackend:
    """`memory://` is a separate store; `memory://name` is shared by all who open that name in this process."""
    name = url.removeprefix(_SCHEME)
    if not url.startswith(_SCHEME) or "/" in name:
        raise ConfigurationError(f"{redacted(url)!r} is not a memory URL: memory:// or memory://name")
    if not name:
        return MemoryBackend(Contents(opening.clock), url, migrates=opening.migrates)
    contents = _named.get((name, opening.namespace))
    if contents is None:
        contents = _named[name, opening.namespace] = Contents(opening.clock)
    return MemoryBackend(contents, url, migrates=opening.migrates)
