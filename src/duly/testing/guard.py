"""The guard of a server: a small shell that waits for the end of a pipe held by this process, then kills the server."""

from __future__ import annotations

import os
import socket
import subprocess  # starting servers is what this is for
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_GUARD = '"$@" </dev/null >/dev/null 2>>"$DULY_SERVER_LOG" & echo $!; read _; kill -9 $! 2>/dev/null; wait'


def guarded(command: Sequence[str], folder: Path, log: Path) -> tuple[subprocess.Popen[bytes], int]:
    """Start a server under its own guard; returns the guard (closing its pipe ends both) and the server's pid."""
    guard = subprocess.Popen(  # noqa: S603
        ["/bin/sh", "-c", _GUARD, "guard", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=folder,
        env=os.environ | {"DULY_SERVER_LOG": str(log)},
        start_new_session=True,  # Ctrl-C is for the tests, not for the servers
    )
    assert guard.stdout is not None
    return guard, int(guard.stdout.readline())


def free_port() -> int:
    """A port that is free at the moment; a cluster needs another one, higher by ten thousand."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        if port + 10_000 < 65_536:
            return port


@contextmanager
def own_folder(given: Path | None, prefix: str) -> Iterator[Path]:
    """The given folder, created if necessary; else a temporary one."""
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        yield given
        return
    with tempfile.TemporaryDirectory(prefix=prefix) as made:
        yield Path(made)
