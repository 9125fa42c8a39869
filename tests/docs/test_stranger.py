"""A stranger who follows a page notices what does not work."""

from contextlib import ExitStack

import pytest

from tests.docs.blocks import blocks_of
from tests.docs.notation import Mismatch
from tests.docs.stranger import Stranger


@pytest.fixture
def follow(tmp_path):
    """Follow a page of this text."""
    folder = tmp_path / "shop"
    folder.mkdir()
    with ExitStack() as stack:

        def follow(text: str) -> None:
            page = tmp_path / "page.md"
            page.write_text(text, encoding="utf-8")
            stranger = Stranger(page, folder, stack)
            for block in blocks_of(text):
                stranger.follow(block)

        yield follow


def fenced(language: str, *lines: str) -> str:
    return "\n".join([f"```{language}", *lines, "```", ""])


@pytest.mark.parametrize(
    "page",
    [
        fenced(
            "console", "$ export NAME=ada", "$ mkdir place", "$ cd place", "$ echo $NAME, $PWD", "ada, /srv/shop/place"
        ),
        fenced("python", "# app.py", "x = 1")
        + fenced("python", "# add to app.py", "y = 2")
        + fenced("pycon", ">>> import app", ">>> app.x, app.y", "(1, 2)"),
        fenced("pycon", ">>> import asyncio", ">>> await asyncio.sleep(0, 7)", "7"),
        fenced("pycon", ">>> 1 / 0", "ZeroDivisionError: division by zero"),
        fenced("console", "$ pip install duly", "$ docker compose up"),
        fenced("text", "a drawing"),
        fenced("url", "sqlite:///jobs.db   a file"),
        fenced("console", "$ duly show nobody --url sqlite:///none.db", "Error: there is no file …"),
        fenced("console", "$ duly run nothing", "Error: there is no module 'nothing': …"),
    ],
)
def test_what_works_is_followed(follow, page):
    follow(page)


@pytest.mark.parametrize(
    ("page", "why"),
    [
        (fenced("console", "$ echo a", "b"), "the page shows"),
        (fenced("console", "$ exit 3"), "exit code 3"),
        (fenced("console", "$ echo Error: no", "Error: no"), "exit code 0"),
        (fenced("console", "$ no-such-program"), "exit code 127"),
        (fenced("python", "undefined"), "NameError"),
        (fenced("pycon", ">>> 1 + 1", "3"), "the page shows"),
        (fenced("python", "# examples/app.py", "this_is_not_there = 1"), "this is not in examples/app.py"),
        (fenced("url", "nonsense://x"), "nonsense"),
        (fenced("json", "{}"), "neither executed nor listed"),
        (fenced("", "what?"), "neither executed nor listed"),
        (fenced("ruby", "puts 1"), "neither executed nor listed"),
    ],
)
def test_what_does_not_work_is_noticed(follow, page, why):
    with pytest.raises((Mismatch, ValueError), match=why):
        follow(page)
