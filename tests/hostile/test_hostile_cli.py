"""Hostile words at every argument and option of the command line: each is refused in one line, or does what it says.

Whatever was tried, an innocent job still runs, is recorded and listed afterwards.
"""

import asyncio

import click
import pytest
from click.testing import CliRunner

from duly import Job, Scheduler
from duly.cli import cli
from tests.hostile.values import TEXTS

WORDS = {name: str.__str__(text) for name, text in TEXTS.items()} | {
    "far": "9999-12-31T23:59:59.999999Z",
    "first": "0001-01-01T00:00:00+14:00",
    "zone": "2027-01-01T00:00 Mars/X",
    "nan": "nan",
    "infinite": "inf",
    "huge": "9" * 400,
    "minus": "-1",
    "deep": "[" * 5000,
    "twice": '{"a": 1, "a": 2}',
    "key": "a=\ud800",
    "number": '{"a": 1e999}',
}
# Those that start a server or a program, or that only show what is set.
OTHERS = {
    "run",
    "worker",
    "scheduler",
    "serve",
    "demo",
    "top",
    "bench",
    "config",
    "events",
    "doctor",
    "migrate",
    "check",
    "apply",
}
# What the others need so that one word at a time can be hostile.
PLAIN = {
    "submit": ["innocent"],
    "trigger": ["innocent"],
    "pause": ["paused"],
    "resume": ["paused"],
    "history": ["innocent"],
    "rollback": ["innocent", "--yes"],
    "backfill": ["innocent", "--from", "yesterday", "--to", "now", "--yes"],
    "remove": ["nobody", "--yes"],
    "cancel": ["--min-attempts", "5", "--yes"],
    "redrive": ["--min-attempts", "5", "--yes"],
    "restore": ["nobody"],
    "purge": ["--failed", "--before", "1d", "--yes"],
    "queues": [],
    "handlers": [],
    "completion": ["bash"],
    "init": ["project"],
    "export": ["backup.duly"],
    "import": ["backup.duly"],
    "copy": ["memory://one", "memory://two"],
    "notify list": [],
    "notify test": ["ops"],
    "show": ["innocent"],
    "logs": ["0"],
    "explain": ["innocent"],
    "next": ["innocent"],
    "runs": ["innocent"],
    "jobs": [],
    "nodes": [],
    "token create": ["--role", "viewer"],
    "token list": [],
    "token revoke": ["0"],
    "audit list": [],
    "audit verify": [],
}


async def innocent() -> str:
    return "done"


def shop(url):
    scheduler = Scheduler(url)
    for name in ("innocent", "paused"):
        scheduler.add(Job(name=name, handler=innocent))
    return scheduler


def leaves(group, prefix=()):
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from leaves(command, (*prefix, name))
        else:
            yield " ".join((*prefix, name)), command


COMMANDS = {name: command for name, command in leaves(cli) if name.partition(" ")[0] not in OTHERS}


def invocations(name, command):
    """The command with a hostile word at each of its arguments and options in turn."""
    words = name.split()
    for parameter in command.params:
        for what, word in WORDS.items():
            if isinstance(parameter, click.Argument):
                yield what, [*words, "--", word]
            elif not parameter.is_flag and parameter.name != "url":
                yield what, [*words, *PLAIN.get(name, []), f"{parameter.opts[0]}={word}"]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    url = f"sqlite:///{tmp_path_factory.mktemp('hostile')}/duly.db"

    async def make():
        async with shop(url):
            pass

    asyncio.run(make())
    return url


def test_every_command_is_tried():
    assert COMMANDS.keys() <= PLAIN.keys(), "say how the command is called"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_hostile_word_is_refused_in_words_or_does_what_it_says(name, store, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DULY_URL", store)
    for what, arguments in invocations(name, COMMANDS[name]):
        result = CliRunner().invoke(cli, arguments, prog_name="duly", catch_exceptions=True)
        told = f"duly {name} with {what}"
        assert result.exception is None or isinstance(result.exception, SystemExit), told
        assert result.exit_code in {0, 1, 2}, told
        if result.exit_code:
            assert result.stderr.strip(), told
            assert "Traceback" not in result.stderr, told
            assert len(result.stderr) < 10_000, told


def test_afterwards_an_innocent_job_runs_and_is_listed(store, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DULY_URL", store)
    for name in ("submit", "pause", "resume", "token create"):
        for _, arguments in list(invocations(name, COMMANDS[name]))[:20]:
            CliRunner().invoke(cli, arguments, prog_name="duly")

    async def play():
        scheduler = shop(store)
        async with scheduler:
            run = await scheduler.submit("innocent", {})
            assert await run.result(timeout=60) == "done"
            return run.id

    run_id = asyncio.run(play())
    listed = CliRunner().invoke(cli, ["runs", "innocent", "--limit", "1000"], prog_name="duly")
    assert listed.exit_code == 0
    assert run_id in listed.stdout
    assert CliRunner().invoke(cli, ["jobs"], prog_name="duly").exit_code == 0
