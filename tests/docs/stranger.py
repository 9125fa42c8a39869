"""A stranger who follows a page: writes its files, types its commands, starts its processes, pastes its Python.

Every page has a folder and an environment to itself. Commands run in one shell after the other, which hand on what was
exported. Processes that go on (`duly run`, a web server) stay until the page ends, or until it shows `^C`. Servers and
ports that a page names are replaced by ones that exist here.
"""

import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar, Self

import asyncpg
import redis

from duly.backends import open_seat
from duly.ports import Opening
from duly.testing.guard import free_port
from duly.testing.postgres_servers import PASSWORD, USER, postgres_server
from duly.testing.servers import etcd_binary, etcd_server, redis_server
from tests.docs.blocks import ROOT, Block, Command, commands
from tests.docs.notation import Memory, Mismatch
from tests.docs.unexecuted import LANGUAGES, reason

PATIENCE = 60.0
MOMENT = 10.0
LOOKING = r"duly (jobs|runs|show|explain|nodes|events)\b|curl -s(?!.* (-X|-d))"
HERE = Path(__file__).parent
HOME = "/srv/shop"  # what pages call the folder they are followed in

# Commands that do not end by themselves, and what they say when they are ready; None: they have said what is shown.
SERVICES = {
    r"(python manage\.py )?duly (run|scheduler|worker)\b": r"node \S+ started on ",
    r"duly serve\b": r"the API on ",
    r"duly events\b.* (-f|--follow)\b": None,
    r"curl -\w*N": None,
    r"python manage\.py runserver\b": r"Starting development server",
    r"flask\b.* run\b": r"Running on ",
    r"uvicorn\b": r"Application startup complete",
}
FOREIGN = ("DULY_", "REDIS_", "POSTGRES_", "ETCD_", "PG", "HTTP_", "WORKER_", "LOG_", "PYTEST_", "PYTHON", "COV_")


class Addresses:
    """Servers and ports that a page names, and those that stand for them here."""

    PORTS = ("8080", "8443", "9090", "9091", "9092", "8000", "8001", "8002", "5000")
    REDIS: ClassVar = {
        "localhost:6379": "{}",
        "redis://jobs.internal": "redis://{}",
        "redis://ring.internal:6379": "redis://{}",
    }
    POSTGRES: ClassVar = {
        "postgresql://jobs.internal/duly": "postgresql://{}/duly",
        "postgresql://duly@db.internal/jobs": "postgresql://duly@{}/jobs",
    }
    ETCD: ClassVar = {"etcd://e1.internal,e2.internal,e3.internal": "etcd://{}"}

    def __init__(self, text: str, stack: ExitStack) -> None:
        self._real: dict[str, str] = {}
        self.postgres = self._redis = ""
        if named := {shown: real for shown, real in self.REDIS.items() if shown in text}:
            self._redis = f"127.0.0.1:{stack.enter_context(redis_server()).port}"
            self._name(named, self._redis)
        if named := {shown: real for shown, real in self.POSTGRES.items() if shown in text}:
            server = stack.enter_context(postgres_server())
            for shown in named:
                database = shown.rpartition("/")[2]
                ask(server.url, f"CREATE DATABASE {database}")
                self.postgres = f"{server.url.rpartition('/')[0]}/{database}"
            self._name(named, f"127.0.0.1:{server.port}")
        self.etcd = ""
        if (named := {shown: real for shown, real in self.ETCD.items() if shown in text}) or "$ etcdctl" in text:
            self.etcd = stack.enter_context(etcd_server()).host
            self._name(named, self.etcd)
        self.ports = {port: str(free_port()) for port in self.PORTS}

    @classmethod
    def servers(cls, text: str) -> list[str]:
        """The kinds of servers that a page needs."""
        kinds = {"redis": cls.REDIS, "postgres": cls.POSTGRES}
        started = {"redis": "redis_server(", "postgres": "postgres_server("}
        return [kind for kind, names in kinds.items() if any(name in text for name in (*names, started[kind]))]

    def _name(self, shown: dict[str, str], place: str) -> None:
        self._real |= {name: real.format(place) for name, real in shown.items()}

    def real(self, text: str) -> str:
        for shown, real in self._real.items():
            text = text.replace(shown, real)
        return re.sub(r"(?<=[:\s])(\d{4})\b", lambda found: self.ports.get(found[1], found[1]), text)

    def shown(self, text: str) -> str:
        for shown, real in self._real.items():
            text = text.replace(real, shown)
        known = {real: shown for shown, real in self.ports.items()}
        return re.sub(r"(?<=:)(\d{4,5})\b", lambda found: known.get(found[1], found[1]), text)

    def tell_redis(self, text: str) -> None:
        """Give commands to the Redis server of the page."""
        with redis.Redis.from_url(f"redis://{self._redis}") as client:
            for line in text.splitlines():
                client.execute_command(*line.split())


