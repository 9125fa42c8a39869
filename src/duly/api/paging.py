"""Paging: the answer is an array; how it goes on is said in headers, as a link and as a cursor.

A page may be shorter than asked for, even empty, and still have a next one: what a caller may not see, and what a
filter leaves out, is taken from it after it was read. A cursor may stand for such a thing, so it is sealed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from duly.api.calls import Call
from duly.api.problems import Problem

JOBS, RUNS = "jobs", "runs"  # what a cursor goes through


async def start_of(call: Call[Any, Any], what: str, given: str | None) -> str | None:
    """The store's cursor in a caller's; one that no earlier page has given out is refused."""
    if given is None:
        return None
    found = await call.context.seals.opened(what, given)
    if found is None:
        raise Problem(422, "invalid", "cursor: it is not one of an earlier page of this list", pointer="/cursor")
    return found


async def links(
    call: Call[Any, Any], what: str, query: Mapping[str, object], cursor: str | None
) -> tuple[tuple[bytes, bytes], ...]:
    """The headers of a page that goes on; none for the last one."""
    if cursor is None:
        return ()
    opaque = await call.context.seals.sealed(what, cursor)
    pairs = [(key, str(each)) for key, value in query.items() for each in _each(value)]
    target = f"{call.path}?{urlencode([*pairs, ('cursor', opaque)])}"
    return ((b"link", f'<{target}>; rel="next"'.encode()), (b"x-next-cursor", opaque.encode()))


def _each(value: object) -> list[object]:
    if value is None:
        return []
    return list(value) if isinstance(value, tuple | list) else [value]
