"""The jobs that have a tag. No store has an index of tags: the jobs are read in slices, up to a bound."""

from __future__ import annotations

from duly.errors import ConfigurationError, shown
from duly.model import JobRecord, JobStatus
from duly.ports import JobStore

MOST_CHANGED = 1_000
_MOST_READ = 50_000
_SLICE = 500


async def jobs_with_tag(store: JobStore, tag: str) -> list[JobRecord]:
    """The jobs with this tag that have not been removed, by name; raises `ConfigurationError` if they are too many."""
    found: list[JobRecord] = []
    after, searched = "", 0
    while records := await store.jobs(after=after, limit=_SLICE):
        found += [each for each in records if tag in each.spec.tags and each.status is not JobStatus.REMOVED]
        after, searched = records[-1].name, searched + len(records)
        if len(found) > MOST_CHANGED:
            raise ConfigurationError(
                f"more than {MOST_CHANGED:,} jobs have the tag {shown(tag)}: name the jobs instead"
            )
        if searched >= _MOST_READ:
            raise ConfigurationError(f"there are more than {_MOST_READ:,} jobs to search by tag: name the jobs instead")
    return found
