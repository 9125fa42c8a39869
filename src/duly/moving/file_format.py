"""The file of an export: JSON lines, compressed by gzip.

The first line is the header, the last one has the number of records of each kind and a checksum of all lines before
it. A file without that line is incomplete. A line of a kind that this version does not know is refused by its name.
"""

from __future__ import annotations

import hashlib
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import BinaryIO, get_args

import msgspec
from msgspec import Struct

from duly.errors import DulyError
from duly.model.transfer import Record, SettingEntry, kind_of

FORMAT = "duly-export"
VERSION = 1

_GZIP = 31  # window bits of zlib for a gzip stream
_LEVEL = 4
_READ = 1 << 18
_LONGEST_LINE = 64 << 20


class InvalidExport(DulyError):
    """A file is not a complete export, or one of a newer version."""


class Header(Struct, frozen=True, tag="header"):
    """What the file is. `fence` is the highest fence that the store gave out, `ended` how many ended runs it has."""

    format: str
    version: int
    duly: str
    namespace: str
    source: str
    at: datetime
    fence: int
    ended: dict[str, int]
    exact: bool = True
    logs: bool = False
    secrets: bool = False


class End(Struct, frozen=True, tag="end"):
    """The last line. `damaged` are runs (ids) and jobs (names) that could not be read, and are not in the file."""

    counts: dict[str, int]
    sha256: str
    damaged: tuple[str, ...] = ()


Exportable = Record | SettingEntry
Line = Exportable | Header | End

_encode = msgspec.json.Encoder().encode
_decoder: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


class _Type(Struct):
    type: str = ""


_type_of = msgspec.json.Decoder(_Type).decode


class Writer:
    """Writes lines. The caller opens and closes the file."""

    def __init__(self, out: BinaryIO, header: Header) -> None:
        self._out = out
        self._gzip = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
        self._hash = hashlib.sha256()
        self.counts: Counter[str] = Counter()
        self._write(_encode(header) + b"\n")

    def _write(self, text: bytes) -> None:
        self._hash.update(text)
        self._out.write(self._gzip.compress(text))

    def write(self, records: Sequence[Exportable]) -> None:
        """Write records."""
        lines = [_encode(record) for record in records]
        self.counts.update(kind_of(record) for record in records)
        if lines:
            self._write(b"\n".join(lines) + b"\n")

    def end(self, damaged: Sequence[str]) -> End:
        """Write the last line."""
        end = End(dict(sorted(self.counts.items())), self._hash.hexdigest(), tuple(damaged))
        self._out.write(self._gzip.compress(_encode(end) + b"\n") + self._gzip.flush())
        return end


class Reader:
    """Reads lines, and checks that they are complete: it raises `InvalidExport` at the latest when they end."""

    def __init__(self, source: BinaryIO, name: str) -> None:
        self._name = name
        self._lines = _lines(source, self._fail)
        self._hash = hashlib.sha256()
        self.end: End | None = None
        self.header = self._header()

    def _fail(self, why: str) -> InvalidExport:
        return InvalidExport(f"{self._name} {why}")

    def _header(self) -> Header:
        first = next(self._lines, b"")
        try:
            about = msgspec.json.decode(first, type=dict[str, object]) if first else {}
        except (msgspec.DecodeError, RecursionError):
            about = {}
        if about.get("format") != FORMAT:
            raise self._fail("is not an export of Duly")
        if about.get("version") != VERSION:
            raise self._fail(
                f"has version {about.get('version')} of the format, this Duly knows version {VERSION}: use the version"
                f" of Duly that wrote it ({about.get('duly')}) or a newer one"
            )
        header = self._decoded(first, 1)
        assert isinstance(header, Header)
        self._hash.update(first + b"\n")
        return header

    def records(self) -> Iterator[Exportable]:
        """All records, in order."""
        counts: Counter[str] = Counter()
        for number, text in enumerate(self._lines, 2):
            line = self._decoded(text, number)
            if isinstance(line, End):
                self._check(line, counts)
                return
            if isinstance(line, Header):
                raise self._fail(f"has a second header in line {number}")
            self._hash.update(text + b"\n")
            counts[kind_of(line)] += 1
            yield line
        raise self._fail(f"is incomplete: it ends after {sum(counts.values())} records, without its last line")

    def _decoded(self, text: bytes, number: int) -> Line:
        try:
            return _decoder.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            kind = _kind_in(text)
            if kind is not None:
                raise self._fail(
                    f"has a record of the kind {kind!r} in line {number}, which this version does not know: use a newer"
                    " version of Duly"
                ) from exc
            raise self._fail(f"is damaged in line {number}: {exc}") from exc

    def _check(self, end: End, counts: Counter[str]) -> None:
        if end.sha256 != self._hash.hexdigest() or end.counts != dict(counts):
            raise self._fail("is damaged: its checksum or its number of records is wrong")
        if next(self._lines, None) is not None:
            raise self._fail("has more lines after its last one")
        self.end = end


_KNOWN = frozenset(str(each.__struct_config__.tag) for each in get_args(Line))


def _kind_in(text: bytes) -> str | None:
    """The kind of a line, if it is one that this version does not know."""
    try:
        kind = _type_of(text).type
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return None if kind in _KNOWN or not kind else kind[:100]


def _lines(source: BinaryIO, fail: Callable[[str], InvalidExport]) -> Iterator[bytes]:
    """The lines of a compressed file, without their ends. The compressed data must be complete."""
    unzip = zlib.decompressobj(_GZIP)
    rest = b""
    while chunk := source.read(_READ):
        while chunk:
            try:
                text = rest + unzip.decompress(chunk, _READ * 8)
            except zlib.error as exc:
                raise fail(f"is damaged: {exc}") from exc
            *whole, rest = text.split(b"\n")
            yield from whole
            if len(rest) > _LONGEST_LINE:
                raise fail("has a line that is too long")
            chunk = unzip.unconsumed_tail
        if unzip.unused_data:
            raise fail("is damaged: something follows the compressed data")
    if not unzip.eof:
        raise fail("is incomplete: it was cut off")
    if rest:
        yield rest