def ask(url: str, sql: str) -> None:
    """Execute statements on a PostgreSQL server."""

    async def conversation() -> None:
        connection = await asyncpg.connect(url)
        try:
            await connection.execute(sql)
        finally:
            await connection.close()

    asyncio.run(conversation())


class Stranger:
    """One who follows one page."""

    def __init__(self, page: Path, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self._stack = stack
        self._memory = Memory()
        self._addresses = Addresses(page.read_text(encoding="utf-8"), stack)
        self._state = folder.parent / "state.sh"
        self._services = 0
        self._session: Session | None = None
        self._write_state()

    # --- blocks

    def follow(self, block: Block) -> None:
        if block.language in LANGUAGES:
            return
        if block.excerpt:
            self._place(block)
        elif block.file is not None:
            self._write(block)
        elif block.language == "console":
            for command in commands(block):
                self._type(command)
        elif block.language in {"python", "pycon"}:
            self._paste(block)
        elif block.language == "sql":
            ask(self._addresses.postgres, block.text)
        elif block.language == "redis":
            self._addresses.tell_redis(block.text)
        elif block.language == "url":
            for line in block.text.splitlines():
                open_seat(line.split()[0], Opening())
        else:
            raise Mismatch(f"line {block.line}: a block that is neither executed nor listed as not to be executed")

    def _place(self, block: Block) -> None:
        """An excerpt is what its file says, and the file, or the project that it is of, is there."""
        assert block.file is not None
        source = ROOT / block.file
        if block.text.strip("\n") not in source.read_text(encoding="utf-8"):
            raise Mismatch(f"line {block.line}: this is not in {block.file}")
        if source.is_relative_to(ROOT / "examples"):
            self._copy(ROOT / "examples" / source.relative_to(ROOT / "examples").parts[0])

    def _copy(self, source: Path) -> None:
        files = (
            [source] if source.is_file() else [path for path in source.rglob("*.*") if "__pycache__" not in path.parts]
        )
        for file in files:
            target = self.folder / file.relative_to(source.parent)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read_bytes())

    def _write(self, block: Block) -> None:
        assert block.file is not None
        path = self.folder / block.file
        path.parent.mkdir(parents=True, exist_ok=True)
        before = f"{path.read_text(encoding='utf-8')}\n\n" if block.added else ""
        path.write_text(before + self._addresses.real(block.text), encoding="utf-8")

    def _paste(self, block: Block) -> None:
        if self._session is None:
            self._session = self._stack.enter_context(Session(self._script("exec python", str(HERE / "session.py"))))
        if block.language == "python":
            self._session.run(self._addresses.real(block.text), f"line {block.line}")
            return
        for source, shown in examples(block.text):
            printed = self._session.run(self._addresses.real(source), f"line {block.line}", shown=bool(shown))
            if shown:
                self._memory.compare(shown, self._addresses.shown(printed))

    # --- commands

    def _type(self, command: Command) -> None:
        text = command.text.strip()
        if reason(text) is not None:
            return
        service = next((ready for start, ready in SERVICES.items() if re.match(rf"(\w+=\S* )*{start}", text)), "")
        try:
            real = self._memory.spoken(self._addresses.real(text))
            if service == "":
                self._run(real, command.shown)
            else:
                self._start(re.sub(r"\s*&\s*(#.*)?$", "", real), command.shown, service)
        except Mismatch as exc:
            raise Mismatch(f"line {command.line}: $ {command.text}\n{exc}") from None

    def _run(self, command: str, shown: str | None) -> None:
        """Run it to its end. A command that only looks is repeated until it shows what the page does."""
        deadline = time.monotonic() + MOMENT
        while True:
            done = subprocess.run(
                self._script(command, keep=True),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                timeout=PATIENCE,
            )
            try:
                self._judge(done.returncode, done.stdout, shown)
            except Mismatch:
                if time.monotonic() > deadline or not re.match(LOOKING, command):
                    raise
            else:
                return

    def _judge(self, code: int, printed: str, shown: str | None) -> None:
        printed = self._plain(printed)
        if shown is not None:
            self._memory.compare(shown, printed)
        if bool(code) != bool(re.search(r"^(Error: |problem )", shown or "", re.MULTILINE)):
            raise Mismatch(f"exit code {code}:\n{printed}")

    def _start(self, command: str, shown: str | None, ready: str | None) -> None:
        self._services += 1
        log = self.folder.parent / f"service-{self._services}.log"
        service = Service(self._script("exec env", *self._default_ports(command), command), log)
        self._stack.callback(service.end)
        before, interrupted, after = (shown or "").partition("^C")
        if not self._listen(service, before.strip("\n"), ready):
            self._judge(service.process.returncode, service.said(), shown)
            return
        if interrupted:
            service.interrupt()
            if not self._listen(service, after.strip("\n"), None):
                raise Mismatch(f"printed was:\n{self._plain(service.said())}")

    def _default_ports(self, command: str) -> list[str]:
        """Where a process listens that is not told: pages say which port that is."""
        if re.search(r"\bduly (scheduler|serve)\b", command):
            return [f"HTTP_ADDR=${{HTTP_ADDR:-127.0.0.1:{self._addresses.ports['8080']}}}"]
        if re.search(r"\bduly worker\b", command):
            return [f"WORKER_HTTP_ADDR=${{WORKER_HTTP_ADDR:-127.0.0.1:{self._addresses.ports['9090']}}}"]
        return []

    def _listen(self, service: "Service", shown: str, ready: str | None) -> bool:
        """Wait until it has said what is shown and is ready; False if it ended without that."""
        deadline = time.monotonic() + PATIENCE
        while True:
            ended = service.process.poll() is not None
            said = self._plain(service.said())
            heard = not shown or self._memory.follow(shown, said) == shown.count("\n") + 1
            if heard and (ready is None or re.search(ready, said)):
                return True
            if ended:
                return False
            if time.monotonic() > deadline:
                raise Mismatch(f"the page shows:\n{shown or ready}\nprinted was:\n{said}")
            time.sleep(0.02)

    def _plain(self, printed: str) -> str:
        """What was printed with the names that pages use."""
        text = printed.replace(str(self.folder), HOME).replace(sys.executable, "/usr/bin/python3")
        return self._addresses.shown(text)

    # --- the shell

    def _script(self, *words: str, keep: bool = False) -> list[str]:
        """A shell that goes on where the last one ended; with `keep`, the next one goes on where it ends."""
        lines = [f". {shlex.quote(str(self._state))}", " ".join(words)]
        if keep:
            lines += [
                "code=$?",
                f"{{ export -p; echo \"cd '$PWD'\"; }} > {shlex.quote(str(self._state))}",
                "exit $code",
            ]
        return ["/bin/sh", "-c", "\n".join(lines)]

    def _write_state(self) -> None:
        around = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        places = (Path(sys.executable).parent, around.get("PATH", ""), HERE / "tools", etcd_binary().parent)
        ports = self._addresses.ports
        around |= {
            "PATH": os.pathsep.join(map(str, places)),
            "EXAMPLES": str(ROOT / "examples"),
            "HOME": str(self.folder),
            "USER": "ada",
            "LOGNAME": "ada",
            "PYTHONUNBUFFERED": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # those that happen to be installed here
            "PYTEST_ADDOPTS": "-p duly.testing.plugin",
            "ETCDCTL_ENDPOINTS": self._addresses.etcd,
            "ETCDCTL_API": "3",
            "PGUSER": USER,
            "PGPASSWORD": PASSWORD,
            "FLASK_RUN_PORT": ports["5000"],
            "UVICORN_PORT": ports["8000"],
        }
        exports = "".join(
            f"export {name}={shlex.quote(value)}\n" for name, value in around.items() if name.isidentifier()
        )
        self._state.write_text(f"{exports}cd {shlex.quote(str(self.folder))}\n")


