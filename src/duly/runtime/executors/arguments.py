"""Binding: from a payload to a function's arguments, and from its value to a result, in a child interpreter.

The worker has checked the payload; here it is only rebuilt by the function's own annotations. `ProcessExecutor` accepts
the names of other functions; these support the types that msgspec supports, paths, and pydantic models.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, get_type_hints

import msgspec

from duly.model.json_types import from_builtins, to_builtins


def bind(function: Callable[..., Any], payload: bytes) -> dict[str, Any]:
    """Decode a payload into keyword arguments. Raises `msgspec.ValidationError` if it does not fit."""
    kinds, others = _annotations(function)
    values = msgspec.json.decode(payload, type=dict[str, msgspec.Raw])
    return {
        name: msgspec.json.decode(raw, type=kinds.get(name, others), dec_hook=from_builtins)
        for name, raw in values.items()
    }


def encode(value: Any) -> bytes:
    """A value as JSON. Raises TypeError or ValueError for what JSON cannot represent, such as NaN and infinity."""
    encoded = msgspec.json.encode(value, enc_hook=to_builtins)
    if b"null" in encoded and not _finite(msgspec.to_builtins(value, enc_hook=to_builtins, str_keys=True)):
        raise ValueError("NaN and infinity are not valid in JSON")  # msgspec would encode them as null
    return encoded


@lru_cache
def _annotations(function: Callable[..., Any]) -> tuple[dict[str, Any], Any]:
    """The types of the named parameters, and the one of `**kwargs`."""
    hints = get_type_hints(function, include_extras=True)
    parameters = inspect.signature(function).parameters.values()
    others = next((each.name for each in parameters if each.kind is each.VAR_KEYWORD), "")
    named = {each.name: hints.get(each.name, Any) for each in parameters if each.name != others}
    return named, hints.get(others, Any)


def _finite(value: Any) -> bool:
    match value:
        case float():
            return math.isfinite(value)
        case dict():
            return all(_finite(each) for each in value.values())
        case list() | tuple():
            return all(_finite(each) for each in value)
    return True
