"""The memory backend is the reference: it passes the whole conformance suite."""

from duly.backends.memory import MemoryBackend, open_url
from duly.ports import Opening
from duly.testing.conformance import BackendSuite


class TestMemory(BackendSuite):
    def backend(self) -> MemoryBackend:
        return open_url("memory://", Opening())