class Service:
    """A process that goes on while the page does."""

    def __init__(self, script: list[str], log: Path) -> None:
        self._log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                script, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )

    def said(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(PATIENCE)

    def end(self) -> None:
        """Ask it to stop; what does not is killed with all that it started."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                raise


class Session:
    """An interactive Python, in which `await` may stand at the top."""

    def __init__(self, script: list[str]) -> None:
        self._process = subprocess.Popen(script, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=PATIENCE)

    def run(self, code: str, place: str, *, shown: bool = False) -> str:
        """What the code prints, and with `shown` what it raises; otherwise an exception is a mismatch."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"code": code, "single": shown}) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if answer["error"] and not shown:
            raise Mismatch(f"{place}: {answer['error']}")
        return answer["printed"] + (answer["last"] if answer["error"] else "")


def examples(text: str) -> list[tuple[str, str]]:
    """The inputs after `>>>` and what the page shows after each."""
    found: list[tuple[str, str]] = []
    for line in text.splitlines():
        if line.startswith(">>> "):
            found.append((line[4:], ""))
        elif line.startswith("..."):
            source, shown = found.pop()
            found.append((f"{source}\n{line[4:]}", shown))
        else:
            source, shown = found.pop()
            found.append((source, f"{shown}{line}\n"))
    return [(source, shown.strip("\n")) for source, shown in found]
