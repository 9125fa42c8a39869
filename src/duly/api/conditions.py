"""The conditions `If-Match` and `If-None-Match` of calls that change a job.

A condition is checked against the record that the change replaces. Routes that do not support a condition refuse it,
because a caller relies on it.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from duly.api.problems import Problem

_CONDITIONS = {name.lower().encode(): name for name in ("If-Match", "If-None-Match", "If-Unmodified-Since")}

_ANY = "*"


class Condition(Struct, frozen=True):
    """What a change requires of the job: one of these revisions, that it exists, or that it is new."""

    revisions: frozenset[int] | None = None
    exists: bool = False
    new: bool = False

    def check(self, name: str, revision: int | None) -> None:
        """Raise a `Problem` unless the job with this revision (None: it does not exist) meets the condition."""
        if revision is None:
            if self.exists or self.revisions is not None:
                raise _conflict(f"job {name!r} does not exist, which If-Match requires")
        elif self.new:
            raise _conflict(f"job {name!r} exists already, at revision {revision}")
        elif self.revisions is not None and revision not in self.revisions:
            wanted = ", ".join(map(str, sorted(self.revisions)))
            raise _conflict(f"job {name!r} is at revision {revision}, not {wanted}: read it again")


def condition_of(headers: Mapping[bytes, bytes]) -> Condition:
    """The condition of a call, if it has one."""
    match, none_match = headers.get(b"if-match"), headers.get(b"if-none-match")
    if none_match is not None and none_match.strip() != b"*":
        text = none_match.decode("latin-1")
        detail = f"If-None-Match: {text}: only * is supported, for a job that must be new"
        raise Problem(400, "malformed", detail)
    if match is None:
        return Condition(new=none_match is not None)
    if none_match is not None:
        raise Problem(400, "malformed", "If-Match and If-None-Match: * contradict each other: give one of them")
    header = match.decode("latin-1")
    if header.strip() == _ANY:
        return Condition(exists=True)
    return Condition(frozenset(_revision(part, header) for part in header.split(",")))


def _revision(part: str, header: str) -> int:
    text = part.strip().removeprefix("W/").strip('"')
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise Problem(400, "malformed", f'If-Match: {header}: expected a revision as in the ETag, e.g. "3"')
    return int(text)


def refuse_unknown(headers: Mapping[bytes, bytes], known: tuple[str, ...]) -> None:
    """Refuse conditions that the route does not check."""
    for header, name in _CONDITIONS.items():
        if header in headers and name not in known:
            raise Problem(400, "malformed", f"{name} is not supported here: leave it out")


def _conflict(detail: str) -> Problem:
    return Problem(409, "conflict", detail)
