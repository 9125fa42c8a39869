"""The lines that an attempt writes, until they are stored: a bounded buffer that any thread may write to."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime

from duly.model import LineSource, LogLine, sanitize
from duly.model.run_log import MOST_LINE, room_for, size_of
from duly.rules.redaction import redacted

_MOST_NAME = 200
_MOST_LEVEL = 40
_MOST_PART = 4 * MOST_LINE  # bytes of output without a line break


_Line = tuple[datetime, LineSource, str, str, str]  # time, source, text, level, logger


class RunLines:
    """The newest lines of an attempt that are not stored yet, at most `keep` and as many bytes as a store keeps.

    `take` returns the same lines until `stored` is called, so that a call whose answer was lost can be repeated. It
    hides secrets: lines that are written faster than they are stored cost as little as possible.
    """

    def __init__(self, keep: int, attempt: int) -> None:
        self.keep = keep
        self._attempt = attempt
        self._room = room_for(keep)
        self._lines: deque[tuple[_Line, int]] = deque()
        self._size = 0
        self._written = 0
        self._taken: tuple[int, tuple[LogLine, ...]] | None = None
        self._closed = False
        # Reentrant: the garbage collector may call a `__del__` that logs while this thread holds the lock.
        self._lock = threading.RLock()

    @property
    def empty(self) -> bool:
        """Whether all lines are stored."""
        return not self._lines and self._taken is None

    def add(self, at: datetime, source: LineSource, text: str, level: str = "", logger: str = "") -> None:
        """Add a text of one or more lines."""
        text = str.__str__(text)
        parts = text.rsplit("\n", self.keep)
        skipped = text.count("\n") + 1 - len(parts)
        level, logger = sanitize.line(level, _MOST_LEVEL), sanitize.line(logger, _MOST_NAME)
        lines = [sanitize.line(part, MOST_LINE) for part in parts]
        self._append([(at, source, line, level, logger) for line in lines], skipped)

    def add_output(self, at: datetime, source: LineSource, lines: Sequence[bytes]) -> None:
        """Add lines of a program's output, which may be any bytes."""
        newest = lines[-self.keep :]
        self._append([(at, source, _decoded(line), "", "") for line in newest], len(lines) - len(newest))

    def _append(self, lines: Sequence[_Line], skipped: int) -> None:
        sizes = [size_of(text) for _, _, text, _, _ in lines]
        with self._lock:
            if self._closed:
                return
            self._written += skipped + len(lines)
            self._lines.extend(zip(lines, sizes, strict=True))
            self._size += sum(sizes)
            while len(self._lines) > self.keep or self._size > self._room:
                self._size -= self._lines.popleft()[1]

    def take(self) -> tuple[int, tuple[LogLine, ...]] | None:
        """Lines to store, and how many the attempt had written before them; None if there are none."""
        with self._lock:
            if self._taken is None and self._lines:
                lines = tuple(self._line(*line) for line, _ in self._lines)
                self._taken = (self._written - len(lines), lines)
                self._lines.clear()
                self._size = 0
            return self._taken

    def _line(self, at: datetime, source: LineSource, text: str, level: str, logger: str) -> LogLine:
        return LogLine(0, self._attempt, at, source, redacted(text), level, logger)

    def stored(self) -> None:
        """What was taken is stored."""
        with self._lock:
            self._taken = None

    def close(self) -> None:
        """Accept no more lines: the attempt has ended."""
        with self._lock:
            self._closed = True

    def discard(self) -> None:
        """Forget all lines, and accept no more: the run belongs to another attempt, or the store refuses them."""
        with self._lock:
            self._closed = True
            self._taken = None
            self._lines.clear()


class OutputLines:
    """Splits the output of a process into lines. `add` gets complete lines without their ends."""

    def __init__(self, add: Callable[[Sequence[bytes]], None]) -> None:
        self._add = add
        self._part = b""

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the output."""
        *lines, part = (self._part + data).split(b"\n")
        if len(part) > _MOST_PART:
            lines.append(part)
            part = b""
        self._part = part
        if lines:
            self._add(lines)

    def finish(self) -> None:
        """The output has ended: what is left is a line without an end."""
        part, self._part = self._part, b""
        if part:
            self._add([part])


def _decoded(line: bytes) -> str:
    """A line as text. Of a very long one only as much is decoded as is kept."""
    if len(line) > 2 * _MOST_PART:
        line = line[:_MOST_PART] + line[-_MOST_PART:]
    return sanitize.line(line.decode("utf-8", "replace").replace("\0", "\ufffd"), MOST_LINE)
