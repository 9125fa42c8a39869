"""Processes that go on while a page is followed: services, and one interactive Python."""

import json
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.docs.notation import Mismatch

PATIENCE = 60.0


class Service:
    """A process that goes on while the page does. A graceful one ends by itself, and well, when it is asked to."""

    def __init__(self, script: list[str], log: Path, *, graceful: bool) -> None:
        self._log = log
        self._graceful = graceful
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                script, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )

    def said(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(PATIENCE)

    def end(self) -> None:
        """Ask it to stop; whatever it started and left running is killed."""
        try:
            if self.process.poll() is None:
                self.process.terminate()
                code = self.process.wait(PATIENCE)
                if self._graceful and code:
                    raise Mismatch(f"exit code {code} after SIGTERM:\n{self.said()}")
        finally:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)


class Session:
    """An interactive Python, in which `await` may stand at the top."""

    def __init__(self, script: list[str]) -> None:
        self._process = subprocess.Popen(script, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=PATIENCE)

    def run(self, code: str, place: str, *, shown: bool = False) -> str:
        """What the code prints, and with `shown` what it raises; otherwise an exception is a mismatch."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"code": code, "single": shown}) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if answer["error"] and not shown:
            raise Mismatch(f"{place}: {answer['error']}")
        return answer["printed"] + (answer["last"] if answer["error"] else "")
