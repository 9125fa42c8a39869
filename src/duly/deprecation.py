"""Old names that keep working for one release. Every use gives a `DeprecationWarning` that names the new one."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any


def renamed_names(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a module in which names were replaced: each old name with the new `module.name`."""

    def lookup(old: str) -> Any:
        if old not in names:
            raise AttributeError(f"module {module!r} has no attribute {old!r}")
        home, _, name = names[old].rpartition(".")
        warn_deprecated(f"{module}.{old} is deprecated: use {names[old]}")
        return getattr(importlib.import_module(home), name)

    return lookup


def renamed_attribute(old: str, new: str) -> Any:
    """A property for the old name of an attribute."""

    def read(instance: object) -> Any:
        warn_deprecated(f"{type(instance).__name__}.{old} is deprecated: use {new}")
        return getattr(instance, new)

    return property(read)


def warn_deprecated(message: str) -> None:
    """Warn the caller of the function that calls this one."""
    warnings.warn(message, DeprecationWarning, stacklevel=3)
