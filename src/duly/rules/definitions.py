"""Versions of a job's definition: what is kept of a replaced one, and how each differs from the one before.

The present definition is in the job's record, earlier ones are in its log (`model.definitions`). A revision also grows
when a job is paused or resumed; these have the definition of an earlier revision, so the numbers of versions may jump.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec
from msgspec import Struct

from duly.model import JobRecord
from duly.model.definitions import PastDefinition
from duly.rules.definition_words import FieldChange, field_changes

_past = msgspec.json.Decoder(PastDefinition)


class Revision(Struct, frozen=True):
    """One version of a job's definition: its revision, when it was written and by whom (None: unknown), what changed.

    `changes` compares it with the version before it. `first` says that nothing before it is known: the job was created
    with it, or earlier versions are no longer kept. `restored` says that the job had been removed before.
    """

    revision: int
    at: datetime
    by: str | None
    current: bool
    first: bool
    restored: bool
    changes: tuple[FieldChange, ...]

    def words(self) -> tuple[str, ...]:
        """What it changed, one line each."""
        if self.first:
            return ("created",) if self.revision == 1 else ("earlier versions are not kept",)
        restored = ("restored after it was removed",) if self.restored else ()
        changes = tuple(f"{each.field}: {each.old} → {each.new}" for each in self.changes)
        return (*restored, *changes) or ("no field changed",)


def past(record: JobRecord) -> bytes | None:
    """What is kept of a definition that is about to be replaced; None if it cannot be read anyway."""
    if record.damage is not None:
        return None
    version = record.version
    return msgspec.json.encode(
        PastDefinition(version.revision, version.at, record.spec, version.by, removed_at=record.removed_at)
    )


def versions(record: JobRecord, kept: Iterable[bytes]) -> list[PastDefinition]:
    """All known versions of a job, newest first, the present one included. What cannot be read is left out.

    A version from another life of the name (removed for good, defined again) has a revision that is not lower than
    that of a later entry: it is left out, too.
    """
    present = record.version
    found = [PastDefinition(present.revision, present.at, record.spec, present.by)]
    for value in reversed(list(kept)):
        try:
            each = _past.decode(value)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
        if each.revision < found[-1].revision:
            found.append(each)
    return found


def revisions(known: Sequence[PastDefinition]) -> list[Revision]:
    """Versions as people see them, from the result of `versions`."""
    return [
        _revision(each, known[place + 1] if place + 1 < len(known) else None, current=place == 0)
        for place, each in enumerate(known)
    ]


def _revision(each: PastDefinition, before: PastDefinition | None, *, current: bool) -> Revision:
    return Revision(
        revision=each.revision,
        at=each.at,
        by=each.by,
        current=current,
        first=before is None,
        restored=before is not None and before.removed_at is not None,
        changes=() if before is None else tuple(field_changes(before.spec, each.spec)),
    )


def version_at(known: Sequence[PastDefinition], revision: int | None) -> PastDefinition | None:
    """The version that was in force at a revision, None for the one before the present; None if it is not known."""
    if revision is None:
        return known[1] if len(known) > 1 else None
    if revision > known[0].revision:
        return None
    return next((each for each in known if each.revision <= revision), None)
