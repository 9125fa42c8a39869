"""Hostile values at every key of a job file: what is wrong is told with its place, or the file is sound.

What is sound can be applied to a store, and an innocent job of that store still runs.
"""

import asyncio

import pytest
from click.testing import CliRunner

from duly import Job, Scheduler
from duly.cli import cli
from duly.errors import DulyError
from duly.job_files import read_text
from duly.job_files.fields import FIELDS
from duly.job_files.reader import _TOP

VALUES = {
    "empty": '""',
    "nul": '"a\\u0000b"',
    "escape": '"a\\u001b[31mred"',
    "long": '"' + "x" * 300_000 + '"',
    "lines": '"a\\nb"',
    "nan": "nan",
    "infinite": "inf",
    "minus infinite": "-inf",
    "minus": "-1",
    "zero": "0",
    "huge": "9223372036854775807",
    "beyond": "9" * 400,
    "longest": "9" * 5000,
    "true": "true",
    "first": "0001-01-01T00:00:00+14:00",
    "last": "9999-12-31T23:59:59.999999Z",
    "day": "2027-01-01",
    "clock": "03:00:00",
    "list": "[]",
    "mixed": '[1, "a", [true]]',
    "deep": "[" * 200 + "]" * 200,
    "deeper": "[" * 20_000,
    "table": "{ a = 1 }",
    "nested": "{ a = { b = { c = nan } } }",
    "surrogate": '"\\ud800"',
    "zone": '"Mars/X"',
    "cron": '"0 0 30 2 *"',
    "minutes": '"' + ",".join(["1"] * 50_000) + ' * * * *"',
    "forever": '"99999999999999999999d"',
}
BASE = {"name": '"ops"', "every": '"1h"', "command": '["true"]'}


def content(top=None, job=None, name="backup"):
    tops = {"name": BASE["name"]} | (top or {})
    jobs = {key: BASE[key] for key in ("every", "command")} | (job or {})
    if {"cron", "at"} & set(job or {}):
        del jobs["every"]
    lines = [f"{key} = {value}" for key, value in tops.items()]
    return "\n".join([*lines, f"[jobs.{name}]", *(f"{key} = {value}" for key, value in jobs.items())])


def read(text):
    """The file, or None if it is refused; nothing else may happen."""
    try:
        return read_text(text)
    except DulyError as exc:
        refusal = str(exc)
    assert len(refusal) < 5_000
    return None


FILES = {f"{key} is {what}": content(job={key: value}) for key in FIELDS for what, value in VALUES.items()}
FILES |= {f"top {key} is {what}": content(top={key: value}) for key in _TOP for what, value in VALUES.items()}
FILES |= {f"name is {what}": content(name=value) for what, value in VALUES.items()}


@pytest.mark.parametrize("key", sorted({name.partition(" is ")[0] for name in FILES}))
def test_a_file_is_refused_in_words_or_is_sound(key):
    for name, text in FILES.items():
        if name.startswith(f"{key} is "):
            read(text)


def test_the_command_says_what_is_wrong_and_changes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DULY_URL", f"sqlite:///{tmp_path}/duly.db")
    for what in ("nan", "beyond", "deeper", "surrogate", "forever", "long"):
        (tmp_path / "jobs.toml").write_text(content(job={"timeout": VALUES[what]}))
        result = CliRunner().invoke(cli, ["check", "jobs.toml"], prog_name="duly")
        assert isinstance(result.exception, SystemExit), what
        assert result.exit_code == 2, what
        assert "jobs.toml" in result.stderr
        assert len(result.stderr) < 10_000


async def innocent() -> str:
    return "done"


def test_what_is_sound_can_be_applied_and_an_innocent_job_runs(tmp_path):
    sound = [found for text in FILES.values() if (found := read(text)) is not None]
    assert len(sound) > 20
    url = f"sqlite:///{tmp_path}/duly.db"

    async def play():
        async with Scheduler(url).client() as scheduler:
            for number, found in enumerate(sound):
                await scheduler.apply(await scheduler.compare(found))
                if number % 20 == 0:
                    await scheduler.jobs()
        scheduler = Scheduler(url)
        scheduler.add(Job(name="innocent", handler=innocent))
        async with scheduler:
            run = await scheduler.submit("innocent", {})
            assert await run.result(timeout=60) == "done"
            assert (await scheduler.health()).failing == {}

    asyncio.run(play())
