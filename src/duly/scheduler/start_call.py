"""The coroutine of `scheduler.start()`, which warns with the line of the call if nobody awaits it.

Python's own warning says only that some coroutine was never awaited, and often not where it was created.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import Any


class StartCall(Coroutine[Any, Any, None]):
    """A coroutine that remembers where it was created. Await it, or pass it to `asyncio.run`, as any other."""

    def __init__(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self._coroutine = coroutine
        frame = sys._getframe(1)  # noqa: SLF001  # nothing else knows the line of the caller
        while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("duly."):
            frame = frame.f_back
        self._file, self._line = frame.f_code.co_filename, frame.f_lineno

    def send(self, value: Any, /) -> Any:
        return self._coroutine.send(value)

    def throw(
        self, kind: Any, value: BaseException | object = None, trace: TracebackType | None = None, /
    ) -> Any:  # the form with three arguments is deprecated; asyncio uses the one with an exception
        return self._coroutine.throw(kind) if value is None else self._coroutine.throw(kind, value, trace)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, None]:
        return self._coroutine.__await__()

    def __del__(self) -> None:
        if inspect.getcoroutinestate(self._coroutine) != inspect.CORO_CREATED:  # type: ignore[arg-type]
            return
        self._coroutine.close()  # so that Python does not warn as well
        text = (
            "scheduler.start() was called and not awaited: no node was started; write `await scheduler.start()`,"
            " or `scheduler.sync.start()` in code without an event loop"
        )
        warnings.warn_explicit(text, RuntimeWarning, self._file, self._line)
