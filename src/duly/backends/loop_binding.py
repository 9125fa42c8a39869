"""The event loop and the process that a session belongs to: its connections work only there."""

from __future__ import annotations

import asyncio
import os

from duly.errors import BackendError

_inherited: list[object] = []  # the garbage collector of a forked child must not close its parent's connections


class LoopBinding:
    """Unbound until the session is opened."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = 0

    @property
    def is_bound(self) -> bool:
        """Whether the session is open in this process."""
        return self._loop is not None and self._process == os.getpid()

    def bind(self) -> None:
        """The session is open, on the running loop."""
        self._loop, self._process = asyncio.get_running_loop(), os.getpid()

    def release(self, *connections: object) -> bool:
        """The session is closed. False: these connections belong to the parent process, so do not close them."""
        forked = self._loop is not None and self._process != os.getpid()
        self._loop = None
        if forked:
            _inherited.extend(connections)
        return not forked

    def check(self) -> None:
        """Raise if the session is not open, was opened before a fork, or on another loop."""
        if self._loop is None:
            raise BackendError(f"{self._url} is not open in this session: open it, or use `async with`")
        if self._process != os.getpid():
            raise BackendError(
                f"this process was forked after {self._url} was opened, and connections do not survive a fork: open a"
                " new session in the child"
            )
        if self._loop is not asyncio.get_running_loop():
            raise BackendError(f"{self._url} was opened on another event loop: use another `session()` for this one")
