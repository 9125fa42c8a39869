"""Reading a page: its fenced blocks in order, those in HTML comments too, and the commands in them.

A comment in the first line of a block names its file: `# app.py` is the whole of it, `# add to app.py` goes on with it,
`# examples/app.py` is an excerpt from a file of the repository.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted(path for path in ROOT.glob("*.md") if path.name != "CHANGELOG.md"),
    *sorted((ROOT / "docs").rglob("*.md")),
]

_FENCE = re.compile(r"^(?P<fence>```+)(?P<language>\S*)\n(?P<text>.*?)^(?P=fence)\s*$", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"(?:#|--|//) (?P<added>add to )?(?P<name>[\w./-]+\.\w+)\n")
_INDENTED = re.compile(r"(?:\A|\n)\n(?: {4}\S.*\n)")


class Block(Struct, frozen=True):
    """One fenced block: where it begins, its language, its text, and the file that it names."""

    line: int
    language: str
    text: str
    file: str | None = None
    added: bool = False

    @property
    def excerpt(self) -> bool:
        """Whether it shows a part of a file of the repository."""
        return self.file is not None and (ROOT / self.file).exists() and "/" in self.file


class Command(Struct, frozen=True):
    """A line after `$`, and the lines that the page shows as its output; None if it shows nothing."""

    line: int
    text: str
    shown: str | None


def blocks(page: Path) -> list[Block]:
    return list(blocks_of(page.read_text(encoding="utf-8")))


def blocks_of(text: str) -> Iterator[Block]:
    for found in _FENCE.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        content = found["text"]
        if named := _NAMED.match(content):
            yield Block(line, found["language"], content[named.end() :], named["name"], bool(named["added"]))
        else:
            yield Block(line, found["language"], content)


def indented_code(text: str) -> list[int]:
    """The lines at which code begins that is indented instead of fenced: nobody would run it."""
    fenced = _FENCE.sub(lambda found: "\n" * found[0].count("\n"), text)
    return [fenced.count("\n", 0, found.end()) for found in _INDENTED.finditer(fenced)]


def commands(block: Block) -> list[Command]:
    """The commands of a console block; a line that ends in a backslash goes on in the next."""
    found: list[Command] = []
    lines = block.text.split("\n")[:-1]
    number = 0
    while number < len(lines):
        if not lines[number].startswith("$ "):
            raise ValueError(f"line {block.line + 1 + number}: output without a command: {lines[number]!r}")
        begin = number
        text = lines[number].removeprefix("$ ")
        while text.endswith("\\"):
            number += 1
            text = f"{text}\n{lines[number]}"
        number += 1
        first = number
        while number < len(lines) and not lines[number].startswith("$ "):
            number += 1
        shown = "\n".join(lines[first:number]).strip("\n")
        found.append(Command(block.line + 1 + begin, text, shown or None))
    return found


def examples(text: str) -> list[tuple[str, str]]:
    """The inputs after `>>>` and what the page shows after each."""
    found: list[tuple[str, str]] = []
    for line in text.splitlines():
        if line.startswith(">>> "):
            found.append((line[4:], ""))
        elif line.startswith("..."):
            source, shown = found.pop()
            found.append((f"{source}\n{line[4:]}", shown))
        else:
            source, shown = found.pop()
            found.append((source, f"{shown}{line}\n"))
    return [(source, shown.strip("\n")) for source, shown in found]
