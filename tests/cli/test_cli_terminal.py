"""Every command on a terminal of 80, 100, 120 and 160 columns: nothing is wider than the terminal."""

import asyncio
import re
from contextlib import suppress

import click
import pytest
from msgspec import Struct
from tests.cli.cli_support import APP, invoke
from tests.cli.terminal import WIDTHS, Terminal

from duly import Every, Job, RunNotCompleted, Scheduler, SchedulerConfig
from duly.cli import COMMANDS, cli
from duly.model import short_id

LONG = "nightly_report_for_all_customers_of_the_region_north"
HOSTILE = "帳票の作成に失敗しました 🚚🚚 e\u0301e\u0301 " * 6
FILE = """
name = "house"

[jobs.disk-usage]
cron = "*/5 * * * *"
command = ["df", "--output=pcent", "/"]
description = "how full the disk is"
"""


class Case(Struct, frozen=True):
    """A command line, a text that it shows, its exit code, and whether it goes on until Ctrl-C.

    The lines of a log are not laid out: they may be longer than the terminal is wide.
    """

    words: tuple[str, ...]
    shows: str
    code: int = 0
    goes_on: bool = False
    logs: bool = False


# Every command, subcommands included. A new one has to be added here.
CASES = {
    "demo": Case(("demo", "--duration", "2"), "of a small shop"),
    "run": Case(("run", "app"), "5 jobs", goes_on=True, logs=True),
    "scheduler": Case(("scheduler", "app", "--http", "127.0.0.1:0"), "5 jobs", goes_on=True, logs=True),
    "worker": Case(("worker", "app", "--http", "127.0.0.1:0"), "5 jobs", goes_on=True, logs=True),
    "serve": Case(("serve", "app", "--http", "127.0.0.1:0"), "the API on", goes_on=True, logs=True),
    "jobs": Case(("jobs",), "nightly_report_for_"),
    "runs": Case(("runs",), "failed"),
    "show": Case(("show", "{bad}"), "Attempt 1"),
    "explain": Case(("explain", "{bad}"), "failed"),
    "next": Case(("next", "30 2 * * *", "--tz", "America/New_York", "--after", "2027-03-13"), "Sun 2027-03-14"),
    "events": Case(("events",), "run."),
    "nodes": Case(("nodes",), "no node is alive"),
    "top": Case(("top",), "1 Jobs", goes_on=True),
    "apply": Case(("apply", "jobs.toml", "--dry-run"), "disk-usage"),
    "submit": Case(("submit", "greet", "name=Ada"), "no worker is alive"),
    "trigger": Case(("trigger", "greet", "name=Ada"), "no worker is alive"),
    "pause": Case(("pause", LONG), "is paused"),
    "resume": Case(("resume", "invoice"), "is resumed"),
    "remove": Case(("remove", "invoice", "--yes"), "is removed"),
    "cancel": Case(("cancel", "{later}"), "is cancelled"),
    "redrive": Case(("redrive", "{bad}"), "waits to be run again"),
    "migrate": Case(("migrate",), "up to date"),
    "init": Case(("init", "project"), "created"),
    "logs": Case(("logs", "{bad}"), "the run has no log", logs=True),
    "queues": Case(("queues",), "mail"),
    "handlers": Case(("handlers",), "greet"),
    "history": Case(("history", LONG), "revision"),
    "rollback": Case(("rollback", LONG, "--yes"), "earlier", code=1, logs=True),
    "backfill": Case(("backfill", LONG, "--from", "1h ago", "--to", "now", "--dry-run"), "to create"),
    "restore": Case(("restore", "invoice"), "has not been removed", code=1, logs=True),
    "purge": Case(("purge", "--failed", "--before", "1d ago", "--yes"), "no runs match"),
    "export": Case(("export", "backup.duly"), "exported"),
    "import": Case(("import", "missing.duly"), "cannot be read", code=1, logs=True),
    "copy": Case(("copy", "sqlite:///duly.db", "sqlite:///other.db"), "moved"),
    "notify list": Case(("notify", "list"), "no node has sent notifications"),
    "notify test": Case(("notify", "test", "ops"), "ops", code=1, logs=True),
    "completion": Case(("completion", "bash"), "complete", logs=True),
    "token create": Case(("token", "create", "--role", "viewer", "--name", "帳票" * 20), "shown only once"),
    "token list": Case(("token", "list"), "viewer"),
    "token revoke": Case(("token", "revoke", "{token}"), "is revoked"),
    "audit list": Case(("audit", "list"), "create"),
    "audit verify": Case(("audit", "verify"), "head: "),
    "config show": Case(("config", "show"), "log_level"),
    "config list": Case(("config", "list"), "max_concurrent"),
    "config get": Case(("config", "get", "max_concurrent"), "20"),
    "config set": Case(("config", "set", "max_concurrent=21"), "max_concurrent is 21"),
    "config unset": Case(("config", "unset", "max_concurrent"), "is not set"),
    "check": Case(("check", "jobs.toml"), "disk-usage"),
    "doctor": Case(("doctor",), "time zones"),
    "bench drain": Case(("bench", "drain", "--jobs", "20"), "versions"),
    "bench submit": Case(("bench", "submit", "--jobs", "60"), "versions"),
    "bench latency": Case(("bench", "latency", "--jobs", "3"), "versions"),
    "bench lateness": Case(("bench", "lateness", "--help"), "Options"),
    "bench recurring": Case(("bench", "recurring", "--help"), "Options"),
    "bench shards": Case(("bench", "shards", "--help"), "Options"),
    "bench recovery": Case(("bench", "recovery", "--help"), "Options"),
    "bench idle": Case(("bench", "idle", "--help"), "Options"),
    "bench growth": Case(("bench", "growth", "--help"), "Options"),
}


