"""What the wheel contains: the library and what users test with. What only developers run stays in the repository."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The paths in a wheel that is built from this source tree."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    [wheel] = folder.glob("*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


@pytest.mark.parametrize(
    "path",
    [
        "duly/__init__.py",
        "duly/py.typed",
        "duly/api/app.py",
        "duly/cli/bench/command.py",  # `duly bench` measures the user's own store
        "duly/cli/demo/jobs.py",
        "duly/testing/harness.py",
        "duly/testing/plugin.py",
        "duly/testing/conformance/__init__.py",
        "duly/testing/sim/loop.py",
    ],
)
def test_users_get(files, path):
    assert path in files


def test_scripts_and_migrations_are_packed(files):
    """A store needs more than Python."""
    packed = {Path(path).relative_to("duly").as_posix() for path in files if path.endswith((".lua", ".sql"))}
    source = ROOT / "src" / "duly"
    assert packed == {
        path.relative_to(source).as_posix() for path in source.rglob("*") if path.suffix in {".lua", ".sql"}
    }
    assert packed


def test_nothing_outside_the_package_is_packed(files):
    assert {path.split("/")[0] for path in files if ".dist-info/" not in path} == {"duly"}


def test_the_long_campaigns_and_comparisons_are_not_packed(files):
    """They need the repository: other job systems, servers, hours."""
    unwanted = ("campaign", "side_by_side", "bench/figures", "http_load")
    assert [path for path in files if any(word in path for word in unwanted)] == []
    assert "duly/testing/sim/__main__.py" not in files
