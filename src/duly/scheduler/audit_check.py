"""The check of an audit log: compares its entries with each other, in one pass from the first to the last.

It does no I/O. An invalid entry becomes a finding, never an exception; the pass always reaches the end.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from duly.model import Entry, sanitize

DAMAGE = "audit-damage"  # the action of an entry that records damage to the log
FIRST = "0" * 64  # what the first entry is bound to

_MOST_FINDINGS = 20
_LONGEST_TEXT = 10_000  # of a text that has to be repaired


class Deed(Struct, frozen=True):
    """One administrative action. `before` and `after` summarise what it changed.

    `mac` authenticates the entry where its writer had a key. Without one the entry is what 0.1.0 would write: its
    processes bind their entries to what they can read of the one before.
    """

    actor: str
    action: str
    target: str
    at: datetime
    before: Any = None
    after: Any = None
    previous: str = FIRST
    mac: str | UnsetType = UNSET


class Recorded(Struct, frozen=True):
    """An entry of the log; `deed` is None if it cannot be read. The next entry is bound to `hash`."""

    sequence: int
    deed: Deed | None
    hash: str


class Head(Struct, frozen=True):
    """The end of the log."""

    sequence: int = 0
    hash: str = FIRST


class Report(Struct, frozen=True):
    """What a check of the log found.

    `known` is damage that a writer has recorded before the entry whose hash was expected, `expected_at` the number of
    that entry, `authenticated` how many entries carry a code made with the key.
    """

    entries: int
    head: Head
    findings: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    expected_at: int | None = None
    authenticated: int = 0


def chained(deed: Deed, head: Head, key: bytes | None) -> tuple[bytes, Head]:
    """The deed as the entry after `head`, and that entry as the new head."""
    bound = _storable(replace(deed, previous=head.hash))
    value = _encoder.encode(bound if key is None else replace(bound, mac=_mac(bound, key)))
    return value, Head(head.sequence + 1, _hash(value))


def recorded(entry: Entry) -> Recorded:
    """An entry of the log, read as far as it can be read."""
    try:
        deed = msgspec.json.decode(entry.value, type=Deed)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        deed = None
    return Recorded(entry.sequence, deed, _hash(entry.value))


def broken(head: Head, following: list[Recorded]) -> str | None:
    """What is wrong with entries that should begin with the one at `head`; None if nothing is."""
    if not following or following[0].sequence != head.sequence:
        return f"entry {head.sequence} is missing"
    if following[0].hash != head.hash:
        return f"entry {head.sequence} was changed"
    for each in following[1:]:
        for finding in _wrong(head, each):
            return finding
        head = Head(each.sequence, each.hash)
    return None


class Check:
    """Takes the entries in order, then reports."""

    def __init__(self, remembered: Head | None, key: bytes | None, expect: str | None) -> None:
        self._remembered = remembered
        self._key = key
        self._expect = expect
        self._entries = 0
        self._head = Head()
        self._findings: list[tuple[int, str]] = []
        self._damage: list[tuple[int, str]] = []
        self._expected_at: int | None = None
        self._authenticated = 0

    def take(self, entry: Recorded) -> None:
        self._entries += 1
        for finding in (*_wrong(self._head, entry), *self._forgotten(entry), *self._unauthenticated(entry)):
            self._found(entry.sequence, finding)
        if entry.deed is not None and entry.deed.action == DAMAGE:
            self._damage.append((entry.sequence, f"entry {entry.sequence} records damage: {entry.deed.target}"))
        if entry.hash == self._expect:
            self._expected_at = entry.sequence
        self._head = Head(entry.sequence, entry.hash)

    def _found(self, sequence: int, finding: str) -> None:
        if len(self._findings) < _MOST_FINDINGS:
            self._findings.append((sequence, finding))

    def _forgotten(self, entry: Recorded) -> Iterator[str]:
        """No entry follows the last one, so its hash is compared with the one that its writer stored."""
        seen = self._remembered
        if seen is not None and entry.sequence == seen.sequence and entry.hash != seen.hash:
            yield f"entry {entry.sequence} was changed: its writer remembers another hash"

    def _unauthenticated(self, entry: Recorded) -> Iterator[str]:
        if self._key is None or entry.deed is None:
            return
        if entry.deed.mac:
            right = _mac(entry.deed, self._key)
            if hmac.compare_digest(entry.deed.mac.encode(), right.encode()):
                self._authenticated += 1
            else:
                yield f"entry {entry.sequence} was changed, or written with another key: its code is wrong"
        elif self._authenticated:
            yield f"entry {entry.sequence} was written without the key, although earlier ones were written with it"

    def report(self, unreadable: str | None = None) -> Report:
        """The result. `unreadable` is what was found before the first entry."""
        findings = [] if unreadable is None else [unreadable]
        findings += [text for _, text in self._findings]
        known_until = self._expected_at or 0
        findings += [text for sequence, text in self._damage if sequence > known_until]
        findings += self._missing()
        return Report(
            entries=self._entries,
            head=self._head,
            findings=tuple(findings),
            known=tuple(text for sequence, text in self._damage if sequence <= known_until),
            expected_at=self._expected_at,
            authenticated=self._authenticated,
        )

    def _missing(self) -> Iterator[str]:
        seen = self._remembered
        if seen is not None and seen.sequence > self._head.sequence:
            yield f"entry {seen.sequence} is missing: the log ends at {self._head.sequence}"
        if self._expect is not None and self._expected_at is None:
            since = "since it was noted, the log was rewritten or has lost its tail"
            yield f"no entry has the hash {self._expect}: {since}"
        if self._key is not None and self._entries and not self._authenticated:
            yield "no entry was written with this key: it is new or another one, or the log was rewritten"


def _wrong(head: Head, entry: Recorded) -> Iterator[str]:
    """What is wrong with an entry that comes after `head`."""
    expected = head.sequence + 1
    if entry.sequence != expected:
        gone = (
            f"entry {expected} is"
            if entry.sequence == expected + 1
            else f"entries {expected} to {entry.sequence - 1} are"
        )
        yield f"{gone} missing"
    elif entry.deed is not None and entry.deed.previous != head.hash:
        yield (
            f"entry {head.sequence} was changed, or entry {entry.sequence} was not written by Duly"
            if head.sequence
            else f"entry {entry.sequence} was not written as the first one"
        )
    if entry.deed is None:
        yield f"entry {entry.sequence} cannot be read"


def _storable(deed: Deed) -> Deed:
    """The deed as JSON can hold it: names and notes of a command line may contain bytes that are not text."""
    try:
        _encoder.encode(deed)
    except UnicodeEncodeError:
        return msgspec.convert(_as_text(msgspec.to_builtins(deed)), Deed)
    return deed


def _as_text(value: Any) -> Any:
    match value:
        case str():
            return sanitize.text(value, _LONGEST_TEXT)
        case dict():
            return {_as_text(key): _as_text(item) for key, item in value.items()}
        case list():
            return [_as_text(item) for item in value]
        case _:
            return value


def _hash(value: bytes) -> str:
    return hashlib.sha256(value).hexdigest()


def _mac(deed: Deed, key: bytes) -> str:
    """The code that authenticates an entry, the hash it is bound to included."""
    return hmac.digest(key, _encoder.encode(replace(deed, mac="")), "sha256").hex()


_encoder = msgspec.json.Encoder(order="deterministic")
