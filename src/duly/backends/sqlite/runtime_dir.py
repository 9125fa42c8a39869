"""The place where the sessions on one store meet: a directory that only this user can enter, for sockets and the turn.

It is named by the file and the namespace, made when it is needed, and taken away by whoever leaves it last. All it
holds are courtesies: where it cannot be, or is somebody else's, everything works with timeouts and chance.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import stat
import tempfile
from pathlib import Path

_LONGEST_ADDRESS = 100
_LONGEST_NAME = 32
_TURN = "turn"
_BELL = ".bell"


class RuntimeDir:
    """One such directory."""

    def __init__(self, database: Path, namespace: str) -> None:
        name = hashlib.blake2b(f"{database}\0{namespace}".encode(errors="surrogateescape"), digest_size=8).hexdigest()
        user = os.getuid() if hasattr(os, "getuid") else 0
        self.directory = Path(tempfile.gettempdir(), f"duly-{user}-{name}")

    @property
    def turn(self) -> Path:
        """The file that whoever is next to write keeps locked."""
        return self.directory / _TURN

    def socket(self, name: str) -> str:
        """The address of the socket of that name."""
        return f"{self.directory}/{name}{_BELL}"

    def listeners(self) -> list[str]:
        """The names of all sockets."""
        return [file.stem for file in self.directory.iterdir() if file.suffix == _BELL]

    def make(self) -> bool:
        """See to it that the directory exists and is private; whether it is so."""
        if not hasattr(socket, "AF_UNIX") or len(str(self.directory)) > _LONGEST_ADDRESS - _LONGEST_NAME:
            return False
        try:
            self.directory.mkdir(mode=0o700, exist_ok=True)
            found = self.directory.lstat()
        except OSError:
            return False
        return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077

    def leave(self, name: str) -> None:
        """Take a socket away, and the directory if it was the last."""
        with contextlib.suppress(OSError):
            Path(self.socket(name)).unlink(missing_ok=True)
            if not self.listeners():
                self.turn.unlink(missing_ok=True)
                self.directory.rmdir()
