"""Conditions: `If-Match` and `If-None-Match` of a call that changes a job.

A condition is checked against the very record that the change replaces. Where a route does not know one it is refused:
a caller who asks for a condition and gets none would be misled.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from duly.api.problems import Problem

_CONDITIONS = {name.lower().encode(): name for name in ("If-Match", "If-None-Match", "If-Unmodified-Since")}

_ANY = "*"


class Condition(Struct, frozen=True):
    """What a job must be so that a change of it applies: of one of these revisions, existing, or new."""

    revisions: frozenset[int] | None = None
    exists: bool = False
    new: bool = False

    def check(self, name: str, revision: int | None) -> None:
        """Raise a `Problem` unless the job of this revision (None: there is none) fulfils it."""
        if revision is None:
            if self.exists or self.revisions is not None:
                raise _conflict(f"job {name!r} does not exist, and If-Match asks that it does")
        elif self.new:
            raise _conflict(f"job {name!r} exists already, at revision {revision}")
        elif self.revisions is not None and revision not in self.revisions:
            wanted = ", ".join(map(str, sorted(self.revisions)))
            raise _conflict(f"job {name!r} is at revision {revision}, not {wanted}: read it again")


def condition_of(headers: Mapping[bytes, bytes]) -> Condition:
    """The condition that a call names, if any."""
    match, none_match = headers.get(b"if-match"), headers.get(b"if-none-match")
    if none_match is not None and none_match.strip() != b"*":
        said = none_match.decode("latin-1")
        detail = f"If-None-Match: {said}: only * is understood, for a job that must be new"
        raise Problem(400, "malformed", detail)
    if match is None:
        return Condition(new=none_match is not None)
    if none_match is not None:
        raise Problem(400, "malformed", "If-Match and If-None-Match: * contradict each other: give one of them")
    said = match.decode("latin-1")
    if said.strip() == _ANY:
        return Condition(exists=True)
    return Condition(frozenset(_revision(part, said) for part in said.split(",")))


def _revision(part: str, said: str) -> int:
    text = part.strip().removeprefix("W/").strip('"')
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise Problem(400, "malformed", f'If-Match: {said}: a revision is needed, as in the ETag: "3"')
    return int(text)


def refuse_unknown(headers: Mapping[bytes, bytes], known: tuple[str, ...]) -> None:
    """Refuse conditions that a changing route does not check."""
    for header, name in _CONDITIONS.items():
        if header in headers and name not in known:
            raise Problem(400, "malformed", f"{name} is not understood here: leave it out")


def _conflict(detail: str) -> Problem:
    return Problem(409, "conflict", detail)
