"""Runs by shortened ids: whatever tables show is accepted by every command that takes a run."""

import asyncio

import pytest
from tests.cli.cli_support import document, invoke, run_on_terminal

from duly import Scheduler
from duly.model import short_id


def test_a_table_on_a_terminal_shows_ids_that_commands_accept(ids, tmp_path):
    code, output = run_on_terminal("runs", "--no-color", folder=tmp_path, columns=100)
    assert code == 0
    shown = [line.split()[0] for line in output.splitlines()[1:4]]
    assert shown == [short_id(ids[name]) for name in ("later", "bad", "good")]
    assert [document("show", each)["id"] for each in shown] == [ids["later"], ids["bad"], ids["good"]]


def test_wide_and_piped_tables_show_full_ids(ids, tmp_path):
    assert ids["good"] in invoke("runs").stdout
    code, output = run_on_terminal("runs", "--wide", folder=tmp_path, columns=80)
    assert code == 0
    assert ids["good"] in output


@pytest.mark.parametrize("part", [lambda run: run[:20], lambda run: run[-8:], short_id, lambda run: run])
def test_every_command_accepts_a_part_of_an_id(ids, part):
    bad, later = part(ids["bad"]), part(ids["later"])
    if any(other != ids["bad"] and other.startswith(bad) for other in ids.values()):
        pytest.skip("the runs were submitted in the same moment")
    assert document("show", bad)["id"] == ids["bad"]
    assert document("explain", bad)["verdict"] == "failed"
    assert invoke("redrive", bad).stdout == f"run {ids['bad']} waits to be run again\n"
    assert invoke("cancel", later).stdout == f"run {ids['later']} is cancelled\n"
    assert [each["target"] for each in audited()] == [f"run {ids['bad']}", f"run {ids['later']}"]


def audited():
    return [each["deed"] for each in document("audit", "list")]


def test_an_ending_that_looks_like_a_name_is_found_if_no_job_has_it(ids):
    ending = next(ids["good"][place:] for place in range(14, 26) if ids["good"][place].isalpha() or place == 25)
    assert document("show", ending)["id"] == ids["good"]
    assert "there is no job 'nobody'" in invoke("show", "nobody", code=1).stderr


def test_of_several_runs_the_candidates_are_listed(ids):
    result = invoke("cancel", "0", code=1)
    assert result.stdout == ""
    header, *rows, error = result.stderr.splitlines()
    assert header.split() == ["ID", "JOB", "STATE", "DUE", "(UTC)"]
    assert {row.split()[0] for row in rows} >= set(ids.values())
    assert {row.split()[2] for row in rows} >= {"completed", "failed", "pending"}
    assert error.startswith("Error: '0' is ambiguous: 3 runs have an id that begins or ends with it")


def test_candidates_fit_a_terminal(ids, tmp_path):
    code, output = run_on_terminal("show", "0", "--no-color", folder=tmp_path, columns=80)
    assert code == 1
    titles, *rows = output.splitlines()[:4]
    assert titles.split() == ["ID", "JOB", "STATE", "DUE", "(UTC)"]
    assert {row.split()[0] for row in rows} == {short_id(run) for run in ids.values()}


def test_an_unknown_id_says_so(ids):
    assert "there is no run '0123456789'" in invoke("show", "0123456789", code=1).stderr
    assert "there is no run" in invoke("cancel", "~", code=1).stderr


def test_the_events_of_a_run_are_found_by_a_part_of_its_id(tmp_path):
    async def submit() -> str:
        from duly import SchedulerConfig

        scheduler = Scheduler("sqlite:///duly.db", SchedulerConfig(publish_events=True))
        async with scheduler.client():
            await scheduler.submit("mail")
            return (await scheduler.submit("mail")).id

    run = asyncio.run(submit())
    assert [each["run_id"] for each in document("events", "--run", short_id(run))] == [run]
