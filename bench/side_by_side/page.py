"""A page that holds a table between two marks, and the replacing of what is between them."""

from __future__ import annotations

import re
from pathlib import Path

BEGIN = "<!-- side by side: begin (made by `make bench-peers`, not by hand) -->"
END = "<!-- side by side: end -->"
_BETWEEN = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)


class NoPlace(Exception):
    """The page has no place for a table."""


def with_table(page: str, table: str) -> str:
    """The page with this table in its place."""
    if not _BETWEEN.search(page):
        raise NoPlace(f"the page lacks the lines {BEGIN!r} and {END!r}")
    return _BETWEEN.sub(lambda _: f"{BEGIN}\n\n{table}\n\n{END}", page, count=1)


def write_into(path: Path, table: str) -> None:
    path.write_text(with_table(path.read_text(encoding="utf-8"), table), encoding="utf-8")
