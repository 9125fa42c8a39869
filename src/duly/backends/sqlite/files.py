"""Where the database is and how it is opened, read from a URL.

sqlite:///relative.db    sqlite:////absolute/path.db    sqlite:///jobs.db?synchronous=full&busy_timeout=2.5
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import re
import socket
import stat
import tempfile
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct

from duly.errors import ConfigurationError
from duly.rules.redaction import redacted

_NAMESPACE = re.compile(r"[a-z][a-z0-9_]{0,31}")
_SYNCHRONOUS = ("normal", "full")


class Place(Struct, frozen=True):
    """A database file and the options it is opened with. `busy_timeout` is in seconds."""

    path: Path
    synchronous: str = "normal"
    busy_timeout: float = 5.0


def parse(url: str) -> Place:
    """Read a URL. A relative path is resolved now, against the current directory."""
    parts = urlsplit(url)
    path = unquote(parts.path)
    if parts.scheme != "sqlite" or parts.netloc or len(path) < 2 or path.endswith("/"):
        raise ConfigurationError(
            f"{redacted(url)!r} names no SQLite file:"
            " sqlite:///relative.db or sqlite:////absolute/path.db (mind the slashes)"
        )
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    place = Place(Path(path[1:]).absolute(), _synchronous(options), _busy_timeout(options))
    if options:
        raise ConfigurationError(
            f"{redacted(url)!r} has an unknown option {next(iter(options))!r}: known are synchronous and busy_timeout"
        )
    return place


def _synchronous(options: dict[str, str]) -> str:
    value = options.pop("synchronous", "normal").lower()
    if value not in _SYNCHRONOUS:
        raise ConfigurationError(f"synchronous={value!r} is not possible: normal or full")
    return value


def _busy_timeout(options: dict[str, str]) -> float:
    text = options.pop("busy_timeout", "5")
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= 3600:
        raise ConfigurationError(f"busy_timeout={text!r} is not possible: seconds, from 0 to 3600")
    return seconds


def checked_namespace(namespace: str) -> str:
    """The namespace, if it can be the beginning of a table's name."""
    if _NAMESPACE.fullmatch(namespace) is None:
        raise ConfigurationError(
            f"namespace {namespace!r} is not possible on SQLite: a small letter, then small letters, digits or _,"
            " at most 32 in all"
        )
    return namespace


_MOUNTS = Path("/proc/self/mountinfo")

# Locks and shared memory do not reach across machines there, or not reliably.
_REMOTE = frozenset(
    {"nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "ncpfs", "afs", "ceph", "lustre", "glusterfs", "gpfs", "davfs"}
)
_REMOTE_FUSE = frozenset(
    {"sshfs", "s3fs", "rclone", "glusterfs", "ceph", "curlftpfs", "davfs2", "gcsfuse", "juicefs", "mfs", "vmhgfs-fuse"}
)
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})


def network_file_system(directory: Path) -> str | None:
    """The type of the network file system that holds a directory; None when it is local or unknown."""
    kind = _kind_of(directory)
    return kind if kind is not None and is_remote(kind) else None


def memory_file_system(directory: Path) -> str | None:
    """The type of the file system in memory that holds a directory; None when it is on a disk or unknown."""
    kind = _kind_of(directory)
    return kind if kind in _IN_MEMORY else None


def _kind_of(directory: Path) -> str | None:
    try:
        mounts = _MOUNTS.read_text(errors="surrogateescape")
    except OSError:
        return None
    return file_system_of(directory.resolve(), mounts)


def is_remote(kind: str) -> bool:
    """Whether a type of file system, as the kernel names it, lives on another machine."""
    return kind in _REMOTE or kind.removeprefix("fuse.") in _REMOTE_FUSE


def file_system_of(path: Path, mounts: str) -> str | None:
    """The type of the file system that holds an absolute path, by the text of `mountinfo`."""
    best: tuple[int, str] | None = None
    for line in mounts.splitlines():
        mount = _mount(line)
        if mount is None or not path.is_relative_to(mount[0]):
            continue
        depth = len(Path(mount[0]).parts)
        if best is None or depth >= best[0]:  # of two mounts on one point the later hides the earlier
            best = (depth, mount[1])
    return None if best is None else best[1]


def _mount(line: str) -> tuple[str, str] | None:
    """Mount point and type: the fifth field, and the first one after the dash that ends the optional fields."""
    fields = line.split(" ")
    try:
        dash = fields.index("-", 6)
        return _unescaped(fields[4]), fields[dash + 1]
    except (ValueError, IndexError):
        return None


def _unescaped(text: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text


_LONGEST_ADDRESS = 100
_LONGEST_NAME = 32
_TURN = "turn"
_SOCKET = ".bell"  # as 0.1.0 names them


class RuntimeDir:
    """One such directory."""

    def __init__(self, database: Path, namespace: str) -> None:
        name = hashlib.blake2b(f"{database}\0{namespace}".encode(errors="surrogateescape"), digest_size=8).hexdigest()
        user = os.getuid() if hasattr(os, "getuid") else 0
        self.directory = Path(tempfile.gettempdir(), f"duly-{user}-{name}")

    @property
    def turn(self) -> Path:
        """The file that the next writer keeps locked."""
        return self.directory / _TURN

    def socket(self, name: str) -> str:
        """The address of the socket of that name."""
        return f"{self.directory}/{name}{_SOCKET}"

    def listeners(self) -> list[str]:
        """The names of all sockets."""
        return [file.stem for file in self.directory.iterdir() if file.suffix == _SOCKET]

    def make(self) -> bool:
        """Make sure that the directory exists and is private; returns whether that succeeded."""
        if not hasattr(socket, "AF_UNIX") or len(str(self.directory)) > _LONGEST_ADDRESS - _LONGEST_NAME:
            return False
        try:
            self.directory.mkdir(mode=0o700, exist_ok=True)
            found = self.directory.lstat()
        except OSError:
            return False
        return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077

    def leave(self, name: str) -> None:
        """Remove a socket, and the directory if it was the last."""
        with contextlib.suppress(OSError):
            Path(self.socket(name)).unlink(missing_ok=True)
            if not self.listeners():
                self.turn.unlink(missing_ok=True)
                self.directory.rmdir()
