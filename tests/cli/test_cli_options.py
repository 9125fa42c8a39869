"""Options that many commands share: they may stand before or after the name of the command."""

import json

import pytest
from tests.cli.cli_support import document, invoke, run_on_terminal, run_process

from duly.cli.options import with_interval


def moved(*orders):
    return [invoke(*words).stdout for words in orders]


def test_the_store_may_stand_before_or_after_the_command(ids, tmp_path):
    url = f"sqlite:///{tmp_path}/duly.db"
    before, after = moved(("--url", url, "--json", "jobs"), ("jobs", "--url", url, "--json"))
    assert json.loads(before) == json.loads(after)
    assert len(json.loads(before)) == 4
    assert invoke("--url", "sqlite:///other.db", "jobs", code=1).stderr.startswith("Error: there is no file")


def test_the_option_next_to_the_command_wins(ids):
    assert (
        len(json.loads(invoke("--url", "sqlite:///no.db", "jobs", "--url", "sqlite:///duly.db", "--json").stdout)) == 4
    )


def test_the_namespace_may_stand_before_or_after_the_command(ids):
    assert moved(("--namespace", "other", "jobs"), ("jobs", "--namespace", "other")) == ["no jobs\n"] * 2


def test_subcommands_take_what_stands_before_their_group(ids):
    expected = document("config", "list")
    for words in (
        ("--json", "config", "list"),
        ("config", "--json", "list"),
        ("--url", "sqlite:///duly.db", "config", "list", "--json"),
        ("config", "--url", "sqlite:///duly.db", "--json", "list"),
    ):
        assert json.loads(invoke(*words).stdout) == expected


def test_a_value_that_looks_like_an_option_is_a_value(ids):
    assert "--json" in invoke("--url", "--json", "jobs", code=1).stderr


def test_a_command_without_the_option_says_so(ids):
    result = invoke("--json", "pause", "nightly", code=2)
    assert "duly pause has no option --json" in result.stderr


@pytest.mark.parametrize("words", [("--no-color", "jobs"), ("jobs", "--no-color")])
def test_colours_may_be_refused_before_and_after(ids, tmp_path, words):
    assert "\x1b[3" not in run_on_terminal(*words, folder=tmp_path)[1]


@pytest.mark.parametrize("words", [("--wide", "runs"), ("runs", "--wide")])
def test_wide_shows_everything(ids, tmp_path, words):
    _, output = run_on_terminal(*words, folder=tmp_path, columns=80)
    assert "…" not in output
    assert ids["good"] in output
    assert "left out" not in output


def test_a_narrow_table_names_what_is_left_out(ids, tmp_path):
    _, output = run_on_terminal("runs", "--no-color", folder=tmp_path, columns=60)
    assert "left out: " in output
    assert "--wide shows everything" in output


def test_nothing_is_cut_when_piped(ids, tmp_path):
    for command in (("runs",), ("config", "show"), ("jobs",)):
        code, output, _ = run_process(*command, folder=tmp_path, COLUMNS="40")
        assert code == 0
        assert "…" not in output


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--watch"], ["--watch=2s"]),
        (["--watch", "5"], ["--watch", "5"]),
        (["--watch", "500ms", "x"], ["--watch", "500ms", "x"]),
        (["--watch", "nightly"], ["--watch=2s", "nightly"]),
        (["--watch", "30 2 * * *"], ["--watch=2s", "30 2 * * *"]),
        (["--watch", "--state", "failed"], ["--watch=2s", "--state", "failed"]),
        (["--watch=3"], ["--watch=3"]),
        (["--", "--watch"], ["--", "--watch"]),
        ([], []),
    ],
)
def test_the_interval_of_watch_may_be_left_out(words, expected):
    assert with_interval(words) == expected


def test_watch_needs_a_terminal_and_text(ids):
    assert "needs a terminal" in invoke("jobs", "--watch", code=2).stderr
    assert "--watch and --json" in invoke("jobs", "--watch", "--json", code=2).stderr
    assert "at least 0.2 seconds" in invoke("jobs", "--watch", "0.1", code=2).stderr
