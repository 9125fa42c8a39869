"""The schema: numbered steps in `migrations/`, applied in order, each in one transaction that also writes it down.

Many processes may open a new file at once: whoever has the lock applies a step, the others find it written down. A file
that newer code has migrated is refused, since this code cannot know what the rows mean by now.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from functools import cache
from importlib import resources
from pathlib import Path

from msgspec import Struct

from duly.backends.sqlite.unit_of_work import UnitOfWork
from duly.errors import BackendError

_TABLE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = '{ns}_schema'"
_CREATE = """
CREATE TABLE IF NOT EXISTS {ns}_schema (
    version INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    applied_at INTEGER NOT NULL
)
"""
_VERSION = "SELECT coalesce(max(version), 0) FROM {ns}_schema"
_RECORD = "INSERT INTO {ns}_schema (version, name, applied_at) VALUES (?, ?, ?)"


class Step(Struct, frozen=True):
    """One step of the schema: its number, the name of its file, and its statements."""

    version: int
    name: str
    script: str

    def statements(self) -> Iterator[str]:
        """The statements one by one."""
        statement = ""
        for line in self.script.splitlines(keepends=True):
            statement += line
            if sqlite3.complete_statement(statement):
                yield statement
                statement = ""


@cache
def steps() -> tuple[Step, ...]:
    """All steps this code knows, in order."""
    files = resources.files("duly.backends.sqlite").joinpath("migrations").iterdir()
    scripts = {file.name.removesuffix(".sql"): file.read_text() for file in files if file.name.endswith(".sql")}
    return tuple(Step(int(name[:4]), name, scripts[name]) for name in sorted(scripts))


def version_of(unit: UnitOfWork) -> int:
    """The version of the namespace's tables; 0 when there are none."""
    if unit.one(_TABLE) is None:
        return 0
    row = unit.one(_VERSION)
    assert row is not None
    return int(row[0])


def apply_next(unit: UnitOfWork, namespace: str, path: Path) -> str | None:
    """Apply the next step that is missing; its name, or None when there is none."""
    version, latest = version_of(unit), steps()[-1].version
    if version > latest:
        raise BackendError(
            f"{path} has schema version {version} in namespace {namespace!r}, but this Duly knows only version"
            f" {latest}: install the newer Duly that migrated it, or open another file"
        )
    step = next((step for step in steps() if step.version > version), None)
    if step is None:
        return None
    unit.run(_CREATE)
    for statement in step.statements():
        unit.run(statement)
    unit.run(_RECORD, step.version, step.name, unit.at(None))
    return step.name
