"""The page about fleets says what is so: its files are read, its commands are run, and they answer as it says."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from duly import Scheduler
from duly.cli import cli
from duly.fleet import read_text
from duly.fleet.fields import DEFAULTS, FIELDS
from duly.fleet.file import _TOP

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "fleets.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def timeless(text):
    """A text without what depends on when it is written."""
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", "INSTANT", text)
    return re.sub(r"\(in [^)]*\)", "(in A WHILE)", text)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The files of the page, without their first line, which names them; and an empty store."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DULY_URL", raising=False)
    for block in blocks(PAGE, "toml"):
        head, _, text = block.partition("\n")
        (tmp_path / head.removeprefix("# ")).write_text(text, encoding="utf-8")
    Scheduler("sqlite:///duly.db").sync.jobs()
    return tmp_path


def test_the_commands_of_the_page_answer_as_it_says(folder):
    said = [part for block in blocks(PAGE, "console") for part in re.split(r"^\$ ", block, flags=re.MULTILINE) if part]
    assert len(said) == 4
    for part in said:
        line, _, expected = part.partition("\n")
        program, *arguments = shlex.split(line)
        assert program == "duly"
        result = CliRunner().invoke(cli, arguments, prog_name="duly")
        assert timeless(result.output) == timeless(expected), line


def test_the_file_of_the_readme_is_in_order():
    [block] = [each for each in blocks(README, "toml") if each.startswith("# jobs.toml")]
    assert [spec.name for spec in read_text(block).fleet.jobs] == ["backup"]


@pytest.mark.parametrize("key", [*FIELDS, *_TOP])
def test_every_key_is_on_the_page(key):
    assert f"`{key}`" in PAGE


def test_the_page_says_what_cannot_be_a_default():
    [row] = [line for line in PAGE.splitlines() if line.startswith("| `[defaults]`")]
    assert set(re.findall(r"`(\w+)`", row)) - {"environment"} == set(FIELDS) - set(DEFAULTS)
