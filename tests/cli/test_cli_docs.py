"""The page about the command line leaves nothing out."""

import re
from pathlib import Path

import click
import pytest

from duly.cli import COMMANDS, cli

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")


def section(name: str) -> str:
    """The part of the page that is about one command."""
    parts = [part for part in PAGE.split("\n## ")[1:] if re.search(rf"duly {name}\b", part.partition("\n")[0])]
    assert len(parts) == 1, f"`duly {name}` has no section of its own"
    return parts[0]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_section(name):
    assert f"duly {name}" in section(name)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example_with_its_output(name):
    assert f"```console\n$ duly {name}" in section(name) or f"\n$ duly {name}" in section(name)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_mentioned(name):
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    shared = {"--url", "--namespace", "--json", "--wide", "--debug", "--no-color", "--help"}
    where = section(name)
    if "(#duly-runs)" in where:  # the filters of runs are described once
        where += section("runs")
    parts = command.commands.values() if isinstance(command, click.Group) else ()
    for parameter in [parameter for part in (command, *parts) for parameter in part.params]:
        for option in parameter.opts if isinstance(parameter, click.Option) else ():
            assert option in (PAGE if option in shared else where), f"{option} of `duly {name}`"


def test_the_options_of_the_whole_are_mentioned():
    for parameter in cli.params:
        for option in parameter.opts:
            assert option in PAGE
