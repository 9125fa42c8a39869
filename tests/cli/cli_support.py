"""What the tests of the command line share: invoking it here or as a process, and a store with a past."""

import asyncio
import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import termios
import time
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from click.testing import CliRunner

from duly import Cron, Every, RunNotCompleted, Scheduler, SchedulerConfig
from duly.cli import cli

APP = '''
import asyncio
from duly import Every, Scheduler

scheduler = Scheduler()

@scheduler.job(Every(seconds=1))
async def beat() -> None:
    """Every second."""

@scheduler.job(queue="mail")
async def greet(name: str, times: int = 1) -> str:
    return " ".join([f"hello {name}"] * times)

@scheduler.job(retry=None)
async def explode() -> None:
    raise ValueError("kaboom")

@scheduler.job
async def linger(seconds: float, mark: str) -> str:
    open(f"{mark}.begun", "w").close()
    await asyncio.sleep(seconds)
    open(f"{mark}.ended", "w").close()
    return mark

@scheduler.job
async def whoami() -> str:
    import os
    return str(os.getpid())
'''


def invoke(*arguments: str, code: int = 0, **environment: str):
    """Run the command in this process; the exit code must be as expected."""
    result = CliRunner().invoke(cli, arguments, env=environment, prog_name="duly", catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result


def document(*arguments: str):
    """The JSON document that a command writes."""
    return json.loads(invoke(*arguments, "--json").stdout)


def until(check, what: str = "", seconds: float = 40.0):
    """Wait until a condition holds and return what it returned; fail loudly if it never does."""
    deadline = time.monotonic() + seconds
    while not (value := check()):
        assert time.monotonic() < deadline, f"it never came true: {what or check}"
        time.sleep(0.02)
    return value


def spawn(
    *arguments: str, folder: Path, stderr: int | TextIO = subprocess.PIPE, **environment: str
) -> subprocess.Popen[str]:
    """Start `python -m duly` as a process of its own, in a session of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "duly", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        start_new_session=True,
    )


def run_process(*arguments: str, folder: Path, **environment: str) -> tuple[int, str, str]:
    """Run `python -m duly` to its end: exit code, output, errors."""
    process = spawn(*arguments, folder=folder, **environment)
    output, errors = process.communicate(timeout=60)
    return process.returncode, output, errors


def run_on_terminal(*arguments: str, folder: Path, columns: int = 80, **environment: str) -> tuple[int, str]:
    """Run `python -m duly` with a terminal of that width in front of it: exit code, and all that it wrote there."""
    reader, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    env = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    process = subprocess.Popen(
        [sys.executable, "-m", "duly", *arguments],
        cwd=folder,
        env={**env, "TERM": "xterm-256color", **environment},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    )
    os.close(terminal)
    written = bytearray()
    with suppress(OSError):  # the other end is closed when the process has ended
        while part := os.read(reader, 65536):
            written += part
    os.close(reader)
    return process.wait(timeout=60), written.decode()


class Nodes:
    """`duly run` processes that are ended with the test, whatever happens."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        process = spawn("run", "app", *arguments, folder=self.folder, **{"DULY_URL": self.url, **environment})
        self.processes.append(process)
        return process

    def alive(self) -> list[int]:
        """The processes that have announced themselves."""
        return [node.pid for node in ask(self.url, lambda scheduler: scheduler.nodes())]

    def ready(self, *processes: subprocess.Popen[str]) -> None:
        """Wait until these have announced themselves."""
        wanted = {process.pid for process in processes}

        def check() -> bool:
            for process in processes:
                assert process.poll() is None, process.communicate()
            return Path(self.url.removeprefix("sqlite:///")).exists() and wanted <= set(self.alive())

        until(check, "the nodes are up")

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.communicate()


def ask(url: str, question):
    """Ask a store something, as the command line does."""

    async def conversation():
        async with Scheduler(url).client() as scheduler:
            return await question(scheduler)

    return asyncio.run(conversation())


def shop(url: str) -> Scheduler:
    """A scheduler with jobs of every kind. It plans nothing: what is due does not depend on when tests are run."""
    scheduler = Scheduler(url, SchedulerConfig(roles=("worker",)))

    @scheduler.job(Cron("30 2 * * *", timezone="America/New_York"), tags=["billing", "night"])
    async def nightly() -> None:
        """Build the nightly report."""

    @scheduler.job(Every(hours=6), tags=["billing"])
    async def invoice() -> None: ...

    @scheduler.job(queue="mail", priority=3)
    async def greet(name: str) -> str:
        return f"hello {name}"

    @scheduler.job(retry=None)
    async def explode() -> None:
        raise ValueError("ka[b]oom \x1b[31m")

    return scheduler


async def make_past(url: str) -> dict[str, str]:
    """A store in which something has happened; the ids of its runs."""
    scheduler = shop(url)
    async with scheduler:
        good = await scheduler.submit("greet", {"name": "Ada"})
        assert await good.result(timeout=30) == "hello Ada"
        bad = await scheduler.trigger("explode")
        with suppress(RunNotCompleted):
            await bad.result(timeout=30)
        later = await scheduler.submit("greet", {"name": "Bob"}, delay=3600)
    return {"good": good.id, "bad": bad.id, "later": later.id}
