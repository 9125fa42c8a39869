"""The Redis backend."""

from duly.backends.redis.backend import RedisBackend, open_url

__all__ = ["RedisBackend", "open_url"]
