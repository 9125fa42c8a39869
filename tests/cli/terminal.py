"""A terminal for tests: `python -m duly` on a pseudo-terminal, whose output a terminal emulator displays."""

import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pyte
from wcwidth import wcwidth

WIDTHS = (80, 100, 120, 160)


class Emulator(pyte.HistoryScreen):
    """A screen with history. `wrapped` has the lines that were longer than the terminal is wide."""

    def __init__(self, columns: int, rows: int) -> None:
        self.wrapped: list[str] = []
        self.bells = 0
        super().__init__(columns, rows, history=5000, ratio=0.5)

    def draw(self, data: str) -> None:
        for sign in data:
            width = max(0, wcwidth(sign))
            if pyte.modes.DECAWM in self.mode and width and self.cursor.x + width > self.columns:
                self.wrapped.append(self.display[self.cursor.y])
            super().draw(sign)

    def everything(self) -> list[str]:
        """All lines, those that were scrolled away included, without spaces at their ends."""
        above = ["".join(line[column].data for column in range(self.columns)) for line in self.history.top]
        return [line.rstrip() for line in (*above, *self.display)]


class Terminal:
    """A process on a terminal of a given size. It ends with the test."""

    def __init__(self, *arguments: str, folder: Path, columns: int = 80, rows: int = 24, **environment: str) -> None:
        self.reader, inside = os.openpty()
        self.screen = Emulator(columns, rows)
        self.stream = pyte.ByteStream(self.screen)
        self.written = bytearray()
        self._set_size(inside, columns, rows)
        self.saved = termios.tcgetattr(inside)
        env = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "duly", *arguments],
            cwd=folder,
            env={**env, "TERM": "xterm-256color", "PYTHONUNBUFFERED": "1", **environment},
            stdin=inside,
            stdout=inside,
            stderr=inside,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(inside, termios.TIOCSCTTY, 0),  # noqa: PLW1509  # for Ctrl-C and resizing
        )
        self.inside = inside  # stays open: its settings are looked at when the process has ended

    @staticmethod
    def _set_size(end: int, columns: int, rows: int) -> None:
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        os.close(self.reader)
        os.close(self.inside)

    @property
    def lines(self) -> list[str]:
        """What is on the screen."""
        return [line.rstrip() for line in self.screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def resize(self, columns: int, rows: int) -> None:
        self.screen.resize(rows, columns)
        self._set_size(self.reader, columns, rows)

    def send(self, keys: str) -> None:
        os.write(self.reader, keys.encode())

    def pump(self, seconds: float = 0.05) -> bool:
        """Display what the process has written; whether it has written something."""
        if not select.select([self.reader], [], [], seconds)[0]:
            return False
        read = os.read(self.reader, 65536)
        self.written += read
        self.stream.feed(read)
        return True

    def until(self, what, seconds: float = 60.0) -> None:
        """Wait until a text is on the screen, or a condition holds."""
        deadline = time.monotonic() + seconds
        check = what if callable(what) else lambda: what in self.text
        while not check():
            assert time.monotonic() < deadline, f"never seen: {what}\n{self.text}"
            assert self.pump() or self.process.poll() is None or check(), f"ended without: {what}\n{self.text}"

    def end(self, seconds: float = 60.0) -> int:
        """Wait for the end of the process; its exit code."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it does not end\n{self.text}"
            self.pump()
        while self.pump(0.01):
            pass
        return self.process.returncode

    @property
    def restored(self) -> bool:
        """Whether the terminal is as it was: the main screen, a cursor, lines that wrap, echo."""
        modes = self.screen.mode
        hidden = self.screen.cursor.hidden
        alternate = self.written.rfind(b"\x1b[?1049h") > self.written.rfind(b"\x1b[?1049l")
        same = termios.tcgetattr(self.inside)[:4] == self.saved[:4]
        return pyte.modes.DECAWM in modes and not hidden and not alternate and same
