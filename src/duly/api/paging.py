"""Paging: a response is an array; the next page is in its headers, as a link and as a cursor.

A page may be shorter than asked for, even empty, and still have a next one: what the caller may not see, and what does
not match, is removed after the page was read. A cursor may name something that the caller may not see, so it is
encrypted.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from duly.api.problems import Problem
from duly.errors import BackendUnavailable
from duly.ports import Store

if TYPE_CHECKING:
    from duly.api.calls import Call

JOBS, RUNS = "jobs", "runs"  # the purposes of cursors

_KIND, _NAME = "secret", "cursors"
_KEY_BYTES = 32
_CODE_BYTES = 16
_RACES = 10
_READ_AGAIN = 1.0  # seconds: forged cursors must not cause a read of the store each


async def start_of(call: Call[Any, Any], purpose: str, given: str | None) -> str | None:
    """The store's cursor in a caller's cursor. A cursor that no earlier page has returned is refused."""
    if given is None:
        return None
    found = await call.context.cursor_keys.decrypt(purpose, given)
    if found is None:
        raise Problem(422, "invalid", "cursor: it does not come from an earlier page of this list", pointer="/cursor")
    return found


async def links(
    call: Call[Any, Any], purpose: str, query: Mapping[str, object], cursor: str | None
) -> tuple[tuple[bytes, bytes], ...]:
    """The headers that lead to the next page; none on the last page."""
    if cursor is None:
        return ()
    encrypted = await call.context.cursor_keys.encrypt(purpose, cursor)
    pairs = [(key, str(each)) for key, value in query.items() for each in _each(value)]
    target = f"{call.path}?{urlencode([*pairs, ('cursor', encrypted)])}"
    return ((b"link", f'<{target}>; rel="next"'.encode()), (b"x-next-cursor", encrypted.encode()))


def _each(value: object) -> list[object]:
    if value is None:
        return []
    return list(value) if isinstance(value, tuple | list) else [value]


class CursorCipher:
    """Encrypts and authenticates with one key. `purpose` separates cursors that must not be confused.

    The keystream starts from the authentication code: equal texts give equal cursors, and nothing else is revealed.
    """

    def __init__(self, key: bytes) -> None:
        self._code_key = hmac.digest(key, b"code", "sha256")
        self._stream_key = hmac.digest(key, b"stream", "sha256")

    def encrypt(self, purpose: str, text: str) -> str:
        plain = text.encode()
        code = self._code(purpose, plain)
        return base64.urlsafe_b64encode(code + self._xor(code, plain)).decode().rstrip("=")

    def decrypt(self, purpose: str, given: str) -> str | None:
        """The text; None if it was not encrypted with this key and for this purpose."""
        try:
            raw = base64.b64decode(given + "=" * (-len(given) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            return None
        code, encrypted = raw[:_CODE_BYTES], raw[_CODE_BYTES:]
        plain = self._xor(code, encrypted)
        return plain.decode() if hmac.compare_digest(code, self._code(purpose, plain)) else None

    def _code(self, purpose: str, plain: bytes) -> bytes:
        return hmac.digest(self._code_key, purpose.encode() + b"\x00" + plain, "sha256")[:_CODE_BYTES]

    def _xor(self, code: bytes, text: bytes) -> bytes:
        blocks = range(-(-len(text) // 32))
        stream = b"".join(hmac.digest(self._stream_key, code + block.to_bytes(4), "sha256") for block in blocks)
        return bytes(byte ^ mask for byte, mask in zip(text, stream, strict=False))


class CursorKeys:
    """The cipher with the key in the store, so that each process can decrypt the cursors of the others.

    The first process that needs the key creates it. It is read again when a cursor cannot be decrypted.
    """

    def __init__(self, store: Callable[[], Awaitable[Store]], monotonic: Callable[[], float]) -> None:
        self._store = store
        self._monotonic = monotonic
        self._cipher: CursorCipher | None = None
        self._read_at = 0.0

    async def encrypt(self, purpose: str, text: str) -> str:
        return (self._cipher or await self._read()).encrypt(purpose, text)

    async def decrypt(self, purpose: str, given: str) -> str | None:
        cipher = self._cipher or await self._read()
        found = cipher.decrypt(purpose, given)
        if found is None and self._monotonic() - self._read_at > _READ_AGAIN:
            found = (await self._read()).decrypt(purpose, given)
        return found

    async def _read(self) -> CursorCipher:
        store = await self._store()
        for _ in range(_RACES):
            item = await store.get(_KIND, _NAME)
            if item is not None and len(item.value) == _KEY_BYTES:
                self._cipher = CursorCipher(item.value)
                self._read_at = self._monotonic()
                return self._cipher
            key = secrets.token_bytes(_KEY_BYTES)
            await store.put(_KIND, _NAME, key, expect=0 if item is None else item.version)
        raise BackendUnavailable("the key of cursors keeps changing: try again")
