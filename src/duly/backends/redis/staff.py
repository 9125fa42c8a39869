"""Which handlers a node has, told to the server once instead of with every claim.

A few names travel with the claim. Many are kept on the server as a set named by their digest, for a day; a claim that
names an unknown set is answered with nothing, and the set is told.
"""

from __future__ import annotations

from collections.abc import Collection

from duly.backends.redis.client import RedisClient
from duly.backends.redis.codec import encode
from duly.backends.staff import Staff, digest_of

_FEW = 32


class RedisStaff:
    """Tells the server of one session which handlers its node has."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._staff = Staff(_words_of)

    def words(self, handlers: Collection[str] | None) -> tuple[bytes, bytes]:
        """Two arguments of `claim`: the names themselves, or what their set is called; nothing means all."""
        return self._staff.of(handlers)

    async def tell(self, handlers: Collection[str]) -> None:
        """Make the set of these names known."""
        _, name = self.words(handlers)
        await self._client.call("staff", name, encode(sorted(handlers)))


def _words_of(handlers: Collection[str] | None) -> tuple[bytes, bytes]:
    if handlers is None:
        return b"", b""
    if len(handlers) <= _FEW:
        return encode(list(handlers)), b""
    return b"", digest_of(handlers).encode()