def leaves() -> set[str]:
    """All commands that do something, by the words that call them."""
    found = set()
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        if isinstance(command, click.Group):
            found |= {f"{name} {each}" for each in command.commands}
        else:
            found.add(name)
    return found


def test_every_command_is_tested_on_a_terminal():
    assert set(CASES) == leaves()


async def make_shop(url: str) -> dict[str, str]:
    """A store with long names, and texts that are wider than they have characters; the ids of its runs."""
    scheduler = Scheduler(url, SchedulerConfig(roles=("worker",), publish_events=True))

    @scheduler.job(queue="mail")
    async def greet(name: str) -> str:
        return f"hello {name}"

    @scheduler.job(retry=None)
    async def explode() -> None:
        raise ValueError(HOSTILE)

    scheduler.job(Every(hours=6))(_invoice)
    scheduler.add(Job(handler=_report, name=LONG, schedule=Every(minutes=7), tags=("billing",), description=HOSTILE))
    async with scheduler:
        bad = await scheduler.submit("explode")
        with suppress(RunNotCompleted):
            await bad.result(timeout=30)
        later = await scheduler.submit("greet", {"name": HOSTILE}, delay=3600)
    return {"bad": bad.id, "later": later.id}


async def _invoice() -> None: ...


_invoice.__name__ = _invoice.__qualname__ = "invoice"


async def _report() -> None: ...


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shop")
    url = f"sqlite:///{folder}/duly.db"
    ids = asyncio.run(make_shop(url))
    token = re.match(r"duly_([0-9a-f]+)_", invoke("token", "create", "--role", "viewer", "--url", url).stdout)
    assert token
    invoke("config", "set", "max_concurrent=20", "--url", url)
    return folder, {**{name: short_id(each) for name, each in ids.items()}, "token": token[1]}


def copy_of(shop, folder):
    """A folder of its own for one process: many commands change the store."""
    source, ids = shop
    folder.mkdir()
    for file in source.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    (folder / "app.py").write_text(APP)
    (folder / "jobs.toml").write_text(FILE)
    return ids


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_wider_than_the_terminal(name, shop, tmp_path):
    case = CASES[name]
    for columns in WIDTHS:
        folder = tmp_path / str(columns)
        ids = copy_of(shop, folder)
        words = [word.format(**ids) for word in case.words]
        with Terminal(*words, folder=folder, columns=columns) as terminal:
            if case.goes_on:
                terminal.until(case.shows)
                terminal.send("\x03")
            code = terminal.end()
            lines = terminal.screen.everything()
            assert code == case.code or (case.goes_on and code in {0, 130}), "\n".join(lines)
            assert case.goes_on or any(case.shows in line for line in lines), "\n".join(lines)
            assert case.logs or terminal.screen.wrapped == [], terminal.screen.wrapped
            assert terminal.restored
