"""Paging: the answer is an array; how it goes on is said in headers, as a link and as a cursor.

A page may be shorter than asked for, even empty, and still have a next one: what a caller may not see, and what a
filter leaves out, is taken from it after it was read.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping
from urllib.parse import urlencode

from duly.api.problems import Problem


def wrapped(cursor: str) -> str:
    """A store's cursor as callers see it: opaque, and known again."""
    plain = cursor.encode()
    return base64.urlsafe_b64encode(zlib.crc32(plain).to_bytes(4) + plain).decode().rstrip("=")


def unwrapped(given: str | None) -> str | None:
    """The store's cursor in it; what was not given out by an earlier page is refused."""
    if given is None:
        return None
    try:
        raw = base64.urlsafe_b64decode(given + "=" * (-len(given) % 4))
        check, plain = raw[:4], raw[4:]
        if len(check) == 4 and zlib.crc32(plain).to_bytes(4) == check:
            return plain.decode()
    except (binascii.Error, ValueError):
        pass
    raise Problem(422, "invalid", f"cursor={given!r} is none: take it from the page before")


def links(path: str, query: Mapping[str, object], cursor: str | None) -> tuple[tuple[bytes, bytes], ...]:
    """The headers of a page that goes on; none for the last one."""
    if cursor is None:
        return ()
    opaque = wrapped(cursor)
    pairs = [(key, str(each)) for key, value in query.items() for each in _each(value)]
    target = f"{path}?{urlencode([*pairs, ('cursor', opaque)])}"
    return ((b"link", f'<{target}>; rel="next"'.encode()), (b"x-next-cursor", opaque.encode()))


def _each(value: object) -> list[object]:
    if value is None:
        return []
    return list(value) if isinstance(value, tuple | list) else [value]
