"""The site builds from the pages without a warning, is complete, and asks no other server for anything."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import duly

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(target)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return target


def test_every_page_is_in_the_site_and_can_be_searched(site):
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    found = {entry["location"].partition("#")[0].rstrip("/") for entry in index["docs"]}
    pages = {path.relative_to(ROOT / "docs").with_suffix("") for path in (ROOT / "docs").rglob("*.md")}
    wanted = {str(page) for page in pages if page.name not in {"index", "README"}}
    assert wanted <= found


def test_the_reference_has_every_public_name_command_and_route(site):
    python = (site / "reference" / "python" / "index.html").read_text(encoding="utf-8")
    names = [name for name in duly.__all__ if not name.startswith("_")]
    assert [name for name in names if f'id="duly.{name}"' not in python] == []
    commands = (site / "reference" / "commands" / "index.html").read_text(encoding="utf-8")
    assert "explain" in commands
    assert "GET /runs" in (site / "reference" / "routes" / "index.html").read_text(encoding="utf-8")


def test_the_pages_load_nothing_from_other_servers(site):
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=\"(https?:[^\"]+)", text)
        assert loaded == [], page
