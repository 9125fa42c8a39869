"""The scripts: one `.lua` file per verb, put together once from the parts that they name.

A script's first line may be `--! use time fences`: the text of `lib/time.lua` and `lib/fences.lua` comes before its
own, each part once, parts of parts first. What the server calls a script is the SHA-1 of the whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from msgspec import Struct

_USE = "--! use "


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
    return "\n".join([*parts.values(), text])


def _gather(text: str, library: Traversable, parts: dict[str, str]) -> None:
    """Add the parts that a text names, and theirs before them."""
    first = text.partition("\n")[0]
    if not first.startswith(_USE):
        return
    for name in first.removeprefix(_USE).split():
        if name not in parts:
            part = (library / f"{name}.lua").read_text("utf-8")
            _gather(part, library, parts)
            parts[name] = part
