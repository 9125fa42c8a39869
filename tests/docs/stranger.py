"""A stranger who follows a page: writes its files, types its commands, starts its processes, pastes its Python.

Every page has a folder and an environment to itself. Commands run in one shell after the other, which hand on what was
exported. Processes that go on (`duly run`, a web server) stay until the page ends, or until it shows `^C`. Servers and
ports that a page names are replaced by ones that exist here.
"""

import os
import re
import shlex
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from duly.backends import open_coordinator
from duly.ports import Opening
from duly.testing.postgres_servers import PASSWORD, USER
from duly.testing.servers import etcd_binary
from tests.docs.addresses import Addresses, ask
from tests.docs.blocks import ROOT, Block, Command, commands, examples
from tests.docs.notation import Memory, Mismatch
from tests.docs.processes import PATIENCE, Service, Session
from tests.docs.unexecuted import LANGUAGES, reason

MOMENT = 10.0  # for commands that only look: what they shall show may take a moment
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
    r"python receiver\.py\b": r"receiving",
}
FOREIGN = ("DULY_", "REDIS_", "POSTGRES_", "ETCD_", "PG", "HTTP_", "WORKER_", "LOG_", "PYTEST_", "PYTHON", "COV_")


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
                open_coordinator(line.split()[0], Opening())
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
        for file in [source] if source.is_file() else source.rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts:
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
        ours = re.search(r"\bduly\b", command) is not None
        service = Service(self._script("exec env", *self._default_ports(command), command), log, graceful=ours)
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

    def _listen(self, service: Service, shown: str, ready: str | None) -> bool:
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
        env = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        places = (Path(sys.executable).parent, env.get("PATH", ""), HERE / "tools", etcd_binary().parent)
        ports = self._addresses.ports
        env |= {
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
        exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in env.items() if name.isidentifier())
        self._state.write_text(f"{exports}cd {shlex.quote(str(self.folder))}\n")
