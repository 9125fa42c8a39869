"""The output of a child interpreter: passed on to the worker's own output, and kept in the log of the run.

A child writes to pipes instead of the worker's stdout and stderr, because these do not tell which run has written.
While the worker's output takes no more, nothing is read, so that the child waits, as if it had written there itself.
"""

from __future__ import annotations

import asyncio
import os
import select

from duly.runtime.run_lines import OutputLines

_CHUNK = 4096  # a pipe that is writable takes as much at once
_MOST_AT_ONCE = 64  # chunks, so that one child does not keep the loop from others
_LAST_READS = 512  # a pipe holds a mebibyte at most
_TRY_AGAIN = 0.02


class ChildOutput:
    """One pipe, which is copied to the descriptor `target`. `lines` are those of the run that executes now."""

    def __init__(self, target: int) -> None:
        self.lines: OutputLines | None = None
        self._target = target
        self._unwritten = b""
        self._reader, self.writer = os.pipe()
        os.set_blocking(self._reader, False)
        self._open = True
        self._later: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._reader, self._readable)

    def finish(self) -> None:
        """Take what the handler has written until now: it has ended."""
        for _ in range(_LAST_READS):
            if not self._read():
                break
        if self.lines is not None:
            self.lines.finish()
            self.lines = None

    def close(self) -> None:
        """The child is gone."""
        self.finish()
        if self._open:
            self._open = False
            self._loop.remove_reader(self._reader)
            os.close(self._reader)

    def _readable(self) -> None:
        for _ in range(_MOST_AT_ONCE):
            if self._unwritten or not self._read():
                break

    def _read(self) -> bool:
        """Take one chunk; False if there is none."""
        if not self._open:
            return False
        try:
            data = os.read(self._reader, _CHUNK)
        except BlockingIOError:
            return False
        if not data:  # all writers have closed their ends
            self._open = False
            self._loop.remove_reader(self._reader)
            os.close(self._reader)
            return False
        if self.lines is not None:
            self.lines.feed(data)
        self._unwritten += data
        self._pass_on()
        return True

    def _pass_on(self) -> None:
        """Write what the worker's output takes without waiting; the rest later, and nothing is read until then."""
        while self._unwritten and _takes_more(self._target):
            self._unwritten = self._unwritten[_written(self._target, self._unwritten[:_CHUNK]) :]
        if self._unwritten and self._later is None:
            if self._open:
                self._loop.remove_reader(self._reader)
            self._later = self._loop.call_later(_TRY_AGAIN, self._try_again)

    def _try_again(self) -> None:
        self._later = None
        self._pass_on()
        if self._open and not self._unwritten:
            self._loop.add_reader(self._reader, self._readable)


def child_outputs() -> tuple[ChildOutput, ChildOutput]:
    """The stdout and stderr of a new child."""
    stdout = ChildOutput(1)
    try:
        return stdout, ChildOutput(2)
    except BaseException:
        stdout.close()
        os.close(stdout.writer)
        raise


def _takes_more(target: int) -> bool:
    """Whether writing a chunk does not wait. A closed output takes everything."""
    try:
        return bool(select.select([], [target], [], 0)[1])
    except (OSError, ValueError):
        return True


def _written(target: int, data: bytes) -> int:
    """Write data; how much is done with. What a closed output cannot take is dropped."""
    try:
        return os.write(target, data)
    except OSError:
        return len(data)
