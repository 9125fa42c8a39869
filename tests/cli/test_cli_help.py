"""The command as a whole: help, versions, what it imports, and how mistakes are answered."""

import importlib
import shlex
import subprocess
import sys
from importlib.util import find_spec

import click
import pytest
from tests.cli.cli_support import invoke, run_process

from duly.cli import COMMANDS, EXAMPLES, cli
from duly.cli.options import Command
from duly.version import __version__


def load(name: str) -> click.Command:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    return command


def test_help_lists_every_command():
    output = invoke("--help").stdout
    for name, entry in COMMANDS.items():
        assert f"  {name} " in output
        assert entry.summary in output


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_examples(name):
    output = invoke(name, "--help").stdout
    assert f"Usage: duly {name}" in output
    assert "Examples:\n  " in output
    assert "--debug" in output
    assert all(option.help for option in load(name).params if isinstance(option, click.Option))


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_are_commands_that_can_be_read(name):
    command = load(name)
    assert isinstance(command, Command)
    assert command.examples
    for example in command.examples:
        words = shlex.split(example.partition(" | ")[0])
        while "=" in words[0]:
            words.pop(0)
        assert words[0] == "duly"
        load(words[1]).make_context(words[1], words[2:])
    assert any(f"duly {name}" in example for example in command.examples)


def test_the_examples_of_the_whole_name_commands():
    for example in EXAMPLES:
        words = shlex.split(example, comments=True)
        assert words[0] == "duly"
        load(words[1]).make_context(words[1], words[2:])


def test_short_help_stands_in_one_place_per_command():
    assert all(entry.summary.endswith(".") for entry in COMMANDS.values())
    homes = {entry.home.partition(":")[0] for entry in COMMANDS.values()}
    assert all(home.startswith("duly.cli.") and find_spec(home) is not None for home in homes)


def test_help_fits_a_terminal_of_80_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("", *COMMANDS):
        words = [name] if name else []
        command = load(name) if name else cli
        parts = list(command.commands) if name and isinstance(command, click.Group) else []
        for part in ([], *([each] for each in parts)):
            for line in invoke(*words, *part, "--help").stdout.splitlines():
                assert len(line) <= 80, f"duly {name} {part}: {line}"


def test_version():
    assert invoke("--version").stdout == f"duly {__version__}\n"


def test_without_arguments_there_is_help():
    result = invoke(code=2)
    assert "Usage: duly" in result.output


def test_an_unknown_command_is_answered_with_the_nearest():
    result = invoke("jbos", code=2)
    assert "did you mean jobs?" in result.stderr


def test_an_unknown_option_is_an_error_of_usage():
    assert "--frob" in invoke("jobs", "--frob", code=2).stderr


def test_the_module_is_the_command(tmp_path):
    code, output, _ = run_process("--version", folder=tmp_path)
    assert (code, output) == (0, f"duly {__version__}\n")


@pytest.mark.parametrize(
    ("arguments", "unwanted"),
    [
        (["--help"], {"rich", "asyncio", "sqlite3", "duly.scheduler", "msgspec"}),
        (["jobs", "--help"], {"rich", "asyncio", "sqlite3", "duly.scheduler"}),
        (["run", "--help"], {"rich", "asyncio", "sqlite3", "duly.scheduler"}),
        (["demo", "--help"], {"rich", "asyncio", "sqlite3", "duly.scheduler"}),
        (["top", "--help"], {"rich", "asyncio", "sqlite3", "duly.scheduler"}),
        (["next", "30 2 * * *"], {"rich", "asyncio", "sqlite3", "duly.scheduler"}),
        (["next", "every 10s", "--json"], {"rich", "asyncio", "sqlite3", "duly.scheduler"}),
    ],
)
def test_nothing_is_imported_that_is_not_needed(arguments, unwanted, tmp_path):
    script = (
        "import sys\n"
        "from duly.cli import cli\n"
        f"cli({arguments!r}, standalone_mode=False)\n"
        f"print('imported:', sorted({unwanted!r} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "imported: []"


def test_an_error_is_one_line_and_with_debug_a_traceback(ids, tmp_path):
    code, output, errors = run_process("show", "nobody", folder=tmp_path)
    assert (code, output) == (1, "")
    assert errors == "Error: there is no job 'nobody': register it, or see `duly jobs`\n"
    for arguments in (("--debug", "show", "nobody"), ("show", "nobody", "--debug")):
        code, output, errors = run_process(*arguments, folder=tmp_path)
        assert (code, output) == (1, "")
        assert "Traceback" in errors
        assert "JobNotFound" in errors


def test_the_table_of_commands_is_true():
    for name, entry in COMMANDS.items():
        module, _, attribute = entry.home.partition(":")
        assert getattr(importlib.import_module(module), attribute).name == name
