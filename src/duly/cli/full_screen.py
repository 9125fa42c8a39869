"""A terminal as a whole screen: drawn without flicker, and restored on every exit.

Only lines that have changed are written, so that it works over slow connections. An error, a signal and a suspension
(Ctrl-Z) restore the terminal as well.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType
from typing import Any, NamedTuple, NoReturn, Self

from duly.errors import ConfigurationError

# The alternate screen without a cursor, in which a line that is too long is not continued on the next one.
_ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
_LEAVE = "\x1b[0m\x1b[999;1H\n\x1b[?7h\x1b[?25h\x1b[?1049l"  # a terminal without that screen goes on below
_CLEAR = "\x1b[2J"
_REST_OF_LINE = "\x1b[0m\x1b[K"

_ENDING = ("SIGTERM", "SIGHUP")


def can_draw() -> bool:
    """Whether standard output is a terminal that can be drawn on."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


class Size(NamedTuple):
    """The size of a terminal in cells."""

    columns: int
    rows: int


class FullScreen:
    """Owns the terminal from `__enter__` to `__exit__`. With `keys`, keys can be read as they are pressed."""

    def __init__(self, *, keys: bool = False) -> None:
        self._keys = keys
        self._saved: list[Any] | None = None
        self._handlers: dict[signal.Signals, Any] = {}
        self._drawn: list[str] = []
        self._size = Size(0, 0)

    def __enter__(self) -> Self:
        if not (can_draw() and (sys.stdin.isatty() or not self._keys)):
            raise ConfigurationError("this needs a terminal: standard input or output is not one, or TERM is dumb")
        for name in (*_ENDING, "SIGTSTP"):
            if (number := getattr(signal, name, None)) is not None:
                action = self._suspend if name == "SIGTSTP" else self._end
                self._handlers[number] = signal.signal(number, action)
        self._enter()
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def size(self) -> Size:
        """The current size of the terminal."""
        try:
            return Size(*os.get_terminal_size(sys.stdout.fileno()))
        except OSError:  # it is closed
            return Size(80, 24)

    def draw(self, lines: Sequence[str]) -> None:
        """Show these lines, from the top. What does not fit is left out."""
        size = self.size()
        shown = [*lines[: size.rows], *[""] * (size.rows - len(lines))]
        changed = [
            f"\x1b[{row};1H{text}{_REST_OF_LINE}" for row, text in enumerate(shown, 1) if self._differs(row, text)
        ]
        if size != self._size:
            changed = [_CLEAR, *(f"\x1b[{row};1H{text}{_REST_OF_LINE}" for row, text in enumerate(shown, 1) if text)]
        if changed:
            _write("".join(changed))
        self._drawn, self._size = shown, size

    def _differs(self, row: int, text: str) -> bool:
        return len(self._drawn) < row or self._drawn[row - 1] != text

    def _enter(self) -> None:
        if self._keys:
            import termios  # noqa: PLC0415  # not on every system
            import tty  # noqa: PLC0415

            self._saved = termios.tcgetattr(sys.stdin.fileno())
            tty.setcbreak(sys.stdin.fileno())
        self._size = Size(0, 0)  # everything is drawn again
        _write(_ENTER)

    def _leave(self) -> None:
        with suppress(OSError):  # the terminal may be gone
            _write(_LEAVE)
        if self._saved is not None:
            import termios  # noqa: PLC0415

            with suppress(OSError, termios.error):
                termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, self._saved)

    def _suspend(self, number: int, _: FrameType | None) -> None:
        """Ctrl-Z: give the terminal back until the process is continued."""
        self._leave()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        signal.signal(number, self._suspend)
        self._enter()

    @staticmethod
    def _end(number: int, _: FrameType | None) -> NoReturn:
        """Leave through the `finally` blocks, which restore the terminal."""
        raise SystemExit(128 + number)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
