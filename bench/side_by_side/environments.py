"""Virtual environments: one per peer, made from its pinned requirements, kept until the requirements change.

Two runs at once may want the same environment: a lock on the folder makes the second wait for the first.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = ROOT / "bench" / "peers"
VENVS = ROOT / "bench" / ".venvs"


class CannotInstall(Exception):
    """An environment could not be made; the message is what pip said last."""


def environment(name: str, folder: Path = VENVS) -> Path:
    """The interpreter of the environment of that name, made first if it is missing or out of date."""
    folder.mkdir(parents=True, exist_ok=True)
    venv, requirements = folder / name, REQUIREMENTS / f"{name}.txt"
    python, mark = venv / "bin" / "python", venv / ".made-from"
    wanted = hashlib.sha256(requirements.read_bytes() + platform.python_version().encode()).hexdigest()
    with _locked(folder / f"{name}.lock"):
        if not (python.exists() and mark.exists() and mark.read_text() == wanted):
            mark.unlink(missing_ok=True)
            _run([sys.executable, "-m", "venv", "--clear", str(venv)])
            _run([str(python), "-m", "pip", "install", "--quiet", "--requirement", str(requirements)])
            mark.write_text(wanted)
    return python


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    handle = os.open(path, os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _run(command: list[str]) -> None:
    ended = subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if ended.returncode:
        errors = [line for line in ended.stderr.splitlines() if line.startswith("ERROR")] or ended.stderr.splitlines()
        raise CannotInstall(" ".join(errors[-3:]) or f"{command[0]} ended with {ended.returncode}")
