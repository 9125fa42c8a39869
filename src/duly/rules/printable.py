"""Make text from outside printable.

After that, no character in it moves the cursor, starts a line, reverses the writing direction or breaks an encoder.
Unprintable characters are written as the escapes that Python and JSON use.
"""

from __future__ import annotations

import re

# Everything that Python does not call printable, and surrogates, which no encoder accepts. Whitespace other than the
# plain space counts as unprintable, including line breaks of all kinds.
_UNPRINTABLE = re.compile(r"[^\x20-\x7e\xa1-\xac\xae-\u036f]")

_HALF = 500


def shortened(message: str) -> str:
    """The beginning and the end of a message that is longer than a screen."""
    left = len(message) - 2 * _HALF
    return message if left <= 0 else f"{message[:_HALF]} … ({left} characters left out) … {message[-_HALF:]}"


def escaped(text: str, keep: str = "") -> str:
    """The text with unprintable characters as JSON escapes, except the characters in `keep`."""
    if text.isascii() and text.isprintable():
        return text
    return _UNPRINTABLE.sub(lambda found: _escape(found[0], keep), text)


def _escape(sign: str, keep: str) -> str:
    if sign in keep or sign.isprintable():
        return sign
    code = ord(sign)
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
