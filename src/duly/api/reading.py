"""Reads the head and the body of a request, and reports errors in them as problems.

A request that does not arrive completely is not executed: `Disconnected` ends it (see `exchange`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextvars import copy_context
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from duly.api.calls import JSON
from duly.api.exchange import Exchange, too_large
from duly.api.json_input import converted, read
from duly.api.problems import Problem
from duly.api.threads import RequestThreads

if TYPE_CHECKING:
    from duly.api.routes import Body

_LARGE = 65_536  # bytes: larger bodies are parsed in a thread
_NUMBERS = frozenset({"limit", "after", "scan", "min_attempt", "attempt"})
_BARE_FLAG = re.compile(r"(?<![^&])follow(?![^&])")  # `?follow` means `?follow=true`
_DECIMALS = frozenset({"min_seconds", "min_late"})
_REPEATABLE = frozenset({"status", "kind", "where"})
_REPEATABLE_PREFIX = "not_"
_DIGITS = re.compile(r"[0-9]{1,18}")
_DECIMAL = re.compile(r"[0-9]{1,12}(\.[0-9]{1,6})?")
# These headers must not be repeated: a proxy in front of us may have used the other value.
_ONCE = (b"authorization", b"host", b"content-type", b"content-length", b"if-match", b"if-none-match", b"last-event-id")


def headers_of(pairs: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """The headers of a request by name."""
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        for name in _ONCE:
            if names.count(name) > 1:
                raise Problem(400, "malformed", f"duplicate header {name.decode()}")
    return found


def query_of(kind: type[Any], raw: bytes) -> Any:
    """A query string as its struct: `status`, `kind`, `where` and `not_…` may be repeated, others may not.

    msgspec's lax conversion is not used: it reads the text "null" as None, which would silently drop a filter.
    """
    found: dict[str, Any] = {}
    try:
        pairs = parse_qsl(
            _BARE_FLAG.sub("follow=true", raw.decode("ascii")),
            keep_blank_values=True,
            strict_parsing=bool(raw),
            errors="strict",
        )
    except ValueError as exc:
        raise Problem(400, "malformed", f"the query cannot be read: {exc}") from exc
    for key, value in pairs:
        if "\x00" in key or "\x00" in value:
            raise Problem(400, "malformed", "the query contains the character NUL")
        if key in _REPEATABLE or key.startswith(_REPEATABLE_PREFIX):
            found.setdefault(key, []).append(value)
        elif key in found:
            raise Problem(422, "invalid", f"duplicate parameter {key}", pointer=f"/{key}")
        else:
            found[key] = _number(key, value)
    return converted(found, kind)


def _number(key: str, value: str) -> str | int | float:
    """The value as a number if the parameter is one; a text that is not a number is left for the check of types."""
    if key in _NUMBERS and _DIGITS.fullmatch(value):
        return int(value)
    return float(value) if key in _DECIMALS and _DECIMAL.fullmatch(value) else value


async def body_of(
    body: Body, headers: Mapping[bytes, bytes], exchange: Exchange, most: int, threads: RequestThreads
) -> Any:
    """The body of a request as the handler of its route gets it."""
    raw = await bytes_of(headers, exchange, most)
    if not raw and not body.required:
        return body.read({})
    if headers.get(b"content-type") != JSON:
        _require_json(headers.get(b"content-type", b""))
    if len(raw) <= _LARGE:
        return body.read(read(raw))
    context = copy_context()  # with the clock of the store, for times in words
    return await threads.run(lambda: context.run(lambda: body.read(read(raw))))


def _require_json(given: bytes) -> None:
    content_type = given.partition(b";")[0].strip().lower()
    if content_type != JSON:
        shown = content_type.decode("latin-1") or "missing"
        raise Problem(415, "unsupported-media-type", f"Content-Type is {shown}: expected application/json")


async def bytes_of(headers: Mapping[bytes, bytes], exchange: Exchange, most: int) -> bytes:
    """The complete body, which may be empty; raises a `Problem` if it is too large."""
    announced = headers.get(b"content-length", b"")
    if announced.isdigit() and int(announced[:20]) > most:
        raise too_large(most)
    return await exchange.body(most)


async def wait_for_end(headers: Mapping[bytes, bytes], exchange: Exchange, most: int) -> None:
    """Wait until a request without a body of its own is complete: one that was cut off must not be executed."""
    if b"content-length" in headers or b"transfer-encoding" in headers:
        await bytes_of(headers, exchange, most)
