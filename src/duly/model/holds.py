"""Hold keys: why a waiting run may not start now. This module is the grammar; everything in Python uses it.

A run with a hold is pending and in no index: no promotion and no claim sees it until `Queue.unhold`, `assign` or
`claim_held` takes it out of the hold. A key is one of these, and case matters:

| key | the run waits until | put back by |
|---|---|---|
| `job:<job>` | its job is resumed or restored | the caller that resumes the job; the janitor |
| `handler:<handler>` | a node that has the handler claims | the claim of that node |
| `group:<group>` | its group has room | the store, when a member becomes final |
| `place` | the leader assigns it to a node | `Queue.assign` |
| `alone` | a node that has no other run claims it (`rules.suspects`) | `Queue.claim_held` |

The name of the job, handler or group follows the first colon unchanged. Stores keep any other key that a run is put
with, and `unhold` puts it back: new reasons can be added without changing a store.
"""

from __future__ import annotations

UNPLACED = "place"
ALONE = "alone"
_JOB, _HANDLER, _GROUP = "job:", "handler:", "group:"


def hold_for_job(job: str) -> str:
    """The key of runs whose job is paused or removed."""
    return _JOB + job


def hold_for_handler(handler: str) -> str:
    """The key of runs that were offered to a node without their handler."""
    return _HANDLER + handler


def hold_for_group(group: str) -> str:
    """The key of runs that wait for room in their group."""
    return _GROUP + group


def held_job(key: str) -> str | None:
    """The job that a key names; None for a key of another kind."""
    return key.removeprefix(_JOB) if key.startswith(_JOB) else None


def held_handler(key: str) -> str | None:
    """The handler that a key names; None for a key of another kind."""
    return key.removeprefix(_HANDLER) if key.startswith(_HANDLER) else None


def held_group(key: str) -> str | None:
    """The group that a key names; None for a key of another kind."""
    return key.removeprefix(_GROUP) if key.startswith(_GROUP) else None
