"""What must never be in the source: ways from data to code."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "duly"
MODULES = sorted(SOURCE.rglob("*.py"))

FORBIDDEN_MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "yaml", "code", "runpy"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}

# Who may import by name, and whose name it is.
IMPORTERS = {
    "__init__.py": "our own modules, late",
    "deprecation.py": "our own modules, late",
    "runtime/executors/__init__.py": "our own modules, late",
    "runtime/executors/import_path.py": "the module of a handler that code registered, in its process",
    "scheduler/scheduler.py": "`imports` of the settings",
    "cli/app.py": "the program named on the command line",
    "cli/group.py": "our own commands, late",
    "backends/__init__.py": "our own backends, late",
}

# Who may look at the clock of this machine, and what for. Everything else goes by the store's clock (`Backend.clock`).
CLOCK_READERS = {
    "ports/clock.py": "the clock of the machine itself",
    "ports/backend.py": "what a backend is given until it knows the store's",
    "backends/redis/backend.py": "what the store's clock is measured with",
    "backends/postgres/connection.py": "what the store's clock is measured with",
    "backends/redis/doctor.py": "the doctor compares both",
    "backends/sqlite/notify.py": "compared with the times of files, which are the machine's",
    "scheduler/scheduler.py": "what the store's clock is measured with",
    "api/app.py": "monotonic time of rates",
    "api/config.py": "the time of answers while the store has never been reached",
    "cli/doctor.py": "shows it",
    "cli/job_files.py": "`duly check` works without a store",
    "cli/next.py": "previews an expression without a store",
    "cli/notify.py": "a test of targets works without a store",
    "rules/calendar_sources.py": "which years of holidays to look up, when a calendar is created",
    "runtime/notify/webhook.py": "the time in a signature, which the receiver compares with its own clock",
}
_NOT_IN_A_CLUSTER = ("cli/bench/", "cli/demo/", "testing/")
_WALL_CLOCKS = {("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today"), ("date", "today"), ("time", "time")}
_WALL_CLOCKS |= {("time", "time_ns"), ("time", "localtime"), ("time", "gmtime")}


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.relative_to(SOURCE)))
def test_only_those_listed_read_the_clock_of_this_machine(module):
    place = module.relative_to(SOURCE).as_posix()
    if place in CLOCK_READERS or place.startswith(_NOT_IN_A_CLUSTER):
        return
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr=name)):
                assert (owner, name) not in _WALL_CLOCKS, f"line {node.lineno}: ask the store's clock"
            case ast.Call(func=ast.Name(id="SystemClock")):
                pytest.fail(f"line {node.lineno}: ask the store's clock")
            case _:
                pass


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.relative_to(SOURCE)))
def test_no_data_becomes_code(module):
    tree = ast.parse(module.read_text(encoding="utf-8"))
    place = module.relative_to(SOURCE).as_posix()
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                assert not {alias.name.partition(".")[0] for alias in names} & FORBIDDEN_MODULES
            case ast.ImportFrom(module=str(name)):
                assert name.partition(".")[0] not in FORBIDDEN_MODULES
            case ast.Call(func=ast.Name(id=name)):
                assert name not in FORBIDDEN_CALLS
                assert name != "import_module" or place in IMPORTERS
            case ast.Call(func=ast.Attribute(attr="import_module")):
                assert place in IMPORTERS, "only what is listed here imports by name"
            case _:
                pass
