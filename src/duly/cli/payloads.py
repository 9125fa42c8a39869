"""Payloads on the command line: `key=value` arguments, or one JSON object: as text, in a file, or on standard input."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from duly.errors import DulyError

_NOT_JSON = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
_FILE, _STANDARD_INPUT = "@", "-"
_LARGEST = 1 << 26  # bytes: what is piped in by mistake must not fill the memory


def read_payload(words: Sequence[str], document: str | None, option: str) -> dict[str, Any] | None:
    """The arguments of the handler, None if none were given."""
    if words and document is not None:
        raise click.UsageError(f"key=value arguments and {option} were both given: give one of them")
    if document is not None:
        return _read_object(_content(document), option)
    return dict(_read_word(word) for word in words) or None


def _content(document: str) -> str | bytes:
    """The text itself, or what the file or the standard input that it names contains."""
    if document == _STANDARD_INPUT:
        return _bounded(sys.stdin.buffer.read(_LARGEST + 1), "standard input")
    if not document.startswith(_FILE):
        return document
    path = Path(document.removeprefix(_FILE))
    try:
        with path.open("rb") as file:
            return _bounded(file.read(_LARGEST + 1), str(path))
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else exc
        raise DulyError(f"cannot read the payload from {path}: {reason}") from exc


def _bounded(content: bytes, source: str) -> bytes:
    if len(content) > _LARGEST:
        raise DulyError(f"the payload in {source} has more than {_LARGEST:,} bytes: store the data elsewhere")
    return content


def _read_object(document: str | bytes, option: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(document)
    except _NOT_JSON as exc:
        raise click.UsageError(f"{option} is not valid JSON: {exc}") from exc
    if not isinstance(found, dict):
        raise click.UsageError(f'{option} must be a JSON object of arguments by name, such as \'{{"to": "ada"}}\'')
    return found


def _read_word(word: str) -> tuple[str, Any]:
    key, separator, text = word.partition("=")
    if not separator or not key:
        raise click.UsageError(f"invalid argument {word!r}: expected key=value")
    try:
        return key, msgspec.json.decode(text)
    except _NOT_JSON:
        return key, text
