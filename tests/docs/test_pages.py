"""Every page of the documentation does what it says."""

import re
from contextlib import ExitStack

import pytest

from tests.docs.addresses import Addresses
from tests.docs.blocks import PAGES, ROOT, blocks, commands, indented_code
from tests.docs.stranger import Stranger
from tests.docs.unexecuted import COMMANDS, LANGUAGES, reason

FOLLOWED = [
    pytest.param(page, marks=pytest.mark.servers(*Addresses.servers(page.read_text(encoding="utf-8"))))
    for page in PAGES
    if any(block.language not in LANGUAGES for block in blocks(page))
]


def title(page):
    return page.relative_to(ROOT).as_posix()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", FOLLOWED, ids=title)
def test_a_page_can_be_followed_word_for_word(page, tmp_path):
    folder = tmp_path / "shop"
    folder.mkdir()
    with ExitStack() as stack:
        stranger = Stranger(page, folder, stack)
        for block in blocks(page):
            stranger.follow(block)


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_code_is_fenced_so_that_it_is_executed(page):
    assert indented_code(page.read_text(encoding="utf-8")) == []


def test_everything_that_is_listed_as_not_executed_is_on_a_page():
    typed = [
        command.text
        for page in PAGES
        for block in blocks(page)
        if block.language == "console"
        for command in commands(block)
    ]
    left_out = [text for text in typed if reason(text) is not None]
    assert [begin for begin in COMMANDS if not any(re.match(begin, text) for text in left_out)] == []
