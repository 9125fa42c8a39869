"""Progress on standard error: what is under way on a terminal, what is done everywhere."""

from __future__ import annotations

import sys
import time


class Talk:
    """One line at the bottom that changes, and one line for each thing that is done."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._doing = ""
        self._shown = 0.0

    def doing(self, what: str) -> None:
        self._doing = what
        self._show(what)

    def far(self, done: int, total: int) -> None:
        if time.monotonic() - self._shown > 0.1:
            self._show(f"{self._doing}  {done:,}/{total:,}")

    def done(self, what: str) -> None:
        self._clear()
        sys.stderr.write(f"{what}\n")
        sys.stderr.flush()

    def _show(self, text: str) -> None:
        if self._terminal:
            self._shown = time.monotonic()
            sys.stderr.write(f"\r\x1b[2K{text}")
            sys.stderr.flush()

    def _clear(self) -> None:
        if self._terminal:
            sys.stderr.write("\r\x1b[2K")
