"""Payloads on the command line: `key=value` words, or one JSON object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import msgspec

_UNREADABLE = (msgspec.DecodeError, RecursionError)


def read_payload(words: Sequence[str], document: str | None, option: str) -> dict[str, Any] | None:
    """The arguments that were given, None if none were. Wrong ones are errors of usage."""
    if words and document is not None:
        raise click.UsageError(f"key=value words and {option} were both given: give one of them")
    if document is not None:
        return _read_object(document, option)
    return dict(_read_word(word) for word in words) or None


def _read_object(document: str, option: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(document)
    except _UNREADABLE as exc:
        raise click.UsageError(f"{option} is not valid JSON: {exc}") from exc
    if not isinstance(found, dict):
        raise click.UsageError(f'{option} must be a JSON object of arguments by name, such as \'{{"to": "ada"}}\'')
    return found


def _read_word(word: str) -> tuple[str, Any]:
    key, separator, text = word.partition("=")
    if not separator or not key:
        raise click.UsageError(f"{word!r} is no key=value")
    try:
        return key, msgspec.json.decode(text)
    except _UNREADABLE:
        return key, text
