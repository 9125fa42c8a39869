"""Documents: JSON as it is read from callers.

Refused is what another reader could take differently or choke on: NaN and infinities, duplicate keys, lone surrogates,
NUL characters, nesting deeper than 32. Sizes are checked before anything is read.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn, TypeVar

import msgspec

from duly.api.problems import Problem

MAX_DEPTH = 32

_ESCAPES = b"\\u"
_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_PATH = re.compile(r" - at `(?:key in )?\$(?P<path>[^`]*)`$")
_STEP = re.compile(r"\.(?P<name>[^.\[]+)|\[(?P<index>\d+|\.\.\.)\]")

T = TypeVar("T")


def read(body: bytes) -> Any:
    """The document in a body; raises a `Problem` that says what is wrong with it."""
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH:
        _refuse_deep(body)
    try:
        value = _decoder.decode(body.decode())
    except UnicodeDecodeError as exc:
        raise _malformed(f"it is not UTF-8 (byte {exc.start})") from exc
    except json.JSONDecodeError as exc:
        raise _malformed(f"{exc.msg} (line {exc.lineno}, column {exc.colno})") from exc
    except (ValueError, RecursionError) as exc:
        raise _malformed(str(exc)) from exc
    if _ESCAPES in body:
        _refuse_odd_text(value)
    return value


def shaped(value: Any, kind: type[T], pointer: str = "") -> T:
    """The value as this type; raises a `Problem` that points at the field which does not fit."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as exc:
        text = str(exc)
        where = _PATH.search(text)
        plain = text if where is None else text[: where.start()]
        path = "" if where is None else _pointer(where["path"])
        raise Problem(422, "invalid", f"{plain}{_place(pointer + path)}", pointer=pointer + path) from exc


def _place(pointer: str) -> str:
    return f" (at {pointer})" if pointer else ""


def _pointer(path: str) -> str:
    """A path as msgspec writes it, as a JSON pointer."""
    return "".join(f"/{step['name'] or step['index']}" for step in _STEP.finditer(path))


def _malformed(why: str) -> Problem:
    return Problem(400, "malformed", f"the body is not JSON that is accepted here: {why}")


def _refuse_deep(body: bytes) -> None:
    """Brackets outside of strings tell the depth without reading the document."""
    depth = 0
    for sign in _STRINGS.sub(b"", body):
        if sign in b"[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise _malformed(f"it is nested deeper than {MAX_DEPTH}")
        elif sign in b"]}":
            depth -= 1


def _refuse_odd_text(value: Any) -> None:
    match value:
        case str():
            if "\x00" in value:
                raise _malformed("a string holds the character NUL (\\u0000)")
            try:
                value.encode()
            except UnicodeEncodeError as exc:
                raise _malformed(f"a string holds half of a surrogate pair (\\u{ord(value[exc.start]):04x})") from exc
        case list():
            for item in value:
                _refuse_odd_text(item)
        case dict():
            for key, item in value.items():
                _refuse_odd_text(key)
                _refuse_odd_text(item)
        case _:
            pass


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} is there twice")
    return found


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large a number")
    return number


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number that JSON has")


_decoder = json.JSONDecoder(object_pairs_hook=_distinct, parse_float=_finite, parse_constant=_no_constant)
