"""Where keys and values stand in a TOML text, however it is written."""

import tomllib
from pathlib import Path

import pytest

from duly.job_files.positions import Position, Positions

AWKWARD = Path(__file__).with_name("awkward.toml").read_text(encoding="utf-8")

KEYS = [
    (("title",), "title = "),
    (("quoted key",), '"quoted key"'),
    (("literal.key",), "'literal.key'"),
    (("a",), "a.b.c"),
    (("a", "b"), "b.c = 3"),
    (("a", "b", "c"), "c = 3"),
    (("a", "d e"), '"d e"'),
    (("long",), "long ="),
    (("raw",), "raw ="),
    (("numbers",), "numbers ="),
    (("numbers", 2, "x"), "x = 4"),
    (("numbers", 2, "y", "z"), "z = 5"),
    (("when",), "when ="),
    (("empty",), "empty ="),
    (("none",), "none ="),
    (("jobs",), "jobs.backup]"),
    (("jobs", "backup"), "backup]"),
    (("jobs", "backup", "cron"), "cron ="),
    (("jobs", "backup", "environment", "B C"), '"B C"'),
    (("jobs", "backup", "environment", "D", "E"), "E = "),
    (("jobs", "shop.report"), '"shop.report"'),
    (("jobs", "shop.report", "command"), "command ="),
    (("hosts", 0, "name"), 'name = "one"'),
    (("hosts", 1, "name"), 'name = "two"'),
    (("hosts", 1, "disk", "size"), "size"),
]
VALUES = [
    (("title",), '"a # in'),
    (("a", "b", "c"), "3"),
    (("numbers",), "["),
    (("numbers", 0), "1, # one"),
    (("numbers", 1), "[2, 3]"),
    (("numbers", 1, 1), "3]"),
    (("numbers", 2, "y", "z"), "5 }"),
    (("when",), "2027"),
    (("jobs", "backup", "environment", "A"), '"x}"'),
    (("jobs", "backup", "environment", "D", "E"), '"""q'),
    (("jobs", "shop.report", "command", 1), '"b"'),
    (("hosts", 1, "disk", "size"), "7"),
]


def test_the_awkward_text_is_toml():
    content = tomllib.loads(AWKWARD)
    assert content["long"].endswith('still inside"')
    assert content["jobs"]["shop.report"]["command"] == ["a", "b"]


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize(("path", "word"), KEYS, ids=str)
def test_keys_are_where_they_are_written(path, word, newline):
    places = Positions(AWKWARD.replace("\n", newline))
    lines = [number for number, row in enumerate(AWKWARD.split("\n"), 1) if word in row]
    found = places.key(path)
    assert found.line in lines
    assert AWKWARD.split("\n")[found.line - 1][found.column - 1 :].startswith(word)


@pytest.mark.parametrize(("path", "word"), VALUES, ids=str)
def test_values_are_where_they_begin(path, word):
    found = Positions(AWKWARD).value(path)
    assert AWKWARD.split("\n")[found.line - 1][found.column - 1 :].startswith(word)


def every_path(value, path=()):
    if isinstance(value, dict):
        for key, each in value.items():
            yield (*path, key)
            yield from every_path(each, (*path, key))
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from every_path(each, (*path, number))


def test_no_key_is_left_out_and_none_stands_twice():
    places = Positions(AWKWARD)
    paths = list(every_path(tomllib.loads(AWKWARD)))
    assert len({(places.key(path).line, places.key(path).column) for path in paths}) == len(paths)


def test_what_is_not_in_the_text_is_where_its_table_is():
    places = Positions(AWKWARD)
    assert places.key(("jobs", "backup", "command")) == places.key(("jobs", "backup"))
    assert places.key(("nothing",)) == Position(1, 1)


@pytest.mark.parametrize("text", ["", "# only a comment", "\n\n", "a=1", "[a]", 'a=""', "a=''''''", 'a=""""""'])
def test_short_texts_are_walked_to_their_end(text):
    assert Positions(text).key(("z",)) == Position(1, 1)
