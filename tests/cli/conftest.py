"""Fixtures of the command line's tests. Nothing around the tests may leak in: no settings, no folder, no terminal."""

import asyncio
import os
import shutil

import pytest
from tests.cli.cli_support import APP, Nodes, make_past


@pytest.fixture(autouse=True)
def _clean(monkeypatch, tmp_path):
    for name in list(os.environ):
        if name.startswith("DULY_") or name in {"LOG_LEVEL", "LOG_FORMAT", "WORKER_ID", "NO_COLOR", "FORCE_COLOR"}:
            monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def past(tmp_path_factory):
    """A store with a past, made once, and the ids of its runs. Tests work on copies of it."""
    path = tmp_path_factory.mktemp("past") / "duly.db"
    return path, asyncio.run(make_past(f"sqlite:///{path}"))


@pytest.fixture
def ids(past, tmp_path) -> dict[str, str]:
    """`duly.db` in the current folder is a store with a past; these are its runs."""
    path, runs = past
    for file in path.parent.iterdir():
        shutil.copy(file, tmp_path / file.name)
    return runs


@pytest.fixture
def nodes(tmp_path):
    """A folder with a program, and the nodes that are started of it."""
    (tmp_path / "app.py").write_text(APP)
    nodes = Nodes(tmp_path, f"sqlite:///{tmp_path}/duly.db")
    yield nodes
    nodes.end()
