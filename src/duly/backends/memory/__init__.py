"""The memory backend."""

from duly.backends.memory.backend import MemoryBackend, open_url

__all__ = ["MemoryBackend", "open_url"]
