"""Reads a job file, and reports all problems at once, each with its line.

Jobs are `[jobs.NAME]` tables, not an array of tables: TOML itself refuses a duplicate name, each error can name its
job, and the order of jobs has no meaning.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any

from duly.errors import ConfigurationError
from duly.job_files.fields import DEFAULTS, FIELDS, Convert, Refused, calendar, checked, seconds, text
from duly.job_files.job_table import conflicts, job_spec
from duly.job_files.positions import Path, Position, Positions, position_of
from duly.job_files.problems import JobFileError, Problem, unknown
from duly.model import JobFile, JobSpec, SchedulerConfig, is_job_name
from duly.rules.calendars import Calendar
from duly.rules.printable import shortened

_NAMES = "a letter or _, then letters, digits and _ . -, at most 128"
_TOML_POSITION = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


def read_file(path: str) -> JobFile:
    """Read a file; raises `JobFileError`, or `ConfigurationError` if the file cannot be read."""
    try:
        data = FilePath(path).read_bytes()
    except OSError as exc:
        raise ConfigurationError(f"{path} cannot be read: {exc.strerror}") from exc
    try:
        content = data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        position = position_of(data[: exc.start].decode("utf-8-sig"), len(data[: exc.start].decode("utf-8-sig")))
        raise JobFileError([Problem(path, position.line, position.column, "", "this is not valid UTF-8")]) from exc
    return read_text(content, path)


def read_text(content: str, path: str = "jobs.toml") -> JobFile:
    """Read the text of a file; raises `JobFileError`."""
    try:
        tables, positions = tomllib.loads(content), Positions(content)
    except tomllib.TOMLDecodeError as exc:
        raise JobFileError([_not_toml(path, content, str(exc))]) from exc
    except ValueError as exc:  # a number with thousands of digits
        raise JobFileError([Problem(path, 1, 1, "", f"the file cannot be read: {exc}")]) from exc
    except RecursionError as exc:
        raise JobFileError([Problem(path, 1, 1, "", "lists or tables are nested too deeply")]) from exc
    return _Reader(path, positions, tables).read()


def _not_toml(path: str, content: str, message: str) -> Problem:
    found = _TOML_POSITION.search(message)
    end = position_of(content, len(content))
    position = Position(int(found[1]), int(found[2])) if found and found[1] else end
    return Problem(path, position.line, position.column, "", f"not TOML: {_TOML_POSITION.sub('', message)}")


def _setting(key: str, convert: Convert = lambda _, value: value) -> Convert:
    """A field that `SchedulerConfig` checks."""
    return checked(convert, lambda given: SchedulerConfig(**{key: given}))


def _file_name(key: str, value: Any) -> str:
    name = text(key, value)
    if not is_job_name(name):
        raise Refused(f"invalid name {value!r}: expected {_NAMES}")
    return name


_SETTINGS: dict[str, Convert] = {
    "namespace": _setting("namespace"),
    "timezone": FIELDS["timezone"],
    "max_concurrent": _setting("max_concurrent"),
    "queues": _setting("queues"),
    "placement": _setting("placement"),
    "assign_ahead": _setting("assign_ahead"),
    "shards": _setting("shards"),
    "max_losses": _setting("max_losses"),
    "labels": _setting("labels"),
    "shutdown_timeout": _setting("shutdown_timeout", seconds),
    "misfire_grace": _setting("misfire_grace", seconds),
    "lock_ttl": _setting("lock_ttl", seconds),
    "leader_ttl": _setting("leader_ttl", seconds),
    "notify_wait": _setting("notify_wait", seconds),
    "notify_repeat": _setting("notify_repeat", seconds),
    "late_after": _setting("late_after", seconds),
}
_TOP: dict[str, Convert] = {"name": _file_name, "url": text, **_SETTINGS}
_SUBTABLES = ("defaults", "calendars", "notify", "jobs")
_OLD_NAME = "fleet"  # deprecated key of the name


class _Reader:
    """Reads one file. Collects problems instead of stopping at the first."""

    def __init__(self, path: str, positions: Positions, tables: dict[str, Any]) -> None:
        self._path = path
        self._positions = positions
        self._tables = tables
        self._problems: list[Problem] = []

    def read(self) -> JobFile:
        plain = {key: value for key, value in self._tables.items() if key not in _SUBTABLES}
        known = _TOP | ({_OLD_NAME: _file_name} if "name" not in plain else {})
        top = self._fields((), plain, known)
        if not {"name", _OLD_NAME} & plain.keys():
            self._report(
                (), 'the file has no name: write name = "…" at the top; it replaces only the jobs of that name'
            )
        defaults = self._fields(("defaults",), self._table(("defaults",)), DEFAULTS)
        zone = top.get("timezone", "UTC")
        calendars = self._calendars()
        notify = self._notify()
        jobs = [self._job(name, table, defaults, zone, calendars) for name, table in self._table(("jobs",)).items()]
        if self._problems:
            raise JobFileError(self._problems)
        return JobFile(
            top["name" if "name" in top else _OLD_NAME],
            tuple(spec for spec in jobs if spec is not None),
            self._path,
            top.get("url"),
            {key: top[key] for key in _SETTINGS if key in top},
            self._deprecations(top),
            notify,
        )

    def _deprecations(self, top: Mapping[str, Any]) -> tuple[str, ...]:
        if _OLD_NAME not in top:
            return ()
        message = f'{_OLD_NAME} is deprecated: write name = "{top[_OLD_NAME]}"'
        return (str(self._problem((_OLD_NAME,), message)),)

    def _table(self, path: Path) -> Mapping[str, Any]:
        found = self._tables.get(str(path[0]), {})
        if isinstance(found, Mapping):
            return found
        self._report(path, f"must be a table: [{path[0]}{'' if path == ('defaults',) else '.NAME'}]")
        return {}

    def _calendars(self) -> dict[str, Calendar]:
        """The calendars that the file defines; problems with the others are reported."""
        found = {}
        for name, table in self._table(("calendars",)).items():
            named = {"name": name, **table} if isinstance(table, Mapping) else table
            try:
                found[name] = calendar(name, _beside(self._path, named))
            except Refused as exc:
                self._report(("calendars", name, *exc.inside), str(exc))
        return found

    def _notify(self) -> dict[str, Any]:
        """The tables of targets of notifications, checked. Their secrets are read only when they are used."""
        tables = self._table(("notify",))
        if tables:
            from duly.runtime.notify.tables import target_of  # noqa: PLC0415  # it imports HTTP and mail
        for name, table in tables.items():
            try:
                target_of(name, table)
            except ConfigurationError as exc:
                self._report(("notify", name), str(exc).removeprefix(f"notify {name!r}: "))
        return dict(tables)

    def _job(
        self, name: str, table: Any, defaults: Mapping[str, Any], zone: str, calendars: Mapping[str, Calendar]
    ) -> JobSpec | None:
        path: Path = ("jobs", name)
        if not isinstance(table, Mapping):
            self._report(path, f"a job is a table: [jobs.{name}]")
            return None
        before = len(self._problems)
        if not is_job_name(name):
            self._report(path, f"invalid name {name!r}: expected {_NAMES}")
        given = _merged(defaults, self._fields(path, table, FIELDS))
        for conflict in conflicts(given, {*defaults, *table}):
            self._report((*path, *conflict.inside), str(conflict))
        if len(self._problems) > before:
            return None
        try:
            return job_spec(name, given, zone, calendars)
        except Refused as exc:
            self._report((*path, *exc.inside), str(exc))
            return None

    def _fields(self, path: Path, table: Mapping[str, Any], known: Mapping[str, Convert]) -> dict[str, Any]:
        """The valid fields of a table; problems with the others are reported."""
        found = {}
        for key, value in table.items():
            if key not in known:
                self._report((*path, key), _unknown(path, key, value, known))
                continue
            try:
                found[key] = known[key](key, value)
            except Refused as exc:
                self._report((*path, key, *exc.inside), str(exc), value=True)
        return found

    def _report(self, path: Path, message: str, *, value: bool = False) -> None:
        self._problems.append(self._problem(path, message, value=value))

    def _problem(self, path: Path, message: str, *, value: bool = False) -> Problem:
        position = self._positions.value(path) if value else self._positions.key(path)
        return Problem(self._path, position.line, position.column, shortened(_where(path)), shortened(message))


def _beside(path: str, table: Any) -> Any:
    """The table of a calendar, the path of its iCalendar file being relative to the folder of the job file."""
    if isinstance(table, Mapping) and isinstance(table.get("ical"), str):
        return {**table, "ical": str(FilePath(path).parent / table["ical"])}
    return table


def _merged(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults, overridden by the fields of a job. Environment variables are merged one by one."""
    both = [table["environment"] for table in (defaults, given) if "environment" in table]
    environment = {name: value for table in both for name, value in table.items()}
    return {**defaults, **given, **({"environment": dict(sorted(environment.items()))} if both else {})}


def _where(path: Path) -> str:
    """The job and the key, for messages."""
    match path:
        case ("jobs", str(name)):
            return f"job {name}"
        case ("jobs", str(name), *rest):
            return f"job {name}, {_dotted(rest)}"
        case _:
            return _dotted(path)


def _dotted(path: Any) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def _unknown(path: Path, key: str, value: Any, known: Mapping[str, Convert]) -> str:
    if len(path) == 2 and isinstance(value, Mapping) and value.keys() & known.keys():
        return f'unknown table; quote a job\'s name that contains dots: [jobs."{path[1]}.{key}"]'
    if not path and isinstance(value, Mapping):
        return f"unknown table {key!r}; jobs are written as [jobs.{key}]"
    return unknown(key, [*known, *_SUBTABLES] if not path else known)
