"""Text measured in the cells of a terminal: wide characters take two, combining ones none.

The text has no control characters (`duly.cli.text`). Rich knows the widths; it is imported only for text that may have
other characters than narrow ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

ELLIPSIS = "…"

_NARROW = re.compile(r"[ -~\u00a1-\u00ac\u00ae-\u02ff–…]*")  # Latin, and the signs that tables use


def width_of(text: str) -> int:
    """How many cells a text takes."""
    if _NARROW.fullmatch(text):
        return len(text)
    from rich.cells import cell_len  # noqa: PLC0415

    return cell_len(text)


def first_cells(text: str, width: int) -> str:
    """The beginning of a text that fits into these cells. A character is never halved."""
    if _NARROW.fullmatch(text):
        return text[: max(0, width)]
    from rich.cells import cell_len, set_cell_size  # noqa: PLC0415

    if cell_len(text) <= width:
        return text
    found = set_cell_size(text, width)
    return found if text.startswith(found) else found[:-1]  # a wide character at the edge has become a space


def cut(text: str, width: int) -> str:
    """A text in at most these cells; if it does not fit, with an ellipsis as its last sign."""
    if width_of(text) <= width:
        return text
    return "" if width < 1 else f"{first_cells(text, width - 1)}{ELLIPSIS}"


def padded(text: str, width: int, *, right: bool = False) -> str:
    """A text in exactly these cells, on the left or on the right; longer text is cut."""
    found = cut(text, width)
    space = " " * (width - width_of(found))
    return f"{space}{found}" if right else f"{found}{space}"


def folded(text: str, width: int) -> list[str]:
    """A text as lines of at most these cells, broken between words; only a longer word is broken inside."""
    if width_of(text) <= width or width < 1:
        return [text]
    found, used = [""], 0
    for word in _words(text, width):
        size = width_of(word)
        if found[-1] and used + 1 + size > width:
            found.append("")
        found[-1] = f"{found[-1]} {word}" if found[-1] else word
        used = width_of(found[-1])
    return found


def _words(text: str, width: int) -> Iterator[str]:
    """The words of a text. One that is too long is divided."""
    for word in text.split(" "):
        rest = word
        while width_of(rest) > width:
            part = first_cells(rest, width) or rest[:1]
            yield part
            rest = rest[len(part) :]
        yield rest
