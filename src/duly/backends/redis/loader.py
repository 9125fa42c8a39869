"""The scripts: one `.lua` file per verb, put together once from the parts that they name.

A text may begin with directives. `--! use now ring`: the text of `lib/now.lua` and `lib/ring.lua` comes before its own,
each part once, parts of parts first. `--! lazily waiting`: the functions of that part, and of those it uses, are made
when `lazily()` is first called, and are then its fields; a function costs half a microsecond to make, and the hot path
needs few. `--! const NAME value` anywhere stands for the value in the whole script. What the server calls a script is
the SHA-1 of the whole.
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
_LAZILY = "--! lazily "
_CONSTANT = re.compile(r"^--! const (\w+) (\S+)$", re.MULTILINE)
_FUNCTION = re.compile(r"^local function (\w+)", re.MULTILINE)


class Script(Struct, frozen=True):
    """A whole script as the server gets it, and the name it goes by there."""

    name: str
    text: bytes
    sha: bytes


@cache
def scripts() -> Mapping[str, Script]:
    """All scripts by name."""
    folder = files("duly.backends.redis") / "scripts"
    own = {entry.name.removesuffix(".lua"): entry for entry in folder.iterdir() if entry.name.endswith(".lua")}
    return {name: made(name, _whole(entry.read_text("utf-8"), folder / "lib")) for name, entry in sorted(own.items())}


def made(name: str, text: str) -> Script:
    """A script of this text."""
    whole = text.encode()
    return Script(name, whole, hashlib.sha1(whole, usedforsecurity=False).hexdigest().encode())


def _whole(text: str, library: Traversable) -> str:
    parts: dict[str, str] = {}
    _gather(text, library, parts)
    texts = [*parts.values(), text]
    late = dict.fromkeys(name for each in texts for name in _named(_LAZILY, each))
    if late:
        first = next(number for number, each in enumerate(texts) if _named(_LAZILY, each))
        texts.insert(first, _lazily(late, library, dict(list(parts.items())[:first])))
    return _with_constants("\n".join(texts))


def _gather(text: str, library: Traversable, parts: dict[str, str]) -> None:
    """Add the parts that a text names, and theirs before them."""
    for name in _named(_USE, text):
        if name not in parts:
            part = (library / f"{name}.lua").read_text("utf-8")
            _gather(part, library, parts)
            parts[name] = part


def _named(directive: str, text: str) -> list[str]:
    """The parts that a directive at the head of a text names."""
    head = takewhile(lambda line: line.startswith("--!"), text.splitlines())
    return [name for line in head if line.startswith(directive) for name in line.removeprefix(directive).split()]


def _lazily(names: Iterable[str], library: Traversable, present: Mapping[str, str]) -> str:
    """A function that makes the functions of some parts, but for those that are there before it."""
    wanted: dict[str, str] = {}
    _gather(_USE + " ".join(names), library, wanted)
    missing = [text for name, text in wanted.items() if name not in present]
    fields = ", ".join(f"{name} = {name}" for text in wanted.values() for name in _FUNCTION.findall(text))
    body = "\n".join(missing)
    lines = ("local made", "local function lazily()", "if made then return made end", body)
    return "\n".join((*lines, f"made = {{ {fields} }}", "return made", "end"))


def _with_constants(text: str) -> str:
    values = dict(_CONSTANT.findall(text))
    if not values:
        return text
    return re.sub(rf"\b({'|'.join(values)})\b", lambda name: values[name[1]], _CONSTANT.sub("", text))
