"""The public types are an API: both type checkers must agree with the file that pins them."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PINNED = "tests/typing"


def run(*command):
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_mypy_agrees():
    done = run(sys.executable, "-m", "mypy", PINNED)
    assert done.returncode == 0, done.stdout + done.stderr


def test_pyright_agrees():
    pyright = shutil.which("pyright", path=str(Path(sys.executable).parent))
    assert pyright, "pyright is part of the development install"
    done = run(pyright, "--pythonpath", sys.executable, PINNED)
    assert done.returncode == 0, done.stdout + done.stderr
