"""Reading: the head and the body of a request as values, with all that is wrong with them as problems.

A request that does not arrive whole is no request: `Gone` ends it, and nothing of it is executed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from duly.api.calls import JSON
from duly.api.computing import Computing
from duly.api.json_input import read, shaped
from duly.api.problems import Problem
from duly.api.streaming import Receive

if TYPE_CHECKING:
    from duly.api.routes import Body

_LARGE = 65_536  # bytes: what is larger is read beside the event loop
_NUMBERS = frozenset({"limit", "after"})
_REPEATABLE = frozenset({"status", "kind"})
_DIGITS = re.compile(r"[0-9]{1,18}")
# What decides who calls and what is done must be said once: a proxy before us may have looked at the other one.
_ONCE = (b"authorization", b"host", b"content-type", b"content-length", b"if-match", b"if-none-match", b"last-event-id")


class Gone(Exception):
    """The caller went away before the request had arrived."""


def headers_of(pairs: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """The headers of a request by name."""
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        for name in _ONCE:
            if names.count(name) > 1:
                raise Problem(400, "malformed", f"the header {name.decode()} is there twice")
    return found


def query_of(kind: type[Any], raw: bytes) -> Any:
    """A query string as its struct: `status` and `kind` may be given several times, others once; numbers are digits.

    Not msgspec's lax conversion: it takes the text "null" for nothing, and would drop a filter silently.
    """
    found: dict[str, Any] = {}
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, strict_parsing=bool(raw), errors="strict")
    except ValueError as exc:
        raise Problem(400, "malformed", f"the query cannot be read: {exc}") from exc
    for key, value in pairs:
        if "\x00" in key or "\x00" in value:
            raise Problem(400, "malformed", "the query holds the character NUL, which is not accepted")
        if key in _REPEATABLE:
            found.setdefault(key, []).append(value)
        elif key in found:
            raise Problem(422, "invalid", f"{key} is given twice", pointer=f"/{key}")
        else:
            found[key] = int(value) if key in _NUMBERS and _DIGITS.fullmatch(value) else value
    return shaped(found, kind)


async def document_of(
    body: Body, headers: Mapping[bytes, bytes], receive: Receive, most: int, computing: Computing
) -> Any:
    """The body of a request as its route's handler takes it."""
    raw = await bytes_of(headers, receive, most)
    if not raw and not body.required:
        return body.read({})
    content_type = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if content_type != JSON:
        said = content_type.decode("latin-1") or "nothing"
        raise Problem(415, "unsupported-media-type", f"Content-Type is {said}: application/json is needed")
    if len(raw) <= _LARGE:
        return body.read(read(raw))
    return await computing.run(lambda: body.read(read(raw)))


async def bytes_of(headers: Mapping[bytes, bytes], receive: Receive, most: int) -> bytes:
    """The whole body, which may be empty; a `Problem` if it is too large."""
    announced = headers.get(b"content-length", b"")
    if announced.isdigit() and int(announced[:20]) > most:
        raise _too_large(most)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > most:
            raise _too_large(most)
        parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


async def arrived(headers: Mapping[bytes, bytes], receive: Receive, most: int) -> None:
    """Return when a request whose body does not matter has arrived: what was cut off may not be what was meant."""
    if b"content-length" in headers or b"transfer-encoding" in headers:
        await bytes_of(headers, receive, most)


def _too_large(most: int) -> Problem:
    detail = f"the body is larger than {most} bytes: submit in several calls, or send a reference to the data"
    return Problem(413, "too-large", detail, headers=((b"connection", b"close"),))
