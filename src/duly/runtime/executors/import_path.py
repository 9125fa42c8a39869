"""Targets: how a child interpreter finds a handler again that the worker has registered.

By module and qualified name, never by pickling. Code in the main script is loaded a second time under another name, so
that the code under `if __name__ == "__main__":` does not run. A target always comes from the worker's own registry,
never from a run.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from msgspec import Struct

MAIN = "__main__"
_MAIN_COPY = "__duly_main__"
_loading = False


class Target(Struct, frozen=True):
    """Where a function is: a module to import, or a script to load, and the names that lead to it.

    `main`: the worker knows the module as `__main__`.
    """

    module: str
    qualname: str
    script: str | None = None
    main: bool = False


def importable(target: object) -> str | None:
    """Why a child interpreter could not find this callable again; None if it can.

    Checks only names, so that it can be called while the module that defines the function is still being loaded.
    """
    module, qualname = _names(target)
    if not module or not qualname:
        return f"{target!r} has no name to import it by: use a plain function"
    if inspect.ismethod(target) and not isinstance(target.__self__, type):
        return f"{module}:{qualname} is bound to an object that a child would not have: use a plain function"
    if "<lambda>" in qualname:
        return f"{module}:{qualname} is a lambda: give it a name with def"
    if "<locals>" in qualname:
        return f"{module}:{qualname} is defined inside a function: move it to the module's top level"
    if module == MAIN and is_interactive():
        return f"{qualname} is defined in an interactive session: move it into a file"
    return None


def locate(target: Callable[..., Any]) -> Target:
    """The target of a registered function. Raises LookupError if there is none, or if it names another object."""
    if (reason := importable(target)) is not None:
        raise LookupError(reason)
    module, qualname = _names(target)
    found = _walk(sys.modules.get(module), qualname)
    if found is not target and found != target:  # bound class methods are equal, never the same
        raise LookupError(f"{module}:{qualname} is not the registered function but {found!r}")
    if module != MAIN:
        return Target(module, qualname)
    name, script = _main_place() or (MAIN, None)
    return Target(name, qualname, script, main=True)


@cache
def resolve(target: Target) -> Callable[..., Any]:
    """In the child: the function itself. Imports its module; raises what that raises, or TypeError."""
    module = importlib.import_module(target.module) if target.script is None else _load_main(target.script)
    found = _walk(module, target.qualname)
    if not callable(found):
        raise TypeError(f"{target.module}:{target.qualname} is {found!r} in this process, not a function")
    return found  # type: ignore[no-any-return]  # whatever it is, it can be called


def load(reference: str) -> Callable[..., Any]:
    """The function named by `module:name` in the worker's own configuration."""
    module, _, qualname = reference.partition(":")
    return resolve(Target(module, qualname))


def loading_main() -> bool:
    """Whether this process is a child that is currently loading the main script.

    Nothing may be started meanwhile: a script without the guard would start a scheduler in every child.
    """
    return _loading


def is_interactive() -> bool:
    """Whether the main module is typed in, so that there is no file to load it from again."""
    return _main_place() is None


def _names(target: object) -> tuple[str, str]:
    return getattr(target, "__module__", None) or "", getattr(target, "__qualname__", None) or ""


def _main_place() -> tuple[str, str | None] | None:
    """Where the main module can be loaded from again: (module, None) after `python -m`, or (a name, script)."""
    main = sys.modules[MAIN]
    spec = main.__spec__
    if spec is not None and spec.name != MAIN:
        return spec.name, None
    script = getattr(main, "__file__", None)
    return (_MAIN_COPY, str(Path(script).absolute())) if script and Path(script).is_file() else None


def _walk(module: ModuleType | None, qualname: str) -> Any:
    """The object of that name; if it wraps a handler, as `@scheduler.job` leaves it behind, the function inside."""
    found: Any = module
    for name in qualname.split("."):
        found = getattr(found, name, None)
    return getattr(found, "function", found)


def _load_main(script: str) -> ModuleType:
    """Run the main script under another name, once."""
    global _loading
    if _MAIN_COPY in sys.modules:
        return sys.modules[_MAIN_COPY]
    spec = importlib.util.spec_from_file_location(_MAIN_COPY, script)
    if spec is None or spec.loader is None:
        raise LookupError(f"{script} cannot be loaded as a Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[_MAIN_COPY] = module
    _loading = True
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[_MAIN_COPY]
        raise
    finally:
        _loading = False
    sys.modules[MAIN] = module  # for libraries that look at the main module, multiprocessing among them
    return module
