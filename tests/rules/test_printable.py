"""Foreign text is printable, whatever it was made of, and text that was printable is left as it is."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.rules.printable import escaped

ANY = st.text(alphabet=st.characters(blacklist_categories=[]))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("größer, 日本語, 😀", "größer, 日本語, 😀"),
        ("\x1b[31mred", "\\u001b[31mred"),
        ("a\nb\r\tc", "a\\u000ab\\u000d\\u0009c"),
        ("a\x85b\u2028c\u2029d\x0be", "a\\u0085b\\u2028c\\u2029d\\u000be"),
        ("\x9b31m", "\\u009b31m"),
        ("abc\u202edcba", "abc\\u202edcba"),
        ("\udcff", "\\udcff"),
        ("\U000e0041", "\\udb40\\udc41"),
        ("\x00\x7f", "\\u0000\\u007f"),
    ],
)
def test_what_is_not_printable_is_escaped(text, shown):
    assert escaped(text) == shown


@given(ANY)
def test_an_escaped_text_is_one_printable_line_that_every_encoder_takes(text):
    shown = escaped(text)
    assert shown.isprintable()
    assert len(shown.splitlines()) <= 1
    shown.encode()


@given(ANY)
def test_an_escaped_json_document_says_the_same(text):
    document = json.dumps({"text": text}, ensure_ascii=False)
    assert json.loads(escaped(document, keep="\n")) == json.loads(document)
