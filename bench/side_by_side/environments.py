"""Environments: one per peer, made from its pinned requirements, kept until the requirements change.

A Python peer has a virtual environment (`bench/peers/NAME.txt`), a Node peer a folder of packages
(`bench/peers/NAME/package-lock.json`).

Two runs at once may want the same environment: a lock on the folder makes the second wait for the first.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = ROOT / "bench" / "peers"
VENVS = ROOT / "bench" / ".venvs"


_NODE_ADAPTERS = ROOT / "bench" / "side_by_side" / "adapters" / "node" / "main.cjs"

Command = tuple[str, ...]


class CannotInstall(Exception):
    """An environment could not be made; the message is what pip or npm said last."""


def command(name: str, runtime: str, folder: Path = VENVS) -> Command:
    """The program that runs the adapter of this peer, in its environment, which is made first if needed."""
    if runtime == "node":
        return ("node", str(_NODE_ADAPTERS), str(node_packages(name, folder)))
    return python_command(environment(name, folder))


def python_command(python: Path) -> Command:
    """The program that runs a Python adapter with this interpreter."""
    return (str(python), "-m", "bench.side_by_side.adapters")


def environment(name: str, folder: Path = VENVS) -> Path:
    """The interpreter of the environment of that name, made first if it is missing or out of date."""
    requirements, venv = REQUIREMENTS / f"{name}.txt", folder / name
    python = venv / "bin" / "python"
    with _making(folder, name, requirements.read_bytes() + platform.python_version().encode(), python) as needed:
        if needed:
            _run([sys.executable, "-m", "venv", "--clear", str(venv)])
            _run([str(python), "-m", "pip", "install", "--quiet", "--requirement", str(requirements)])
    return python


def node_packages(name: str, folder: Path = VENVS) -> Path:
    """The folder of the packages of a Node peer, made first if it is missing or out of date."""
    if shutil.which("npm") is None:
        raise CannotInstall("it needs Node.js and npm")
    pinned, packages = REQUIREMENTS / name, folder / name
    with _making(folder, name, (pinned / "package-lock.json").read_bytes(), packages / "node_modules") as needed:
        if needed:
            packages.mkdir(exist_ok=True)
            for file in ("package.json", "package-lock.json"):
                shutil.copy(pinned / file, packages / file)
            # Not `npm ci`: it refuses lock files without the optional packages of other systems.
            _run(["npm", "install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund"], packages)
    return packages


@contextmanager
def _making(folder: Path, name: str, pinned: bytes, result: Path) -> Iterator[bool]:
    """Whether an environment is to be made; what it was made from is noted when the block ends well."""
    folder.mkdir(parents=True, exist_ok=True)
    mark, wanted = folder / name / ".made-from", hashlib.sha256(pinned).hexdigest()
    with _locked(folder / f"{name}.lock"):
        if result.exists() and mark.exists() and mark.read_text() == wanted:
            yield False
            return
        mark.unlink(missing_ok=True)
        yield True
        mark.write_text(wanted)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    handle = os.open(path, os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _run(words: list[str], folder: Path | None = None) -> None:
    ended = subprocess.run(words, check=False, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if ended.returncode:
        said = ended.stderr.splitlines()
        errors = [line for line in said if line.lower().startswith(("error", "npm error"))] or said
        raise CannotInstall(" ".join(errors[-3:]) or f"{words[0]} ended with {ended.returncode}")
