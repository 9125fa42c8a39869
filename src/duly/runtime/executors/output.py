"""Output: keeps the last part of what a command writes."""

from __future__ import annotations

import asyncio
import os

import msgspec

from duly.runtime.run_lines import OutputLines

_CHUNK = 65536
_LAST_READS = 32  # a pipe holds a mebibyte at most; a process that still writes after the end is not waited for


class Tail:
    """Reads a pipe and keeps its last `limit` bytes. Belongs to the loop it was made on. `lines` gets all of it."""

    def __init__(self, limit: int, lines: OutputLines) -> None:
        self._limit = limit
        self._lines = lines
        self._kept = bytearray()
        self._cut = 0
        self._reader: int | None
        self._writer: int | None
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._reader, self._read)

    def take_writer(self) -> int:
        """The end to write to; its user closes it."""
        assert self._writer is not None
        writer, self._writer = self._writer, None
        return writer

    def finish(self) -> str:
        """Take what is still in the pipe, close it, and return the text."""
        for _ in range(_LAST_READS):
            if not self._read():
                break
        self.close()
        self._lines.finish()
        return text_of(bytes(self._kept), self._cut)

    def close(self) -> None:
        if self._reader is not None:
            self._loop.remove_reader(self._reader)
            os.close(self._reader)
            self._reader = None
        if self._writer is not None:
            os.close(self._writer)
            self._writer = None

    def _read(self) -> bool:
        if self._reader is None:
            return False
        try:
            data = os.read(self._reader, _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self.close()
            return False
        self._lines.feed(data)
        self._kept += data
        surplus = len(self._kept) - self._limit
        if surplus > 0:
            del self._kept[:surplus]
            self._cut += surplus
        return True


def text_of(kept: bytes, cut: int) -> str:
    """Decode bytes as UTF-8. Invalid bytes become U+FFFD, and so does NUL, which not every store can keep.

    If something was cut off before, a first line says how much.
    """
    if not cut:
        return _decode(kept)
    longest = len(_notice(cut + len(kept)))
    whole = _skip_half_a_character(kept[longest:])
    return _decode(_notice(cut + len(kept) - len(whole)) + whole)


def _notice(cut: int) -> bytes:
    return f"[{cut} bytes cut]\n".encode()


def fit(stdout: str, stderr: str, room: int) -> tuple[str, str]:
    """Both texts, shortened at the front until they fit into `room` bytes of JSON together, the longer one first."""
    least = room // 2
    stdout_room = max(least, room - _json_size(stderr))
    stdout = shorten(stdout, stdout_room)
    return stdout, shorten(stderr, max(0, room - _json_size(stdout)))


def shorten(text: str, room: int) -> str:
    """The longest end of a text that fits into `room` bytes of JSON, without its quotes."""
    if _json_size(text) <= room:
        return text
    low, high = 0, len(text)  # characters to cut: at `high` it fits, below `low` it does not
    while low < high:
        middle = (low + high) // 2
        if _json_size(text[middle:]) <= room:
            high = middle
        else:
            low = middle + 1
    return text[high:]


def _json_size(text: str) -> int:
    return len(msgspec.json.encode(text)) - 2


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "replace").replace("\0", "\ufffd")


def _skip_half_a_character(data: bytes) -> bytes:
    for start, byte in enumerate(data[:4]):
        if byte & 0xC0 != 0x80:
            return data[start:]
    return data
