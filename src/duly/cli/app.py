"""Loads the user's program: finds the scheduler at `module:attribute`, or says what to write instead."""

from __future__ import annotations

import difflib
import importlib
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType, TracebackType

from duly.cli.text import lines
from duly.errors import ConfigurationError
from duly.scheduler import Scheduler

_FRAMES = 6


class BrokenApp(ConfigurationError):
    """The import of the user's module raised. `traceback` has the last lines of the traceback."""

    def __init__(self, message: str, trace: list[str]) -> None:
        super().__init__(message)
        self.traceback = trace


def load_app(app: str) -> Scheduler:
    """The scheduler that `app` names. The current folder is importable."""
    name, separator, attribute = app.partition(":")
    _check(app, name, attribute if separator else None)
    module = _import_from_here(name)
    return _attribute(module, attribute) if separator else _only_scheduler(module)


def load_hook(source: str, path: str) -> Callable[..., object]:
    """The function at `module:attribute`. `source` names the setting, for errors."""
    name, _, attribute = path.partition(":")
    found: object = _import_from_here(name)
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise ConfigurationError(f"{source}: there is no function {attribute!r} in module {name!r}")
    return found


def _import_from_here(name: str) -> ModuleType:
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, folder)
    return _import(name)


def _check(app: str, name: str, attribute: str | None) -> None:
    if name.endswith(".py") or "/" in name:
        module = name.removesuffix(".py").strip("./").replace("/", ".")
        raise ConfigurationError(f"{app!r} is a file: write its module, {module}{f':{attribute}' if attribute else ''}")
    if not all(part.isidentifier() for part in name.split(".")) or attribute == "":
        raise ConfigurationError(f"invalid program {app!r}: expected module:attribute, for example app:scheduler")


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as exc:
        if exc.name is not None and (name == exc.name or name.startswith(f"{exc.name}.")):
            where = f"looked in {Path.cwd()} and where Python finds packages"
            raise ConfigurationError(f"there is no module {exc.name!r}: {where}") from exc
        raise _broken(name, exc) from exc
    except Exception as exc:
        raise _broken(name, exc) from exc


def _broken(name: str, exc: Exception) -> BrokenApp:
    message = " ".join(str(exc).split())
    trace = traceback.format_exception(type(exc), exc, _user_frames(exc.__traceback__), limit=-_FRAMES, chain=False)
    return BrokenApp(f"importing {name!r} failed: {type(exc).__name__}: {message}", lines("".join(trace)))


def _user_frames(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of this module and of the import machinery; None for a syntax error."""
    while trace is not None and _is_import_machinery(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return trace


def _is_import_machinery(file: str) -> bool:
    return file in {__file__, importlib.__file__} or file.startswith("<frozen importlib")


def _attribute(module: ModuleType, path: str) -> Scheduler:
    found: object = module
    for part in path.split("."):
        if not hasattr(found, part):
            raise ConfigurationError(f"module {module.__name__!r} has no {path!r}: {_candidates(module, path)}")
        found = getattr(found, part)
    if not isinstance(found, Scheduler):
        kind = type(found).__name__
        raise ConfigurationError(f"{module.__name__}:{path} is a {kind}, not a Scheduler: {_candidates(module, path)}")
    return found


def _only_scheduler(module: ModuleType) -> Scheduler:
    found = _schedulers(module)
    distinct = {id(scheduler): scheduler for scheduler in found.values()}
    if len(distinct) == 1:
        return next(iter(distinct.values()))
    if not found:
        raise ConfigurationError(f"module {module.__name__!r} has no Scheduler: write scheduler = Scheduler() in it")
    choice = ", ".join(f"{module.__name__}:{name}" for name in sorted(found))
    raise ConfigurationError(f"module {module.__name__!r} has several schedulers: name one of {choice}")


def _schedulers(module: ModuleType) -> Mapping[str, Scheduler]:
    return {name: value for name, value in vars(module).items() if isinstance(value, Scheduler)}


def _candidates(module: ModuleType, wanted: str) -> str:
    """What to write instead: the module's schedulers, or similar names."""
    if schedulers := _schedulers(module):
        return f"write {' or '.join(f'{module.__name__}:{name}' for name in sorted(schedulers))}"
    near = difflib.get_close_matches(wanted, [name for name in vars(module) if not name.startswith("_")])
    similar = f"; similar names are {', '.join(near)}" if near else ""
    return f"it has no Scheduler at all{similar}"
