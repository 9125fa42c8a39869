"""The Lua scripts: one file per verb, assembled once from the library files that it names.

A file may begin with directives. `--! use clock notify` puts `lib/clock.lua` and `lib/notify.lua` before it, each once,
with the files that these use before them. `--! lazy waiting` defines the functions of that file, and of those it uses,
when `lazy()` is first called, which returns them as a table: defining a function costs half a microsecond per call of
the script, and the hot path needs few. `--! const NAME value`, anywhere, replaces the name by the value in the whole
script. The server knows a script by the SHA-1 of its text.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import takewhile

from msgspec import Struct

_USE = "--! use "
_LAZY = "--! lazy "
_CONSTANT = re.compile(r"^--! const (\w+) (\S+)$", re.MULTILINE)
_FUNCTION = re.compile(r"^local function (\w+)", re.MULTILINE)


class Script(Struct, frozen=True):
    """The whole text of a script, and its SHA-1."""

    name: str
    text: bytes
    sha: bytes


@cache
def scripts() -> Mapping[str, Script]:
    """All scripts by name."""
    folder = files("duly.backends.redis.scripts")
    entries = {entry.name.removesuffix(".lua"): entry for entry in folder.iterdir() if entry.name.endswith(".lua")}
    library = folder / "lib"
    return {name: script_of(name, _assembled(text.read_text("utf-8"), library)) for name, text in entries.items()}


def script_of(name: str, text: str) -> Script:
    """A script with this text."""
    encoded = text.encode()
    return Script(name, encoded, hashlib.sha1(encoded, usedforsecurity=False).hexdigest().encode())


def _assembled(text: str, library: Traversable) -> str:
    used: dict[str, str] = {}
    _collect(_named(_USE, text), library, used)
    texts = [*used.values(), text]
    lazy = dict.fromkeys(name for each in texts for name in _named(_LAZY, each))
    if lazy:
        first = next(number for number, each in enumerate(texts) if _named(_LAZY, each))
        texts.insert(first, _lazy_function(lazy, library, list(used)[:first]))
    return _with_constants("\n".join(texts))


def _collect(names: Iterable[str], library: Traversable, found: dict[str, str]) -> None:
    """Add these library files, and before each the files that it uses."""
    for name in names:
        if name not in found:
            text = (library / f"{name}.lua").read_text("utf-8")
            _collect(_named(_USE, text), library, found)
            found[name] = text


def _named(directive: str, text: str) -> list[str]:
    """The library files that a directive at the head of a text names."""
    head = takewhile(lambda line: line.startswith("--!"), text.splitlines())
    return [name for line in head if line.startswith(directive) for name in line.removeprefix(directive).split()]


def _lazy_function(names: Iterable[str], library: Traversable, present: Iterable[str]) -> str:
    """The function that defines the functions of some library files, except for those defined before it."""
    wanted: dict[str, str] = {}
    _collect(names, library, wanted)
    missing = [text for name, text in wanted.items() if name not in present]
    fields = ", ".join(f"{name} = {name}" for text in wanted.values() for name in _FUNCTION.findall(text))
    head = ("local loaded", "local function lazy()", "if loaded then return loaded end")
    return "\n".join((*head, *missing, f"loaded = {{ {fields} }}", "return loaded", "end"))


def _with_constants(text: str) -> str:
    values = dict(_CONSTANT.findall(text))
    if not values:
        return text
    return re.sub(rf"\b({'|'.join(values)})\b", lambda name: values[name[1]], _CONSTANT.sub("", text))
