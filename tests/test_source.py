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
    "runtime/executors/__init__.py": "our own modules, late",
    "runtime/executors/targets.py": "the module of a handler that code registered, in its process",
    "scheduler/facade.py": "`imports` of the settings",
    "cli/app.py": "the program named on the command line",
    "cli/group.py": "our own commands, late",
    "backends/__init__.py": "our own backends, late",
}


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
