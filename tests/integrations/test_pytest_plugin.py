"""The pytest plugin as users have it: with plain pytest, and beside the plugins that run async tests."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
PLAIN = ("-p", "duly.testing.plugin")

TESTS = """
import asyncio
import pytest
from duly import Scheduler

scheduler = Scheduler("memory://")

@scheduler.job
async def greet(name: str) -> str:
    return "hello " + name

@pytest.fixture
def name():
    return "ada"

{marker}
async def test_a_harness_in_a_loop(duly_harness, name):
    h = duly_harness(scheduler)
    run = await greet.submit(name=name)
    await h.drain()
    assert await run.result() == "hello ada"
    {inside}
"""
FOREIGN = "async def test_something_else():\n    pass\n"
SUITE = """
from duly.backends.memory import open_url
from duly.ports import Opening
from duly.testing.conformance import CoordinatorSuite

class TestMemory(CoordinatorSuite):
    def backend(self):
        return open_url("memory://", Opening())
"""


def run_pytest(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Without the plugins that happen to be installed here, but for those that are named."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words],
        cwd=folder,
        env=env | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def passed(folder: Path, count: int, *words: str) -> None:
    done = run_pytest(folder, *words)
    assert f"{count} passed" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("plugins", "marker", "inside"),
    [
        ((), "", ""),
        (("-p", "pytest_asyncio", "-o", "asyncio_default_fixture_loop_scope=function"), "", ""),
        (("-p", "pytest_asyncio", "-o", "asyncio_default_fixture_loop_scope=function"), "@pytest.mark.asyncio", ""),
        (("-p", "pytest_asyncio", "-o", "asyncio_mode=auto"), "", ""),
        (("-p", "anyio"), "@pytest.mark.anyio", "from anyio import sleep; await sleep(0)"),
        (("-p", "anyio"), "", ""),
    ],
    ids=["plain", "asyncio strict", "asyncio marked", "asyncio auto", "anyio marked", "anyio"],
)
def test_an_async_test_that_uses_the_harness_runs(tmp_path, plugins, marker, inside):
    (tmp_path / "test_it.py").write_text(TESTS.format(marker=marker, inside=inside))
    if marker == "@pytest.mark.anyio":
        (tmp_path / "conftest.py").write_text(
            "import pytest\n@pytest.fixture\ndef anyio_backend():\n    return 'asyncio'\n"
        )
    passed(tmp_path, 1, *PLAIN, *plugins)


def test_a_suite_for_a_backend_runs(tmp_path):
    (tmp_path / "test_it.py").write_text(SUITE)
    done = run_pytest(tmp_path, *PLAIN)
    assert done.returncode == 0, done.stdout
    assert "failed" not in done.stdout


def test_async_tests_of_others_are_left_alone(tmp_path):
    (tmp_path / "test_it.py").write_text(FOREIGN)
    done = run_pytest(tmp_path, *PLAIN)
    assert "async def functions are not natively supported" in done.stdout
    assert done.returncode == 1


def test_the_example_passes_with_plain_pytest():
    passed(EXAMPLES, 4, "-c", os.devnull, "--rootdir", str(EXAMPLES), *PLAIN, "test_app.py")
