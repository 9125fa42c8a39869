"""Changes of source files, for `duly run --reload`. Uses the package `watchfiles` if it is installed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

_PERIOD = 0.5
_MOST_FILES = 10_000
_Stamp = tuple[int, int]


class WatchedFiles:
    """Files whose changes are noticed: those that were added, or all Python files below a folder."""

    def __init__(self) -> None:
        self._stamps: dict[str, _Stamp | None] = {}

    def add(self, files: Iterable[str]) -> None:
        """Watch these files from now on."""
        for name in files:
            self._stamps.setdefault(name, _stamp(name))

    def add_folder(self, folder: Path) -> None:
        """Watch the Python files below a folder: a program that cannot be imported does not say which it needs."""
        found = (path for path in folder.rglob("*.py") if not _is_hidden(path.relative_to(folder)))
        self.add(str(path) for path in islice(found, _MOST_FILES))

    async def changed(self) -> list[str]:
        """Return the files that have changed since they were seen last, as soon as there are any."""
        while not (changed := self._look()):
            await self._sleep()
        return changed

    def _look(self) -> list[str]:
        changed = []
        for name, before in self._stamps.items():
            if (now := _stamp(name)) != before:
                self._stamps[name] = now
                changed.append(name)
        return changed

    async def _sleep(self) -> None:
        """Wait for a change, or half a second if nothing can report changes."""
        folders = [str(folder) for folder in {Path(name).parent for name in self._stamps} if folder.is_dir()]
        try:
            from watchfiles import awatch  # type: ignore[import-not-found]  # noqa: PLC0415  # not a dependency
        except ImportError:
            await asyncio.sleep(_PERIOD)
            return
        async for _ in awatch(*folders, recursive=False, rust_timeout=int(_PERIOD * 1000), yield_on_timeout=True):
            return


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _stamp(name: str) -> _Stamp | None:
    try:
        found = Path(name).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
