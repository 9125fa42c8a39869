"""The doctor's findings about a database file: what it promises as it is opened here, and what it needs."""

from __future__ import annotations

import shutil
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

from duly.backends.sqlite.files import Place, memory_file_system
from duly.backends.sqlite.session import version_of
from duly.backends.sqlite.unit import SqliteUnit
from duly.ports import Finding, Severity
from duly.rules.sizes import in_words

_LARGE_LOG = 256 << 20
_LITTLE_SPACE = 1 << 30
_LARGEST_TO_CHECK = 1 << 30
_TEN_PROBLEMS = "PRAGMA quick_check(10)"


async def examine(unit: SqliteUnit, place: Place, namespace: str, *, push: bool) -> list[Finding]:
    """All findings. Runs on a reader."""
    return [
        Finding(Severity.OK, "library", f"SQLite {sqlite3.sqlite_version}"),
        *_journal(unit, place),
        _durability(place),
        _schema(unit, namespace),
        _integrity(unit, place.path),
        *_space(place.path),
        *_privacy(place.path),
        _wake_ups(push=push),
    ]


def _journal(unit: SqliteUnit, place: Place) -> Iterator[Finding]:
    row = unit.select_one("PRAGMA journal_mode")
    mode = "?" if row is None else row[0]
    if mode == "wal":
        yield Finding(Severity.OK, "journal", f"{place.path} has a write-ahead log: readers and the writer do not wait")
    else:
        yield Finding(Severity.PROBLEM, "journal", f"{place.path} has journal mode {mode}: its log was disabled")


def _durability(place: Place) -> Finding:
    volatile = memory_file_system(place.path.parent)
    if volatile is not None:
        # Nothing is left that could start twice, so at_most_once holds there as it does in memory://.
        return Finding(
            Severity.WARNING,
            "durability",
            f"{place.path} is on {volatile}, that is in memory: a restart of the machine forgets everything",
        )
    if place.synchronous == "full":
        return Finding(
            Severity.OK, "durability", "synchronous=full: every commit survives power loss, and waits for the disk"
        )
    return Finding(
        Severity.WARNING,
        "durability",
        "synchronous=normal: everything acknowledged survives the death of every process; power loss may undo the last"
        " moments, but for the start of at-most-once runs. Use ?synchronous=full if that is too little",
    )


def _schema(unit: SqliteUnit, namespace: str) -> Finding:
    version = version_of(unit)
    return Finding(Severity.OK, "schema", f"version {version} in namespace {namespace!r}")


def _integrity(unit: SqliteUnit, path: Path) -> Finding:
    if _size(path) > _LARGEST_TO_CHECK:
        return Finding(
            Severity.OK, "integrity", f"not checked, the file is large: `sqlite3 {path} 'PRAGMA quick_check'` does it"
        )
    problems = [text for (text,) in unit.select(_TEN_PROBLEMS) if text != "ok"]
    if problems:
        return Finding(Severity.PROBLEM, "integrity", f"{path} is damaged, restore a backup: {'; '.join(problems)}")
    return Finding(Severity.OK, "integrity", "quick_check found nothing")


def _privacy(path: Path) -> Iterator[Finding]:
    if _mode(path) & stat.S_IRWXO:
        way_out = f"chmod o= {path} {path}-wal {path}-shm"
        yield Finding(
            Severity.WARNING, "privacy", f"every user of this machine can read {path}, payloads included: {way_out}"
        )


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode
    except OSError:
        return 0


def _space(path: Path) -> Iterator[Finding]:
    log = _size(path.with_name(path.name + "-wal"))
    free = shutil.disk_usage(path.parent).free
    large, little = log > _LARGE_LOG, free < _LITTLE_SPACE
    yield Finding(
        Severity.WARNING if large else Severity.OK,
        "size",
        f"{in_words(_size(path))}, and {in_words(log)} of log"
        + (": some reader has kept a snapshot open for long, so the log cannot be emptied" if large else ""),
    )
    yield Finding(Severity.WARNING if little else Severity.OK, "disk", f"{in_words(free)} free at {path.parent}")


def _wake_ups(*, push: bool) -> Finding:
    if push:
        return Finding(Severity.OK, "wake-ups", "processes of this user on this machine wake each other at once")
    return Finding(
        Severity.WARNING, "wake-ups", "no private directory for sockets: other processes are noticed at their next tick"
    )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
