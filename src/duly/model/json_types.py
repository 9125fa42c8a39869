"""Types that JSON values are made from and turned into, beyond those that msgspec knows: paths and pydantic models.

Pydantic models are recognised by their methods, so the package need not be installed.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Any


def to_builtins(value: Any) -> Any:
    """A value as something that JSON has. Raises TypeError for a type that JSON cannot carry."""
    if isinstance(value, PurePath):
        return str(value)
    dump = getattr(value, "model_dump", None)
    if dump is None or isinstance(value, type):
        raise TypeError(f"{type(value).__qualname__} cannot be turned into JSON")
    return dump(mode="json")


def from_builtins(kind: Any, value: Any) -> Any:
    """A value of the annotated type. Raises NotImplementedError for a type that JSON cannot carry.

    Other errors mean that the type is fine and the value is not: msgspec adds the place of the value to them.
    """
    if isinstance(kind, type) and issubclass(kind, PurePath):
        return kind(_text(kind, value))
    validate = getattr(kind, "model_validate", None)
    if validate is None:
        raise NotImplementedError(f"{getattr(kind, '__qualname__', kind)} cannot be made from JSON")
    return validate(value)


def _text(kind: type, value: Any) -> Any:
    if isinstance(value, str | PurePath):
        return value
    raise TypeError(f"Expected `{kind.__qualname__}`, got `{type(value).__qualname__}`")
