"""The grammar of hold keys."""

import pytest

from duly.model.holds import (
    ALONE,
    UNPLACED,
    held_group,
    held_handler,
    held_job,
    hold_for_group,
    hold_for_handler,
    hold_for_job,
)

KINDS = [(hold_for_job, held_job), (hold_for_handler, held_handler), (hold_for_group, held_group)]


@pytest.mark.parametrize("name", ["mail", "a:b", "job:mail", "", "place"])
@pytest.mark.parametrize(("build", "parse"), KINDS)
def test_a_key_names_what_it_was_made_for_and_nothing_else(build, parse, name):
    assert parse(build(name)) == name
    assert [other(build(name)) for _, other in KINDS if other is not parse] == [None, None]


@pytest.mark.parametrize("key", [UNPLACED, ALONE, "breaker:x"])
def test_other_keys_name_no_job_handler_or_group(key):
    assert [parse(key) for _, parse in KINDS] == [None, None, None]


def test_stored_keys_keep_their_text():
    """Stores, Lua and SQL have them: a change here is a migration."""
    keys = (hold_for_job("a"), hold_for_handler("b"), hold_for_group("c"), UNPLACED, ALONE)
    assert keys == ("job:a", "handler:b", "group:c", "place", "alone")
