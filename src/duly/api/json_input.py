"""Reads JSON from callers, and limits its size and shape.

Refused is what other parsers could read differently or fail on: NaN and infinities, duplicate keys, lone surrogates,
NUL characters, nesting deeper than 32, numbers with more than 400 digits, more than 100,000 values. The number of bytes
is checked earlier. All checks take linear time.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import cache
from typing import Any, NoReturn, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import Struct

from duly.api.problems import Problem
from duly.errors import ConfigurationError
from duly.rules.suggestions import did_you_mean
from duly.rules.time_words import read_time
from duly.scheduler.signature import UNKNOWN_FIELD

MAX_DEPTH = 32
MAX_VALUES = 100_000
MAX_DIGITS = 400  # the largest double has 309 digits before its point

_ESCAPES = b"\\u"
_LONG = re.compile(rb"[0-9.eE+-]{%d}" % (MAX_DIGITS + 1))
_STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_CONTAINERS = (dict, list)
_decode = msgspec.json.Decoder().decode
_PATH = re.compile(r" - at `(?:key in )?\$(?P<path>[^`]*)`$")
_STEP = re.compile(r"\.(?P<name>[^.\[]+)|\[(?P<index>\d+|\.\.\.)\]")

T = TypeVar("T")

# The store's clock, from which times in words are counted; a call sets it before its query and body are read.
store_now: ContextVar[Callable[[], datetime]] = ContextVar("store_now")


def read(body: bytes) -> Any:
    """The JSON value of a body; raises a `Problem` that says what is wrong with it.

    msgspec reads it several times faster than the standard library. What it refuses, and what has duplicate keys, of
    which it keeps the last, is read again by the standard library, which can say what is wrong and where.
    """
    _refuse_shape(body)
    if len(body) > MAX_DIGITS and _LONG.search(body):
        return read_strictly(body)
    try:
        value = _decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return read_strictly(body)
    if _has_duplicate_keys(body, value):
        return read_strictly(body)
    if _ESCAPES in body:
        _refuse_bad_text(value)
    return value


def _has_duplicate_keys(body: bytes, value: Any) -> bool:
    """Whether the document has more keys than its value: each key has one colon outside of strings."""
    keys = _count_keys(value)
    return body.count(b":") != keys and _STRINGS.sub(b"", body).count(b":") != keys


def _count_keys(value: Any) -> int:
    if type(value) is dict:
        return len(value) + sum(_count_keys(each) for each in value.values() if type(each) in _CONTAINERS)
    return sum(_count_keys(each) for each in value if type(each) in _CONTAINERS) if type(value) is list else 0


def read_strictly(body: bytes) -> Any:
    """The same, several times slower, by the standard library."""
    try:
        value = _strict_decoder.decode(body.decode())
    except UnicodeDecodeError as exc:
        raise _malformed(f"it is not UTF-8 (byte {exc.start})") from exc
    except json.JSONDecodeError as exc:
        raise _malformed(f"{exc.msg} (line {exc.lineno}, column {exc.colno})") from exc
    except (ValueError, RecursionError) as exc:
        raise _malformed(str(exc)) from exc
    if _ESCAPES in body:
        _refuse_bad_text(value)
    return value


def converted(value: Any, kind: type[T], pointer: str = "") -> T:
    """The value as this type; raises a `Problem` that points to the wrong field.

    Times may be written in words, such as "10 minutes ago" (`rules.time_words`), with a time zone if they need one.
    """
    try:
        found = _converted(value, kind)
    except msgspec.ValidationError as exc:
        text = str(exc)
        where = _PATH.search(text)
        plain = text if where is None else text[: where.start()]
        path = "" if where is None else _pointer(where["path"])
        raise _invalid(plain + _hint(plain, path, kind), pointer + path) from exc
    _refuse_out_of_range(found, pointer)
    return found


def _converted(value: Any, kind: type[T]) -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:  # most times are not words: only then are they looked for
        plain = _without_words(value, kind)
        if plain is value:
            raise
        return msgspec.convert(plain, kind)


def _without_words(value: Any, kind: Any) -> Any:
    """The value with times instead of words; the same object if it has none that can be read."""
    if not isinstance(value, dict):
        return value
    hints = get_type_hints(kind, include_extras=False) if _is_struct(kind) else {}
    changed = {}
    for name in set(hints) & set(value):
        given, hint = value[name], hints[name]
        found = _time_in(given) if isinstance(given, str) and _may_be_time(hint) else given
        for inner in filter(_is_struct, get_args(hint)):
            found = _without_words(found, inner)
        if found is not given:
            changed[name] = found
    return {**value, **changed} if changed else value


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _time_in(text: str) -> Any:
    """The time that words mean, or the text itself."""
    clock = store_now.get(None)
    try:
        words = read_time(text)
        return text if clock is None or not words.zoned else words.resolve(clock(), "UTC")
    except ConfigurationError:
        return text


def _hint(problem: str, path: str, kind: Any) -> str:
    """The field that was meant, if an outermost field is unknown."""
    unknown = UNKNOWN_FIELD.fullmatch(problem)
    known = () if path else getattr(kind, "__struct_fields__", ())
    return "" if unknown is None else did_you_mean(unknown[1], known)


def _refuse_out_of_range(value: Any, pointer: str) -> None:
    """Times must exist in UTC: an offset can move them beyond the first or last year."""
    if isinstance(value, datetime):
        try:
            value.astimezone(UTC)
        except OverflowError as exc:
            raise _invalid("this time is outside of the years 1 to 9999", pointer) from exc
    elif isinstance(value, Struct):
        for name in _time_fields(type(value)):
            _refuse_out_of_range(getattr(value, name), f"{pointer}/{name}")


@cache
def _time_fields(kind: type[Struct]) -> tuple[str, ...]:
    """The fields of a struct that may hold a time, or a struct with one."""
    hints = get_type_hints(kind, include_extras=False)
    return tuple(name for name in kind.__struct_fields__ if _may_be_time(hints[name]))


def _may_be_time(hint: Any) -> bool:
    if isinstance(hint, type) and issubclass(hint, Struct):
        return bool(_time_fields(hint))
    return hint is datetime or any(_may_be_time(each) for each in get_args(hint))


def _invalid(detail: str, pointer: str) -> Problem:
    return Problem(422, "invalid", f"{detail} (at {pointer})" if pointer else detail, pointer=pointer)


def _pointer(path: str) -> str:
    """A path in the notation of msgspec as a JSON pointer."""
    return "".join(f"/{step['name'] or step['index']}" for step in _STEP.finditer(path))


def _malformed(why: str) -> Problem:
    return Problem(400, "malformed", f"the body is not valid JSON: {why}")


def _refuse_shape(body: bytes) -> None:
    """Limit the depth and the number of values by counting brackets and commas outside of strings.

    Most documents are so small that counting them including strings suffices.
    """
    opened = body.count(b"[") + body.count(b"{")
    if opened <= MAX_DEPTH and body.count(b",") < MAX_VALUES:
        return
    bare = _STRINGS.sub(b"", body)
    if bare.count(b",") + bare.count(b"[") + bare.count(b"{") > MAX_VALUES:
        raise _malformed(f"it has more than {MAX_VALUES} values")
    depth = 0
    for bracket in _BRACKETS.finditer(bare):
        if bracket[0] in b"[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise _malformed(f"it is nested deeper than {MAX_DEPTH}")
        else:
            depth -= 1


_BRACKETS = re.compile(rb"[\[\]{}]")


def _refuse_bad_text(value: Any) -> None:
    match value:
        case str():
            if "\x00" in value:
                raise _malformed("a string contains the character NUL (\\u0000)")
            try:
                value.encode()
            except UnicodeEncodeError as exc:
                raise _malformed(
                    f"a string contains half of a surrogate pair (\\u{ord(value[exc.start]):04x})"
                ) from exc
        case list():
            for item in value:
                _refuse_bad_text(item)
        case dict():
            for key, item in value.items():
                _refuse_bad_text(key)
                _refuse_bad_text(item)
        case _:
            pass


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"duplicate key {twice!r}")
    return found


def _finite(text: str) -> float:
    number = float(_checked_length(text))
    if not math.isfinite(number):
        raise ValueError(f"the number {text} is too large")
    return number


def _integer(text: str) -> int:
    return int(_checked_length(text))


def _checked_length(text: str) -> str:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a number has more than {MAX_DIGITS} digits")
    return text


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number")


_strict_decoder = json.JSONDecoder(
    object_pairs_hook=_distinct, parse_float=_finite, parse_int=_integer, parse_constant=_no_constant
)
