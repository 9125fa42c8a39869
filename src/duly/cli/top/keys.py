"""Keys as a terminal sends them: bytes become the names of keys."""

from __future__ import annotations

import codecs

_SEQUENCES = {
    "[A": "up",
    "[B": "down",
    "[C": "right",
    "[D": "left",
    "OA": "up",
    "OB": "down",
    "OC": "right",
    "OD": "left",
    "[H": "home",
    "[F": "end",
    "OH": "home",
    "OF": "end",
    "[1~": "home",
    "[4~": "end",
    "[7~": "home",
    "[8~": "end",
    "[5~": "page up",
    "[6~": "page down",
    "[Z": "backtab",
}
_NAMED = {"\r": "enter", "\n": "enter", "\t": "tab", "\x7f": "backspace", "\x03": "q", "\x04": "q"}
_LONGEST = 16


class KeyDecoder:
    """Collects what was read: a sequence may arrive in parts, and an escape alone is a key as well."""

    def __init__(self) -> None:
        self._text = ""
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode

    @property
    def waits(self) -> bool:
        """Whether a sequence has begun and not ended."""
        return bool(self._text)

    def feed(self, read: bytes) -> list[str]:
        """The keys that are complete."""
        self._text += self._decode(read)
        keys: list[str] = []
        while self._text:
            taken = self._first()
            if taken is None:
                break
            key, length = taken
            self._text = self._text[length:]
            keys += [key] if key else []
        return keys

    def flush(self) -> list[str]:
        """What has begun is not continued: an escape was a key of its own."""
        begun, self._text = self._text, ""
        return ["escape"] if begun else []

    def _first(self) -> tuple[str, int] | None:
        """The first key and its length; an empty key for an unknown sequence, None while it is not complete."""
        first = self._text[0]
        if first != "\x1b":
            return _NAMED.get(first, first if first.isprintable() else ""), 1
        rest = self._text[1:]
        if not rest or rest in {"[", "O"}:
            return None
        if rest[0] not in "[O":
            return "escape", 1
        for end, sign in enumerate(rest[1:_LONGEST], 2):
            if "@" <= sign <= "~":
                return _SEQUENCES.get(rest[:end], ""), end + 1
        return None if len(rest) < _LONGEST else ("", len(self._text))
