"""Redaction: removes secrets from text for logs, errors and other output.

It recognizes credentials before the host of a URL, whatever characters the password has, secrets given as `name=value`
in queries, connection strings and reprs, and Duly's own tokens. Where the end of a secret is uncertain, it hides too
much. It takes linear time, because the text may come from untrusted callers.
"""

from __future__ import annotations

import re

HIDDEN = "***"

_FILES = ("sqlite", "file")  # their URLs name no host, and an @ is part of a path

_QUOTED = r"'(?:\\.|[^'\\])*+'?|\"(?:\\.|[^\"\\])*+\"?"
_NAMES = "password|passwd|passphrase|pwd|secret|token|audit_key"

_SCHEME = re.compile(r"\s*+[a-z][a-z0-9+.-]*+://", re.IGNORECASE)
_WORD = re.compile(r"\S++")
_ASSIGNED = re.compile(rf"((?:{_NAMES})\s*+=\s*+)(?:{_QUOTED}|[^\s&]++)", re.IGNORECASE)
_MAPPED = re.compile(rf"((?:{_NAMES})['\"]\s*+:\s*+)(?:{_QUOTED}|[^\s,}}]++)", re.IGNORECASE)
_TOKEN = re.compile(r"\b(duly_[0-9a-f]{12}_)[\w-]{8,}+")


def redacted(text: str) -> str:
    """The text with every secret in it hidden."""
    text = _TOKEN.sub(rf"\1{HIDDEN}", text)
    if "@" in text:
        text = _WORD.sub(lambda word: _without_login(word[0]), _without_blanks(text))
    return _MAPPED.sub(rf"\1{HIDDEN}", _ASSIGNED.sub(rf"\1{HIDDEN}", text))


def _without_blanks(text: str) -> str:
    """If the whole text is one URL, its password may also contain spaces."""
    scheme = _SCHEME.match(text)
    at = text.rfind("@")
    if scheme is None or at < scheme.end() or _has_no_login(text):
        return text
    return f"{scheme[0]}{HIDDEN}{text[at:]}"


def _without_login(word: str) -> str:
    """A URL, or `me:password@host`: the login ends at the last @, since / ? # and @ may be part of a password."""
    at = word.rfind("@")
    scheme = word.find("://")
    if 0 <= scheme < at:
        return word if _has_no_login(word) else f"{word[: scheme + 3]}{HIDDEN}{word[at:]}"
    colon = word.find(":")
    return f"{HIDDEN}{word[at:]}" if 0 <= colon < at - 1 and at + 1 < len(word) else word


def _has_no_login(url: str) -> bool:
    scheme, _, rest = url.partition("://")
    return scheme.lower().endswith(_FILES) and rest.startswith("/") and "://" not in rest
