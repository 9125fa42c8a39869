"""The supervisor: a small process beside a worker that starts the worker's processes and lets none outlive it.

`supervised.SupervisedProcesses` runs it as a script, on the standard library alone and in one thread: forking here is
safe whatever the worker does, and "my parent died" (PR_SET_PDEATHSIG) means this process and not one thread of it.
Every process that it starts leads its own session. When such a process ends, the rest of its group is killed, and
so is whatever it had detached: the started processes and the supervisor are subreapers, so that a process which has
lost its parent stays below them. When the worker is gone, everything is.

In:  ["spawn", id, argv, env, cwd, n, confine] with n descriptors (stdout, stderr, more), ["kill", id, grace],
     ["limit", id, s]. confine is null, or what `runtime.confining.order_of` returns.
Out: ["spawned", id, pid], ["exited", id, wait status, whether it was asked to stop, [stage, errno, text] or null]
"""

from __future__ import annotations

import json
import math
import os
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NoReturn

_HEADER = struct.Struct("!I")
_LINK_FD = 3
_MAX_FDS = 8
_LONGEST_POLL = 3600.0  # the system counts milliseconds in 31 bits: 24.8 days
_PATIENCE = 1.0  # how long a report waits for detached processes to be dead as well
_FAREWELL = 5.0  # how long the shutdown waits for all processes to be dead
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_UNCHANGEABLE = {signal.SIGKILL, signal.SIGSTOP}


class Supervised:
    """One process that was started, from fork until its exit is known."""

    __slots__ = ("folder", "ident", "kill_at", "limit_at", "pid", "stopped", "trouble")

    def __init__(self, ident: int, pid: int, trouble: int, folder: str | None) -> None:
        self.ident = ident
        self.pid = pid
        self.folder = folder  # its private folder for temporary files
        self.trouble = trouble  # a pipe that says why the program could not be executed, empty if it could
        self.kill_at = math.inf
        self.limit_at = math.inf
        self.stopped = False

    def stop(self, now: float, grace: float) -> None:
        """SIGTERM now and SIGKILL after the grace, or SIGKILL now if there is none."""
        if grace > 0 and not self.stopped:
            signal_group(self.pid, signal.SIGTERM)
        self.stopped = True
        self.kill_at = min(self.kill_at, now + grace)

    def expire(self, now: float) -> None:
        if now >= min(self.kill_at, self.limit_at):
            signal_group(self.pid, signal.SIGKILL)
            self.kill_at = self.limit_at = math.inf

    def explain(self) -> list[Any] | None:
        """Why the program could not be executed, None if it was. Called once, when the process is dead."""
        try:
            said = os.read(self.trouble, 65536)
        finally:
            os.close(self.trouble)
        return list(json.loads(said)) if said else None


