"""The page about job files leaves nothing out."""

import re
from pathlib import Path

import pytest

from duly.job_files.fields import DEFAULTS, FIELDS
from duly.job_files.reader import _TOP

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "job-files.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("key", [*FIELDS, *_TOP])
def test_every_key_is_on_the_page(key):
    assert f"`{key}`" in PAGE


def test_the_page_says_what_cannot_be_a_default():
    [row] = [line for line in PAGE.splitlines() if line.startswith("| `[defaults]`")]
    assert set(re.findall(r"`(\w+)`", row)) - {"environment"} == set(FIELDS) - set(DEFAULTS)
