"""Tests that use a server are found by what their modules import, so imports inside of tests need a marker."""

import ast
from pathlib import Path

import pytest

from tests.conftest import SERVERS

TESTS = Path(__file__).parents[1]
MODULES = sorted(TESTS.rglob("test_*.py"))
STARTERS = {name for names in SERVERS.values() for name in names}


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.relative_to(TESTS)))
def test_a_test_that_starts_a_server_can_be_selected(module):
    tree = ast.parse(module.read_text(encoding="utf-8"))
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]:
        imported = {
            alias.name for node in ast.walk(function) if isinstance(node, ast.ImportFrom) for alias in node.names
        }
        marked = any("mark.servers" in ast.unparse(decorator) for decorator in function.decorator_list)
        assert marked or not imported & STARTERS, f"{function.name}: mark it with the servers that it starts"
