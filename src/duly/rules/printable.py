"""Foreign text made printable.

No sign of it then moves a cursor, begins a line, reverses the direction of writing or breaks an encoder. What is not
printable is written as the escape that Python and JSON have for it.
"""

from __future__ import annotations

import re

# Everything but what Python calls printable, and surrogates that no encoder takes. Blanks other than the plain one
# count as unprintable, line breaks of all kinds among them.
_UNPRINTABLE = re.compile(r"[^\x20-\x7e\xa1-\xac\xae-\u036f]")

_HALF = 500


def shortened(message: str) -> str:
    """The beginning and the end of a message that is longer than a screen."""
    left = len(message) - 2 * _HALF
    return message if left <= 0 else f"{message[:_HALF]} … ({left} characters left out) … {message[-_HALF:]}"


def escaped(text: str, keep: str = "") -> str:
    """The text with what is not printable as escapes of the form that JSON has, but for the signs in `keep`."""
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
