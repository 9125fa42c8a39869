"""What the answer to a wrong keyword says to write instead."""

import pytest

from duly.rules.keywords import SUBMISSION, misplaced_options, number_in_text, unknown_keywords
from duly.scheduler.job import Job
from duly.scheduler.submitting import Options

KNOWN = Job.__struct_fields__


@pytest.mark.parametrize(
    ("keyword", "value", "line"),
    [
        ("cron", "0 3 * * *", "write @scheduler.job(Cron('0 3 * * *'))"),
        ("interval", 5, "write @scheduler.job(Every(5))"),
        ("every", 5, "write @scheduler.job(Every(5))"),
        ("seconds", 5, "write @scheduler.job(Every(seconds=5))"),
        ("retries", 3, "write retry=3"),
        ("max_retries", 3, "write retry=3"),
        ("rate_limit", "10/s", 'write overlap="queue"'),
        ("tz", "UTC", "write Cron(…, timezone='UTC')"),
        ("delay", 10, "write handle.options(delay=10).submit(…)"),
        ("args", {"a": 1}, "write payload={'a': 1}"),
        ("timout", 5, "write timeout=5"),
        ("zzz", 5, "a job takes handler, schedule, name"),
    ],
)
def test_the_line_to_write(keyword, value, line):
    told = unknown_keywords({keyword: value}, KNOWN)
    assert told.startswith(f"unknown keyword {keyword}={value!r}: ")
    assert line in told


def test_all_wrong_keywords_are_named_and_the_right_ones_are_not():
    told = unknown_keywords({"name": "x", "cron": "* * * * *", "retries": 1, "timeout": 5}, KNOWN)
    assert told.count("unknown keyword") == 2
    assert "timeout" not in told
    assert unknown_keywords({"name": "x"}, KNOWN) == ""


def test_a_hint_never_names_a_keyword_that_a_job_takes():
    assert not [name for name in KNOWN if unknown_keywords({name: 1}, KNOWN)]


def test_the_options_of_a_submission_are_those_of_the_handle():
    assert set(SUBMISSION) == set(Options.__struct_fields__) - {"timeout", "retry", "headers"}


@pytest.mark.parametrize(
    ("given", "parameters", "line"),
    [
        (["to", "delay"], ["to"], "options come first: write mail.options(delay=…).submit(…)"),
        (["countdown"], [], "options come first: write mail.options(delay=…).submit(…)"),
        (["eta", "priority"], [], "options come first: write mail.options(at=…, priority=…).submit(…)"),
        (["delay"], ["delay"], ""),
        (["cc"], ["to"], ""),
    ],
)
def test_options_among_arguments(given, parameters, line):
    assert misplaced_options("mail", given, parameters) == line


@pytest.mark.parametrize(
    ("value", "number"),
    [("3", 3), (" 12 ", 12), ("three", None), ("", None), ("٣", None), ("9" * 5000, None), (3, None)],
)
def test_a_number_in_a_text(value, number):
    assert number_in_text(value) == number
