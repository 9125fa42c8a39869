"""The buffer of an attempt's lines: what stays of what is written, whatever it is and whoever writes it."""

import threading
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.model import LineSource
from duly.model.run_log import MOST_LINE, room_for
from duly.runtime.run_lines import OutputLines, RunLines

AT = datetime(2027, 3, 1, tzinfo=UTC)
LOG, STDOUT = LineSource.LOG, LineSource.STDOUT


def taken(lines):
    """The texts that would be stored now, and how many came before them."""
    found = lines.take()
    return (0, []) if found is None else (found[0], [line.text for line in found[1]])


def written(*texts, keep=200):
    lines = RunLines(keep, 1)
    for text in texts:
        lines.add(AT, LOG, text, "INFO", "app")
    return lines


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("plain", ["plain"]),
        ("", [""]),
        ("two\nlines", ["two", "lines"]),
        ("windows\r\nlines\r\n", ["windows", "lines", ""]),
        ("\udc80 and \x00", ["\\udc80 and \\u0000"]),
        ("\x1b[31m", ["\x1b[31m"]),
        ("postgresql://me:secret@host/db", ["postgresql://***@host/db"]),
        ("password=hunter2 next", ["password=*** next"]),
    ],
)
def test_a_text_becomes_lines_that_every_store_can_keep(text, kept):
    assert taken(written(text)) == (0, kept)


def test_a_line_of_megabytes_loses_its_middle():
    [line] = taken(written("a" * 5_000_000 + "z"))[1]
    assert len(line) <= MOST_LINE
    assert line.startswith("aaa")
    assert line.endswith("z")
    assert "characters" in line


def test_only_the_newest_lines_stay_and_the_others_are_counted():
    lines = written(*[str(number) for number in range(1000)], keep=10)
    assert taken(lines) == (990, [str(number) for number in range(990, 1000)])


def test_a_text_of_a_million_lines_costs_no_more_than_what_is_kept():
    assert taken(written("x\n" * 1_000_000 + "end", keep=3)) == (999_998, ["x", "x", "end"])


def test_long_lines_are_bounded_by_their_bytes():
    _, texts = taken(written(*["é" * 4000] * 100))
    assert 0 < sum(len(text.encode()) + 1 for text in texts) <= room_for(200)


def test_what_was_taken_is_taken_again_until_it_is_stored():
    lines = written("one")
    first = lines.take()
    lines.add(AT, LOG, "two")
    assert lines.take() == first
    lines.stored()
    assert taken(lines) == (1, ["two"])
    lines.stored()
    assert lines.take() is None
    assert lines.empty


def test_nothing_is_added_after_the_end():
    lines = written("one")
    lines.close()
    lines.add(AT, LOG, "late")
    assert taken(lines) == (0, ["one"])
    lines.discard()
    assert lines.empty


def test_many_threads_may_write():
    lines = RunLines(100, 1)
    threads = [threading.Thread(target=lambda: [lines.add(AT, LOG, "x") for _ in range(1000)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert taken(lines) == (7900, ["x"] * 100)


class _Collected(list):
    def __call__(self, lines):
        self.extend(lines)


@given(st.lists(st.binary(max_size=50)))
def test_output_is_split_into_lines_however_it_arrives(parts):
    found = _Collected()
    output = OutputLines(found)
    for part in parts:
        output.feed(part)
    output.finish()
    whole = b"".join(parts).split(b"\n")
    assert found == (whole if whole[-1] else whole[:-1])


def test_output_without_a_line_break_is_cut_before_it_takes_memory():
    found = _Collected()
    output = OutputLines(found)
    for _ in range(1000):
        output.feed(b"x" * 4096)
    assert max(map(len, found)) < 100_000
    lines = RunLines(5, 1)
    lines.add_output(AT, STDOUT, found)
    assert all(len(text) <= MOST_LINE for text in taken(lines)[1])


@given(st.lists(st.binary(max_size=20)))
def test_any_bytes_become_text(data):
    lines = RunLines(200, 1)
    lines.add_output(AT, STDOUT, data)
    for text in taken(lines)[1]:
        text.encode()
        assert "\0" not in text
