"""Tracebacks for logs: only the frames of the user's own code, with the number of those between.

Pure text: the traceback was formatted where the exception was raised, perhaps in another process.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

_FRAME = re.compile(r'(?P<lead>[ |+-]*)File "(?P<path>[^"]*)", line \d+')
# Where code is that the user has not written: installed packages, the standard library, frozen modules, and Duly.
_INSTALLED = re.compile(r"[/\\](?:site|dist)-packages[/\\]([^/\\.]+)")
_STANDARD = re.compile(r"[/\\]lib(?:64)?[/\\]python\d[\d.]*t?[/\\]([^/\\.]+)|[/\\]Lib[/\\]([^/\\.]+)|^<frozen ([^>.]+)")
_DULY = f"{Path(__file__).parent.parent}{os.sep}"
_NAMED = 3


def folded(traceback: str) -> str:
    """The traceback without frames of other people's code; a line in their place says how many there are, and whose.

    If none of the frames is the user's, the last one is kept.
    """
    blocks = list(_blocks(traceback))
    owners = [None if path is None else _owner(path) for path, _ in blocks]
    frames = [number for number, (path, _) in enumerate(blocks) if path is not None]
    if not any(owners[number] == "" for number in frames) and frames:
        owners[frames[-1]] = ""
    lines: list[str] = []
    hidden: list[str] = []
    for (_, text), owner in zip(blocks, owners, strict=True):
        if owner:
            hidden.append(owner)
            continue
        lines += _count(hidden)
        hidden = []
        lines += text
    return "\n".join([*lines, *_count(hidden)])


def _blocks(traceback: str) -> Iterator[tuple[str | None, list[str]]]:
    """Frames, with the path of their file, and the lines between them."""
    path: str | None = None
    inner, repeat = "", ""
    block: list[str] = []
    for line in traceback.splitlines():
        found = _FRAME.match(line)
        if found is None and path is not None and line.startswith((inner, repeat)):
            block.append(line)
            continue
        if block:
            yield path, block
        block = [line]
        path = None if found is None else found["path"]
        if found is not None:
            inner, repeat = f"{found['lead']}  ", f"{found['lead']}[Previous line"
    if block:
        yield path, block


def _owner(path: str) -> str:
    """Whose code a file is: the name of a package or module, empty for the user's own."""
    if path.startswith(_DULY):
        return "duly"
    found = _INSTALLED.search(path) or _STANDARD.search(path)
    return "" if found is None else next(name for name in found.groups() if name)


def _count(owners: list[str]) -> list[str]:
    """The line in place of hidden frames, if there are any."""
    if not owners:
        return []
    names = list(dict.fromkeys(owners))
    more = ", …" if len(names) > _NAMED else ""
    return [f"  … {len(owners)} frame{'s'[: len(owners) != 1]} in {', '.join(names[:_NAMED])}{more}"]
