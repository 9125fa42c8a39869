"""`duly logs`: what a run has written."""

import asyncio
import json
import re

from tests.cli.cli_support import document, invoke, spawn, until

from duly import Context, Scheduler

URL = "sqlite:///duly.db"


def run_of(*messages: str, attempts: int = 1) -> str:
    """A run in the default store that has logged this in each of its attempts."""
    scheduler = Scheduler(URL)

    @scheduler.job(retry=None)
    async def chat(ctx: Context) -> None:
        for message in messages:
            ctx.log.warning(message)
        raise ValueError

    async def play() -> str:
        async with scheduler:
            run = await chat.submit()
            for number in range(attempts):
                await (await scheduler.opened()).ended(run.id, 30)
                if number + 1 < attempts:
                    await scheduler.redrive(run.id)
                    await asyncio.sleep(0)
            return run.id

    return asyncio.run(play())


def test_the_lines_of_a_run_are_shown_one_by_one(tmp_path):
    run_id = run_of("packing", "50 % off \x1b[31mred\x1b[0m\rgone")
    shown = invoke("logs", run_id).stdout.splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}Z  #1  WARNING duly\.job\.chat: packing", shown[0])
    assert shown[1].endswith(r"WARNING duly.job.chat: 50 % off \u001b[31mred\u001b[0m\u000dgone")
    assert len(shown) == 2


def test_as_json_and_by_attempt(tmp_path):
    run_id = run_of("a", "b", attempts=2)
    found = document("logs", run_id)
    assert [(line["number"], line["attempt"], line["text"]) for line in found] == [
        (1, 1, "a"),
        (2, 1, "b"),
        (3, 1, "a"),
        (4, 1, "b"),
    ]
    assert found[0] == found[0] | {"source": "log", "level": "WARNING", "logger": "duly.job.chat"}
    assert document("logs", run_id, "--attempt", "2") == []
    assert [line["number"] for line in document("logs", run_id, "--after", "3")] == [4]


def test_following_an_ended_run_shows_its_lines_and_ends(tmp_path):
    run_id = run_of("a", "b")
    assert [json.loads(line)["text"] for line in invoke("logs", run_id, "-f", "--json").stdout.splitlines()] == [
        "a",
        "b",
    ]
    assert len(invoke("logs", run_id, "-f").stdout.splitlines()) == 2


def test_a_run_without_lines_and_one_that_does_not_exist(tmp_path):
    run_id = run_of()
    assert "the run has no log" in invoke("logs", run_id).stderr
    assert document("logs", run_id) == []
    assert "there is no run" in invoke("logs", "0123", code=1).stderr


def test_following_a_run_shows_lines_as_they_come(tmp_path):
    (tmp_path / "app.py").write_text(
        "import asyncio\n"
        "from duly import Context, Scheduler\n"
        "scheduler = Scheduler()\n"
        "@scheduler.job\n"
        "async def count(ctx: Context) -> None:\n"
        "    for number in range(4):\n"
        "        ctx.log.info('number %d', number)\n"
        "        await asyncio.sleep(0.5)\n"
    )
    node = spawn("run", "app:scheduler", folder=tmp_path)
    try:
        until(lambda: (tmp_path / "duly.db").exists() and "count" in invoke("jobs").stdout, "the node is up")
        run_id = invoke("submit", "count").stdout.strip()
        followed = spawn("logs", run_id, "--follow", folder=tmp_path)
        out, _ = followed.communicate(timeout=40)
        assert [line.rpartition(": ")[2] for line in out.splitlines()] == [f"number {number}" for number in range(4)]
    finally:
        node.terminate()
        node.communicate(timeout=40)
