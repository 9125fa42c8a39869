"""`duly next`: expressions, intervals and jobs, and the nights when clocks change."""

import json
import re
from datetime import timedelta

import pytest
from tests.cli.cli_support import invoke

from duly import Scheduler, SchedulerConfig

SPRING = """\
at 02:30 every day, America/New_York
  Sat 2027-03-13 02:30:00 EST  2027-03-13 07:30:00Z
  Sun 2027-03-14 03:00:00 EDT  2027-03-14 07:00:00Z  02:30 does not exist that day (clocks go forward)
  Mon 2027-03-15 02:30:00 EDT  2027-03-15 06:30:00Z
"""

AUTUMN = """\
every 30 minutes from 01:00 to 01:59, America/New_York
  Sun 2027-11-07 01:00:00 EDT  2027-11-07 05:00:00Z  01:00 happens twice that day; this is the first
  Sun 2027-11-07 01:30:00 EDT  2027-11-07 05:30:00Z  01:30 happens twice that day; this is the first
  Sun 2027-11-07 01:00:00 EST  2027-11-07 06:00:00Z  01:00 happens twice that day; this is the second
  Sun 2027-11-07 01:30:00 EST  2027-11-07 06:30:00Z  01:30 happens twice that day; this is the second
  Mon 2027-11-08 01:00:00 EST  2027-11-08 06:00:00Z
"""


def without_distance(output: str) -> str:
    """The output without "in 3 days", which depends on today."""
    return re.sub(r"(Z  )(?:in |)[\d]+ (?:days|h|min|s)(?: \d+ min)?(?: ago)? *", r"\1", output).replace("Z  \n", "Z\n")


def test_the_night_in_spring():
    output = invoke("next", "30 2 * * *", "--tz", "America/New_York", "--after", "2027-03-13", "-n", "3").stdout
    assert without_distance(output) == SPRING


def test_the_night_in_autumn():
    output = invoke("next", "*/30 1 * * *", "--timezone", "America/New_York", "--after", "2027-11-07").stdout
    assert without_distance(output) == AUTUMN


def test_a_fixed_time_that_comes_twice_is_due_once():
    arguments = ("next", "30 1 * * *", "--tz", "America/New_York", "--after", "2027-11-06T12:00", "-n", "2", "--json")
    answer = json.loads(invoke(*arguments).stdout)
    assert [each["due"] for each in answer["next"]] == ["2027-11-07T05:30:00.000000Z", "2027-11-08T06:30:00.000000Z"]
    assert answer["next"][0]["note"] == "01:30 happens twice that day; this is the first"
    assert answer["timezone"] == "America/New_York"
    assert set(answer["next"][0]) == {"due", "at", "local", "note"}


@pytest.mark.parametrize(
    ("expression", "words", "first"),
    [
        ("@daily", "at 00:00 every day", "Tue 2027-06-15 00:00:00 UTC"),
        ("every 15m", "every 15 minutes", "Mon 2027-06-14 12:15:00 UTC"),
        ("every 10s", "every 10 seconds", "Mon 2027-06-14 12:00:10 UTC"),
        ("every 1h30m", "every 1 hour 30 minutes", "Mon 2027-06-14 13:30:00 UTC"),
        ("*/5 * * * * *", "every 5 seconds", "Mon 2027-06-14 12:00:05 UTC"),
    ],
)
def test_expressions_and_intervals(expression, words, first):
    lines = invoke("next", expression, "--after", "2027-06-14T12:00").stdout.splitlines()
    assert lines[0] == words
    assert lines[1].startswith(f"  {first}")
    assert len(lines) == 6


def test_an_expression_need_not_be_quoted():
    assert invoke("next", "0", "12", "1", "1", "1").stdout.startswith("at 12:00")


def test_a_job_of_the_store(ids):
    lines = invoke("next", "nightly", "-n", "2").stdout.splitlines()
    assert lines[0] == "at 02:30 every day, America/New_York"
    assert len(lines) == 3
    assert re.search(r":[03]0:00 E[SD]T ", lines[1])


def test_a_job_after_a_moment_in_its_own_zone(ids):
    lines = invoke("next", "nightly", "-n", "1", "--after", "2027-03-14 01:00").stdout.splitlines()
    assert "Sun 2027-03-14 03:00:00 EDT" in lines[1]
    assert "does not exist that day" in lines[1]


def test_a_job_without_a_schedule(ids):
    assert invoke("next", "explode").stdout == "runs when submitted\n  nothing is waiting\n"
    assert len(invoke("next", "greet").stdout.splitlines()) == 2  # one is waiting


class Tides:
    def next_run(self, after):
        return after + timedelta(hours=12)


def test_of_a_schedule_that_is_in_code_the_next_instant_is_known(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scheduler = Scheduler("sqlite:///duly.db", SchedulerConfig(roles=("worker",)))
    scheduler.job(Tides(), name="tides")(lambda: None)
    scheduler.sync.start()
    scheduler.sync.stop()
    result = invoke("next", "tides")
    assert result.stdout.startswith("by test_cli_next.Tides, in code\n")
    assert "in 12 h" in result.stdout
    assert "only nodes that have the code of tides can compute more than the next due time" in result.stderr


def test_a_paused_job_says_so(ids):
    invoke("pause", "nightly")
    result = invoke("next", "nightly", "-n", "1")
    assert "nightly is paused" in result.stderr
    assert len(result.stdout.splitlines()) == 2


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("61 * * * *",), 1, "61 is outside 0-59"),
        (("0 0 30 2 *",), 1, "Error:"),
        (("every 5x",), 1, "invalid duration"),
        (("every 0s",), 1, "invalid interval"),
        (("@fortnightly",), 1, "Error:"),
        (("@daily", "--tz", "Mars/Base"), 2, "unknown time zone"),
        (("@daily", "--tz", "berlin"), 2, "did you mean Europe/Berlin"),
        (("@daily", "--after", "whenever"), 2, "invalid time"),
        (("@daily", "-n", "0"), 2, "0 is not in the range"),
        (("nobody",), 1, "duly.db: `duly run` creates it"),
    ],
)
def test_mistakes(arguments, code, message):
    assert message in invoke("next", *arguments, code=code).stderr


def test_an_unknown_job(ids):
    assert "there is no job 'nobody'" in invoke("next", "nobody", code=1).stderr
