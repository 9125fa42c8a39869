"""Sealing: texts that callers carry for us, such as cursors, so that nobody else can read or make them.

The key is in the store, so that every process that serves it can open what another has sealed. A sealed text is
enciphered with a keystream that begins with its own authentication code, and opened only if that code fits: the same
text is always sealed alike, and nothing else is given away.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
from collections.abc import Awaitable, Callable

from duly.errors import BackendUnavailable
from duly.ports import Store

_KIND, _NAME = "secret", "cursors"
_KEY_BYTES = 32
_CODE_BYTES = 16
_RACES = 10
_READ_AGAIN = 1.0  # seconds: nobody shall make us ask the store with every wrong text


class Seal:
    """Seals and opens with one key. `purpose` tells texts apart that must not be taken for each other."""

    def __init__(self, key: bytes) -> None:
        self._code_key = hmac.digest(key, b"code", "sha256")
        self._stream_key = hmac.digest(key, b"stream", "sha256")

    def sealed(self, purpose: str, text: str) -> str:
        plain = text.encode()
        code = self._code(purpose, plain)
        return base64.urlsafe_b64encode(code + self._enciphered(code, plain)).decode().rstrip("=")

    def opened(self, purpose: str, given: str) -> str | None:
        """The text, None for what was not sealed with this key and for this purpose."""
        try:
            raw = base64.b64decode(given + "=" * (-len(given) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            return None
        code, hidden = raw[:_CODE_BYTES], raw[_CODE_BYTES:]
        plain = self._enciphered(code, hidden)
        if not hmac.compare_digest(code, self._code(purpose, plain)):
            return None
        return plain.decode()

    def _code(self, purpose: str, plain: bytes) -> bytes:
        return hmac.digest(self._code_key, purpose.encode() + b"\x00" + plain, "sha256")[:_CODE_BYTES]

    def _enciphered(self, code: bytes, text: bytes) -> bytes:
        blocks = range(-(-len(text) // 32))
        stream = b"".join(hmac.digest(self._stream_key, code + block.to_bytes(4), "sha256") for block in blocks)
        return bytes(sign ^ mask for sign, mask in zip(text, stream, strict=False))


class Seals:
    """The seal of a store. Its key is made by whoever needs it first, and read again where a text cannot be opened."""

    def __init__(self, store: Callable[[], Awaitable[Store]], monotonic: Callable[[], float]) -> None:
        self._store = store
        self._monotonic = monotonic
        self._seal: Seal | None = None
        self._read_at = 0.0

    async def sealed(self, purpose: str, text: str) -> str:
        return (self._seal or await self._read()).sealed(purpose, text)

    async def opened(self, purpose: str, given: str) -> str | None:
        seal = self._seal or await self._read()
        found = seal.opened(purpose, given)
        if found is None and self._monotonic() - self._read_at > _READ_AGAIN:
            found = (await self._read()).opened(purpose, given)
        return found

    async def _read(self) -> Seal:
        store = await self._store()
        for _ in range(_RACES):
            item = await store.get(_KIND, _NAME)
            if item is not None and len(item.value) == _KEY_BYTES:
                self._seal = Seal(item.value)
                self._read_at = self._monotonic()
                return self._seal
            key = secrets.token_bytes(_KEY_BYTES)
            await store.put(_KIND, _NAME, key, expect=0 if item is None else item.version)
        raise BackendUnavailable("the key of cursors is being changed by others all the time: try again")
