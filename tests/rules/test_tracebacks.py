"""Folded tracebacks: the user's frames stay, the others are counted."""

import asyncio
import json
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.rules.tracebacks import folded

MINE = '  File "/srv/shop/jobs.py", line 3, in work\n    call()\n    ~~~~^^\n'
LIBRARY = '  File "/srv/venv/lib/python3.13/site-packages/httpx/_client.py", line 1014, in send\n    raise exc\n'
STANDARD = '  File "/usr/lib/python3.13/asyncio/runners.py", line 5, in run\n    loop()\n'
FROZEN = '  File "<frozen importlib._bootstrap>", line 1387, in _gcd_import\n'
HEAD = "Traceback (most recent call last):\n"
END = "ValueError: no\n"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (HEAD + MINE + END, [*(HEAD + MINE).splitlines(), "ValueError: no"]),
        (
            HEAD + MINE + LIBRARY + LIBRARY + STANDARD + END,
            [*(HEAD + MINE).splitlines(), "  … 3 frames in httpx, asyncio", "ValueError: no"],
        ),
        (
            HEAD + FROZEN + MINE + LIBRARY + END,
            [HEAD.strip(), "  … 1 frame in importlib", *MINE.splitlines(), "  … 1 frame in httpx", "ValueError: no"],
        ),
        (
            HEAD + STANDARD + LIBRARY + END,
            [HEAD.strip(), "  … 1 frame in asyncio", *LIBRARY.splitlines(), "ValueError: no"],
        ),
        ("", []),
        ("ValueError: no", ["ValueError: no"]),
    ],
)
def test_folding(text, lines):
    assert folded(text).splitlines() == lines


def test_frames_that_repeat_belong_to_their_frame():
    repeated = LIBRARY + "  [Previous line repeated 970 more times]\n"
    assert folded(HEAD + MINE + repeated + END).splitlines()[-2:] == ["  … 1 frame in httpx", "ValueError: no"]


def test_a_real_traceback_through_the_standard_library():
    try:
        json.loads("{")
    except ValueError:
        text = traceback.format_exc()
    told = folded(text)
    assert 'json.loads("{")' in told
    assert "decoder.py" not in told
    assert told.splitlines()[-1].startswith("json.decoder.JSONDecodeError")


def test_an_exception_group_keeps_every_exception():
    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail("one"))
            group.create_task(fail("two"))

    async def fail(text: str) -> None:
        raise ValueError(text)

    try:
        asyncio.run(main())
    except ExceptionGroup:
        told = folded(traceback.format_exc())
    assert "ValueError: one" in told
    assert "ValueError: two" in told
    assert "runners.py" not in told


@given(st.text())
def test_any_text_can_be_folded(text):
    assert folded(text) == "\n".join(text.splitlines()) or 'File "' in text
