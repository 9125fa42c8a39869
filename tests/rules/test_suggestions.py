"""Names that somebody may have meant."""

import pytest

from duly.rules.suggestions import did_you_mean, nearest

JOBS = ["nightly_report", "send_mail", "resize", "Import"]


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("nightly_reprot", "nightly_report"),
        ("sendmail", "send_mail"),
        ("SEND_MAIL", "send_mail"),
        ("import", "Import"),
        ("resise", "resize"),
        ("zzz", None),
        ("", None),
        ("\ud800", None),
        ("x" * 1_000_000, None),
    ],
)
def test_the_nearest_name(wrong, right):
    assert nearest(wrong, JOBS) == right


def test_the_words():
    assert did_you_mean("resise", JOBS) == ": did you mean resize?"
    assert did_you_mean("zzz", JOBS) == ""
    assert did_you_mean("resise", []) == ""
