"""What a page shows, compared with what was printed."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.docs.notation import Memory, Mismatch

RUN, OTHER = "06604e5b6fc33e0683d22faf17", "0660612f9d010b2a8ced6aac1e"


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("the same", "the same\n"),
        ("NAME  STATE\na     b", "NAME       STATE\na          b\n"),
        ("before … after", "before anything at all after"),
        ("first\n…\nlast", "first\nlast"),
        ("first\n…\nlast", "first\none\ntwo\nlast"),
        ("…\nlast", "one\nlast"),
        ("started 2026-11-15 10:45:06Z", "started SOONZ"),
        ("Sun 2026-11-15 10:45:06Z", "Mon SOONZ"),
        ("2026-11-15 10:45:06,096 INFO", "SOON,5 INFO"),
        ("in 4 s (10:45:25)", "in 2 h 5 min (12:50:00)"),
        ("22 s ago", "now"),
        ("in 118 days", "3 days ago"),
        ("took 0.47 ms", "took 2 s"),
        ("4 KiB, and 1 MiB of log", "0 bytes, and 12.5 KiB of log"),
        ("server  Valkey 9.1.2", "server  Redis 7.0.15"),
        ("pid 19630, fence 1881920772243463", "pid 7, fence 1882005479247867"),
        ("due 2037-03-13 07:30:00Z", "due 2037-03-13 07:30:00Z"),
    ],
)
def test_what_differs_each_time_may_differ(shown, printed):
    soon = f"{datetime.now(UTC) + timedelta(days=2):%Y-%m-%d %H:%M:%S}"
    Memory().compare(shown, printed.replace("SOON", soon))


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("the same", "another"),
        ("the same", "the same\nand more"),
        ("the same\nand more", "the same"),
        ("2 jobs", "3 jobs"),
        ("every 5 minutes", "every 6 minutes"),
        ("timeout: 30 s", "timeout: 40 s"),
        ("due 2037-03-13 07:30:00Z", "due 2037-03-14 07:30:00Z"),
        ("due 2037-03-13 07:30:00Z", "due tomorrow"),
        (f"run {RUN} of {RUN}", f"run {OTHER} of {RUN}"),
    ],
)
def test_everything_else_must_be_as_shown(shown, printed):
    with pytest.raises(Mismatch):
        Memory().compare(shown, printed)


def test_an_id_stays_the_same_and_can_be_used_in_commands():
    memory = Memory()
    memory.compare(f"waiting for run {RUN}", f"waiting for run {OTHER}")
    assert memory.spoken(f"duly show {RUN}") == f"duly show {OTHER}"
    memory.compare(f"run {RUN}", f"run {OTHER}")
    with pytest.raises(Mismatch):
        memory.compare(f"run {RUN}", f"run {RUN}")


def test_an_id_that_was_not_shown_cannot_be_used():
    with pytest.raises(Mismatch, match="before it has shown where it comes from"):
        Memory().spoken(f"duly show {RUN}")


def test_of_a_process_that_goes_on_the_lines_are_followed():
    said = "one\nnode shop-1 started\ntwo\nleads main\nthree\n"
    assert Memory().follow("node shop-1 started\nleads main", said) == 2
    assert Memory().follow("leads main\nnode shop-1 started", said) == 1