class Supervisor:
    """One loop over the link to the worker, the children that have ended, and the times at which to kill."""

    def __init__(self, link: socket.socket, worker: int) -> None:
        self._link = link
        self._worker = worker
        self._prctl = _load_prctl()
        self._inbox = bytearray()
        self._outbox = bytearray()
        self._fds: list[int] = []  # received, in order, and not yet claimed by a spawn
        self._processes: dict[int, Supervised] = {}  # by pid
        self._pids: dict[int, int] = {}  # by id
        self._removers: set[int] = set()  # processes that delete folders
        self._exits: list[list[Any]] = []  # to be reported when nothing of theirs is left
        self._patience = math.inf

    def run(self) -> None:
        """Serve until the worker is gone, then kill everything."""
        self._prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        watched = select.poll()
        watched.register(self._link, select.POLLIN)
        ended_children = _pipe_of_ended_children()
        watched.register(ended_children, select.POLLIN)
        worker = _watch(self._worker)
        if worker is not None:
            watched.register(worker, select.POLLIN)
        try:
            while os.getppid() == self._worker and self._serve(watched, ended_children):
                pass
        finally:
            self._finish(ended_children)

    def _serve(self, watched: select.poll, ended_children: int) -> bool:
        """One round; False when the worker has closed the link."""
        watched.modify(self._link, select.POLLIN | (select.POLLOUT if self._outbox else 0))
        ready = {fd for fd, _ in watched.poll(self._milliseconds())}
        if ended_children in ready:
            _drain(ended_children)
        alive = self._receive() if self._link.fileno() in ready else True
        now = time.monotonic()
        for process in self._processes.values():
            process.expire(now)
        self._reap(now)
        self._flush()
        return alive

    def _milliseconds(self) -> float:
        """Seconds until the next action is due, at most what `poll` accepts."""
        times = [
            self._patience,
            *(min(process.kill_at, process.limit_at) for process in self._processes.values()),
        ]
        left = min(times) - time.monotonic()
        return max(0.0, min(left, _LONGEST_POLL) * 1000 + 1)

    def _receive(self) -> bool:
        try:
            data, ancillary, flags, _ = self._link.recvmsg(
                65536, socket.CMSG_SPACE(4 * _MAX_FDS), getattr(socket, "MSG_CMSG_CLOEXEC", 0)
            )
        except BlockingIOError:
            return True
        except OSError:
            return False
        for _, _, packed in ancillary:
            self._fds.extend(struct.unpack(f"{len(packed) // 4}i", packed[: len(packed) // 4 * 4]))
        if flags & socket.MSG_CTRUNC:
            raise OSError("the supervisor has no file descriptors left")
        self._inbox += data
        for frame in self._frames():
            self._obey(json.loads(frame))
        return bool(data)

    def _frames(self) -> Iterator[bytes]:
        while len(self._inbox) >= _HEADER.size:
            end = _HEADER.size + _HEADER.unpack_from(self._inbox)[0]
            if len(self._inbox) < end:
                return
            frame = bytes(self._inbox[_HEADER.size : end])
            del self._inbox[:end]
            yield frame

    def _obey(self, order: list[Any]) -> None:
        match order:
            case ["spawn", ident, argv, env, cwd, count, confine]:
                fds, self._fds = self._fds[:count], self._fds[count:]
                self._spawn(ident, argv, env, cwd, fds, confine or {})
            case ["kill", ident, grace]:
                if (process := self._processes.get(self._pids.get(ident, 0))) is not None:
                    process.stop(time.monotonic(), grace)
            case ["limit", ident, seconds]:
                if (process := self._processes.get(self._pids.get(ident, 0))) is not None:
                    process.limit_at = math.inf if seconds is None else time.monotonic() + seconds

    def _spawn(
        self, ident: int, argv: list[str], env: dict[str, str], cwd: str, fds: list[int], confine: dict[str, Any]
    ) -> None:
        stage, folder = "fork", None
        try:
            if confine.get("private_tmp"):
                stage = "confine"
                folder = _private_folder(confine)
                env = {**env, **dict.fromkeys(("TMPDIR", "TMP", "TEMP"), folder)}
            stage = "fork"
            pid, said = self._fork(argv, env, cwd, fds, confine)
        except OSError as exc:
            self._remove(folder)
            self._say(["exited", ident, 127 << 8, False, [stage, exc.errno, str(exc)]])
        else:
            self._processes[pid] = Supervised(ident, pid, said, folder)
            self._pids[ident] = pid
            self._say(["spawned", ident, pid])
        finally:
            for fd in fds:
                os.close(fd)

    def _fork(
        self, argv: list[str], env: dict[str, str], cwd: str, fds: list[int], confine: dict[str, Any]
    ) -> tuple[int, int]:
        supervisor = os.getpid()
        said, say = os.pipe()
        try:
            pid = os.fork()
            if pid == 0:
                self._become(argv, env, cwd, fds, say, supervisor, confine)
        except OSError:
            os.close(said)
            raise
        finally:
            os.close(say)
        return pid, said

    def _become(
        self,
        argv: list[str],
        env: dict[str, str],
        cwd: str,
        fds: list[int],
        say: int,
        supervisor: int,
        confine: dict[str, Any],
    ) -> NoReturn:
        """In the new process: execute the program. On failure, write the reason to a pipe."""
        stage = "start"
        try:
            signal.set_wakeup_fd(-1)
            os.setsid()
            self._prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            self._prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            if os.getppid() != supervisor:  # the parent died before PR_SET_PDEATHSIG was set
                os._exit(127)
            for number in signal.valid_signals() - _UNCHANGEABLE:  # the node's parent may have ignored some
                signal.signal(number, signal.SIG_DFL)
            for target, fd in enumerate(fds, start=1):  # every fd is above the link's, so none is overwritten
                os.dup2(fd, target)
            if confine:
                stage = "confine"
                self._confine(confine)
                if os.getppid() != supervisor:  # as above: a change of the user has cleared PR_SET_PDEATHSIG
                    os._exit(127)
            stage = "cwd"
            os.chdir(cwd)
            stage = "exec"
            os.execvpe(argv[0], argv, env)  # noqa: S606  # no shell is the point
        except BaseException as exc:  # noqa: BLE001  # nothing may return into the supervisor's own loop from here
            os.write(say, json.dumps([stage, getattr(exc, "errno", None), str(exc)[:1000]]).encode())
        os._exit(127)

    def _confine(self, confine: dict[str, Any]) -> None:
        """In the new process: apply limits and rights. The limit of memory is last, because it applies here, too."""
        import resource  # noqa: PLC0415  # few nodes need it

        if confine["umask"] is not None:
            os.umask(confine["umask"])
        if "user" in confine:
            uid, gid, groups = confine["user"]
            os.setgroups(groups)
            os.setgid(gid)
            os.setuid(uid)
            self._prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if confine["no_new_privileges"] and self._prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            raise OSError("no_new_privileges is not available on this system")
        for name, limit, more in (("NOFILE", "open_files", 0), ("CPU", "cpu_seconds", 1), ("AS", "memory", 0)):
            if confine[limit] is not None:
                kind = getattr(resource, f"RLIMIT_{name}")
                most = resource.getrlimit(kind)[1]  # a lower limit of the node itself stays
                hard = confine[limit] + more if most == resource.RLIM_INFINITY else min(confine[limit] + more, most)
                resource.setrlimit(kind, (min(confine[limit], hard), hard))

    def _remove(self, folder: str | None) -> None:
        """Delete a private folder, in a process of its own: that may take long."""
        if folder is None:
            return
        with suppress(OSError):
            pid = os.fork()
            if pid == 0:
                _delete(folder)
            self._removers.add(pid)

    def _reap(self, now: float) -> None:
        """Reap ended processes, kill what they left behind, and report them when none of it is alive."""
        for pid, buried in _dead():
            process = self._processes.pop(pid, None)
            if process is not None:
                signal_group(pid, signal.SIGKILL)  # before reaping it: until then no other process can have its pid
            status = _bury(pid) if buried is None else buried
            self._removers.discard(pid)
            if process is not None:
                self._remove(process.folder)
                del self._pids[process.ident]
                self._exits.append(["exited", process.ident, status, process.stopped, process.explain()])
                self._patience = min(self._patience, now + _PATIENCE)
        if self._exits and (not self._kill_strays() or now >= self._patience):
            for exited in self._exits:
                self._say(exited)
            self._exits.clear()
            self._patience = math.inf

    def _kill_strays(self) -> bool:
        """Kill every child that was not started here: its parent is dead, so it has been left behind."""
        strays = [pid for pid in _children() if pid not in self._processes and pid not in self._removers]
        for pid in strays:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        return bool(strays)

    def _say(self, message: list[Any]) -> None:
        body = json.dumps(message).encode()
        self._outbox += _HEADER.pack(len(body)) + body

    def _flush(self) -> None:
        with suppress(OSError):  # full: sent in the next round; gone: the next receive fails
            while self._outbox:
                del self._outbox[: self._link.send(self._outbox)]

    def _finish(self, ended_children: int) -> None:
        """The worker is gone: nothing that it started may go on."""
        for pid in self._processes:
            signal_group(pid, signal.SIGKILL)
        deadline = time.monotonic() + _FAREWELL
        while time.monotonic() < deadline:
            for pid, buried in _dead():
                if (process := self._processes.pop(pid, None)) is not None:
                    signal_group(pid, signal.SIGKILL)  # again: it may have been forking during the first pass
                if buried is None:
                    _bury(pid)
                self._removers.discard(pid)
                self._remove(None if process is None else process.folder)
            if not self._kill_strays() and not self._processes:
                return
            select.select([ended_children], [], [], 0.05)
            _drain(ended_children)


def signal_group(pid: int, number: int) -> None:
    """Signal the process group of a process, or the process alone if it has not made its group yet."""
    with suppress(OSError):
        try:
            os.killpg(pid, number)
        except ProcessLookupError:
            os.kill(pid, number)


def _private_folder(confine: dict[str, Any]) -> str:
    """A new folder that only the user of the process can enter."""
    folder = f"{os.environ.get('TMPDIR') or '/tmp'}/duly-{os.urandom(8).hex()}"  # noqa: S108  # its name is unknown
    os.mkdir(folder, 0o700)  # noqa: PTH102  # pathlib would cost memory
    if "user" in confine:
        os.chown(folder, *confine["user"][:2])
    return folder


def _delete(folder: str) -> NoReturn:
    """In a new process: delete a folder and end."""
    try:
        import shutil  # noqa: PLC0415  # few nodes need it

        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os._exit(0)


def _load_prctl() -> Callable[..., int]:
    """The system call; a function that does nothing where it does not exist."""
    if sys.platform == "linux":
        with suppress(ImportError, OSError, AttributeError):
            import ctypes  # noqa: PLC0415  # not every Python has it

            return ctypes.CDLL(None).prctl
    return lambda *_: -1


def _dead() -> Iterator[tuple[int, int | None]]:
    """The zombie children. Where the system cannot list them without reaping them: with their status."""
    with suppress(ChildProcessError):
        if not hasattr(os, "waitid"):
            while (buried := os.waitpid(-1, os.WNOHANG))[0] > 0:
                yield buried
            return
        while (dead := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            yield dead.si_pid, None


def _bury(pid: int) -> int:
    return os.waitpid(pid, 0)[1]


def _children() -> list[int]:
    """The children of this process, the dead included; empty where the system has no such list."""
    me = os.getpid()
    try:
        with open(f"/proc/self/task/{me}/children", "rb") as listing:  # noqa: PTH123  # pathlib would cost memory
            return [int(word) for word in listing.read().split()]
    except OSError:
        return [pid for pid in _processes() if _parent(pid) == me]


def _processes() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208  # as above
    except OSError:
        return []


def _parent(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:  # noqa: PTH123  # as above
            return int(stat.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return None


def _watch(pid: int) -> int | None:
    """A descriptor that becomes readable when the process dies: a fork of the worker may keep the link open."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _pipe_of_ended_children() -> int:
    """A descriptor that becomes readable with every SIGCHLD."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    return reader


def _drain(ended_children: int) -> None:
    with suppress(BlockingIOError):
        while os.read(ended_children, 4096):
            pass


def main() -> None:
    """Called with the descriptor of the link and the worker's pid."""
    inherited, worker = int(sys.argv[1]), int(sys.argv[2])
    if inherited != _LINK_FD:
        os.dup2(inherited, _LINK_FD, inheritable=False)
        os.close(inherited)
    os.set_inheritable(_LINK_FD, False)
    for name in ("SIGTERM", "SIGINT", "SIGHUP"):  # the worker decides when to end, and says so by closing the link
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    os.chdir("/")
    link = socket.socket(fileno=_LINK_FD)
    link.setblocking(False)
    Supervisor(link, worker).run()


if __name__ == "__main__":
    main()
