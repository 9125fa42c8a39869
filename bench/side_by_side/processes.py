"""Processes of adapters: started, told what to do and listened to by lines of JSON, and ended with all they started."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from bench.side_by_side.environments import ROOT, Command

_PATIENCE = 60.0
_LOOK_EVERY = 0.02
_LAST_WORDS = 300

Progress = Callable[[int, int], None]


class Broken(Exception):
    """A process ended, or stood still; the message carries its last words."""


class Process:
    """One process of an adapter, gone with its block, children included."""

    def __init__(self, program: Command, stint: Mapping[str, Any]) -> None:
        self._role = stint["role"]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the process
        self._process = subprocess.Popen(
            [*program, json.dumps(stint)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            start_new_session=True,
            text=True,
        )
        self.done = 0
        self._heard: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(ProcessLookupError):  # it may have ended by itself, with its children
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()
        self._errors.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            if "done" in message:
                self.done = message["done"]
            else:
                self._heard.put(message)
        self._heard.put(None)

    def hear(self, word: str, patience: float = _PATIENCE) -> Any:
        """The next message, which must be of this kind."""
        try:
            message = self._heard.get(timeout=patience)
        except queue.Empty:
            raise Broken(f"the {self._role} said nothing for {patience:g} s{self._last_words()}") from None
        if message is None or word not in message:
            raise Broken(f"the {self._role} ended{self._last_words()}")
        return message[word]

    def order(self, do: str, jobs: int, patience: float = 10 * _PATIENCE) -> float:
        """Have a client do something; the seconds that it took."""
        self._write({"do": do, "jobs": jobs})
        seconds: float = self.hear("seconds", patience)
        return seconds

    def report(self) -> dict[str, Any]:
        """Have a worker hand in its notes; it ends with that."""
        self._write({"do": "report"})
        report: dict[str, Any] = self.hear("report")
        return report

    def wait(self) -> None:
        """Until it ends by itself, well."""
        try:
            code = self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            raise Broken(f"the {self._role} did not end{self._last_words()}") from None
        if code:
            raise Broken(f"the {self._role} ended with {code}{self._last_words()}")

    def until(self, total: int, progress: Progress, patience: float = _PATIENCE) -> None:
        """Until a worker has done that many jobs; broken if it makes no headway for so long."""
        last, moved = -1, time.monotonic()
        while (done := self.done) < total:
            if done != last:
                last, moved = done, time.monotonic()
                progress(done, total)
            if self._process.poll() is not None:
                raise Broken(f"the {self._role} ended at {done} of {total} jobs{self._last_words()}")
            if time.monotonic() - moved > patience:
                raise Broken(f"the {self._role} stands still at {done} of {total} jobs{self._last_words()}")
            time.sleep(_LOOK_EVERY)

    def _write(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Broken(f"the {self._role} ended{self._last_words()}") from None

    def _last_words(self) -> str:
        self._errors.seek(0)
        words = " ".join(self._errors.read().decode(errors="replace").split())
        return f": {words[-_LAST_WORDS:]}" if words else ""
