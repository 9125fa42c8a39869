"""Reads a job file as a whole, and reports all problems at once, each with its line.

`[jobs.NAME]` tables rather than an array of tables: a name that is given twice is refused by TOML itself, every error
has a name to tell, and the order of jobs means nothing.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any

from duly.errors import ConfigurationError, DulyError
from duly.job_files.fields import DEFAULTS, FIELDS, Convert, Refused, seconds, text, timezone
from duly.job_files.job_table import conflicts, job_spec
from duly.job_files.positions import Path, Place, Places, place_of
from duly.job_files.problems import JobFileError, Problem, unknown
from duly.model import JobFile, JobSpec, SchedulerConfig, is_job_name
from duly.rules.printable import shortened

_NAMES = "a letter or _, then letters, digits and _ . -, at most 128"
_TOML_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


def read_file(path: str) -> JobFile:
    """Read a file; raises `JobFileError`, or `ConfigurationError` if there is none."""
    try:
        data = FilePath(path).read_bytes()
    except OSError as exc:
        raise ConfigurationError(f"{path} cannot be read: {exc.strerror}") from exc
    try:
        content = data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        place = place_of(data[: exc.start].decode("utf-8-sig"), len(data[: exc.start].decode("utf-8-sig")))
        raise JobFileError([Problem(path, place.line, place.column, "", "this is not UTF-8")]) from exc
    return read_text(content, path)


def read_text(content: str, path: str = "jobs.toml") -> JobFile:
    """Read the text of a file; raises `JobFileError`."""
    try:
        tables, places = tomllib.loads(content), Places(content)
    except tomllib.TOMLDecodeError as exc:
        raise JobFileError([_not_toml(path, content, str(exc))]) from exc
    except ValueError as exc:  # a number of thousands of digits
        raise JobFileError([Problem(path, 1, 1, "", f"it cannot be read: {exc}")]) from exc
    except RecursionError as exc:
        raise JobFileError([Problem(path, 1, 1, "", "lists or tables lie too deep in each other")]) from exc
    return _Reader(path, places, tables).read()


def _not_toml(path: str, content: str, said: str) -> Problem:
    found = _TOML_PLACE.search(said)
    end = place_of(content, len(content))
    place = Place(int(found[1]), int(found[2])) if found and found[1] else end
    return Problem(path, place.line, place.column, "", f"not TOML: {_TOML_PLACE.sub('', said)}")


def _setting(key: str, convert: Convert | None = None) -> Convert:
    """A key that is a field of `SchedulerConfig`, and is checked by it."""

    def setting(_: str, value: Any) -> Any:
        given = value if convert is None else convert(key, value)
        try:
            SchedulerConfig(**{key: given})
        except DulyError as exc:
            raise Refused(str(exc)) from exc
        return given

    return setting


def _file_name(key: str, value: Any) -> str:
    name = text(key, value)
    if not is_job_name(name):
        raise Refused(f"{value!r} cannot name a job file: {_NAMES}")
    return name


_SETTINGS: dict[str, Convert] = {
    "namespace": _setting("namespace"),
    "timezone": timezone,
    "max_concurrent": _setting("max_concurrent"),
    "queues": _setting("queues"),
    "placement": _setting("placement"),
    "assign_ahead": _setting("assign_ahead"),
    "max_losses": _setting("max_losses"),
    "labels": _setting("labels"),
    "shutdown_timeout": _setting("shutdown_timeout", seconds),
    "misfire_grace": _setting("misfire_grace", seconds),
    "lock_ttl": _setting("lock_ttl", seconds),
    "leader_ttl": _setting("leader_ttl", seconds),
}
_TOP: dict[str, Convert] = {"name": _file_name, "url": text, **_SETTINGS}
_OLD_NAME = "fleet"  # deprecated key of the name


class _Reader:
    """One reading: collects problems instead of stopping at the first."""

    def __init__(self, path: str, places: Places, tables: dict[str, Any]) -> None:
        self._path = path
        self._places = places
        self._tables = tables
        self._problems: list[Problem] = []

    def read(self) -> JobFile:
        plain = {key: value for key, value in self._tables.items() if key not in {"jobs", "defaults"}}
        known = _TOP | ({_OLD_NAME: _file_name} if "name" not in plain else {})
        top = self._fields((), plain, known)
        if not {"name", _OLD_NAME} & plain.keys():
            self._report(
                (), 'the file has no name: write name = "…" at the top; it replaces only the jobs of that name'
            )
        defaults = self._fields(("defaults",), self._table(("defaults",)), DEFAULTS)
        zone = top.get("timezone", "UTC")
        jobs = [self._job(name, table, defaults, zone) for name, table in self._table(("jobs",)).items()]
        if self._problems:
            raise JobFileError(self._problems)
        return JobFile(
            top["name" if "name" in top else _OLD_NAME],
            tuple(spec for spec in jobs if spec is not None),
            self._path,
            top.get("url"),
            {key: top[key] for key in _SETTINGS if key in top},
            self._deprecations(top),
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
        self._report(path, f"must be a table: [{'jobs.NAME' if path == ('jobs',) else path[0]}]")
        return {}

    def _job(self, name: str, table: Any, defaults: Mapping[str, Any], zone: str) -> JobSpec | None:
        path: Path = ("jobs", name)
        if not isinstance(table, Mapping):
            self._report(path, f"a job is a table: [jobs.{name}]")
            return None
        before = len(self._problems)
        if not is_job_name(name):
            self._report(path, f"{name!r} cannot name a job: {_NAMES}")
        given = _merged(defaults, self._fields(path, table, FIELDS))
        for conflict in conflicts(given, {*defaults, *table}):
            self._report((*path, *conflict.inside), str(conflict))
        if len(self._problems) > before:
            return None
        try:
            return job_spec(name, given, zone)
        except Refused as exc:
            self._report((*path, *exc.inside), str(exc))
            return None

    def _fields(self, path: Path, table: Mapping[str, Any], known: Mapping[str, Convert]) -> dict[str, Any]:
        """The fields of a table that are known and can be; all others are reported."""
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
        place = self._places.value(path) if value else self._places.key(path)
        return Problem(self._path, place.line, place.column, shortened(_where(path)), shortened(message))


def _merged(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """A job's fields over the defaults; of the environment each variable by itself."""
    both = [table["environment"] for table in (defaults, given) if "environment" in table]
    environment = {name: value for table in both for name, value in table.items()}
    return {**defaults, **given, **({"environment": dict(sorted(environment.items()))} if both else {})}


def _where(path: Path) -> str:
    """The job and the key, for people."""
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
        return f'unknown table; a job\'s name with dots in it is quoted: [jobs."{path[1]}.{key}"]'
    if not path and isinstance(value, Mapping):
        return f"unknown table {key!r}; jobs are written as [jobs.{key}]"
    return unknown(key, [*known, "defaults", "jobs"] if not path else known)
