"""Waking at an exact moment.

asyncio rounds its timers to whole milliseconds of the poll; a timerfd in the loop wakes within 0.05 ms. Where there is
none (other systems, simulated loops) the loop's own timers serve.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
from collections.abc import Callable
from typing import Any, Protocol

_CLOCK_MONOTONIC = 1
_TFD_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC
_SHORTEST = 1e-6


class Sleep(Protocol):
    """Completes a future after a delay; call the returned function to cancel that."""

    def __call__(self, delay: float, waiter: asyncio.Future[None]) -> Callable[[], None]: ...


def sleep_by_loop(delay: float, waiter: asyncio.Future[None]) -> Callable[[], None]:
    """The event loop's own timer."""
    return waiter.get_loop().call_later(delay, _complete, waiter).cancel


def _complete(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class TimerFd:
    """One kernel timer in the event loop, for one waiter at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiter: asyncio.Future[None] | None = None
        self._fd = _timerfd_create()
        try:
            loop.add_reader(self._fd, self._expired)
        except BaseException:
            os.close(self._fd)
            raise

    def __call__(self, delay: float, waiter: asyncio.Future[None]) -> Callable[[], None]:
        self._waiter = waiter
        _timerfd_set(self._fd, max(delay, _SHORTEST))
        return self._call_off

    def _expired(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return
        if self._waiter is not None:
            _complete(self._waiter)

    def _call_off(self) -> None:
        self._waiter = None

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        os.close(self._fd)


def timerfd(loop: asyncio.AbstractEventLoop) -> TimerFd | None:
    """A kernel timer for this loop, or None where there can be none."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        return TimerFd(loop)
    except (OSError, NotImplementedError, AttributeError):
        return None


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


_LIBC: Any = ctypes.CDLL(None, use_errno=True) if sys.platform.startswith("linux") else None


def _timerfd_create() -> int:
    fd: int = _LIBC.timerfd_create(_CLOCK_MONOTONIC, _TFD_FLAGS)
    if fd < 0:
        raise OSError(ctypes.get_errno(), "timerfd_create")
    return fd


def _timerfd_set(fd: int, delay: float) -> None:
    seconds = int(delay)
    value = _Timespec(seconds, int((delay - seconds) * 1e9) or (0 if seconds else 1))
    spec = _Itimerspec(_Timespec(0, 0), value)
    if _LIBC.timerfd_settime(fd, 0, ctypes.byref(spec), None) < 0:
        raise OSError(ctypes.get_errno(), "timerfd_settime")
