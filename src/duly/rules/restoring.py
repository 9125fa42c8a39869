"""What a run becomes when it is loaded into another store: no worker there has a claim on it."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from duly.model import Delivery, Run, State
from duly.model.holds import UNPLACED
from duly.model.transfer import Record, RunEntry, StoreMark

RESTORED = "its worker was not known after a restore"


def restored(run: Run, at: datetime) -> Run:
    """The run as it is loaded. `at` is the instant of the snapshot.

    A running run waits again, at once; one that may start only once is lost, because its start is recorded and its end
    is not known. A waiting run that was assigned to a node waits to be placed: that node may not exist any more.
    """
    if run.state is State.RUNNING and run.policy.delivery is Delivery.AT_MOST_ONCE:
        return replace(
            run, state=State.LOST, reason=RESTORED, finished_at=at, expires_at=None, member=False, cancelling=False
        )
    if run.final:
        return run
    if run.state is State.RUNNING and run.cancelling:
        return replace(run, state=State.CANCELLED, finished_at=at, expires_at=None, member=False, cancelling=False)
    waiting = replace(run, state=State.PENDING, expires_at=None, progress=None)
    if run.assignable:
        waiting = replace(waiting, hold=UNPLACED if run.hold is None else run.hold, assignee=None)
    return waiting


def as_loaded(record: Record, at: datetime) -> Record:
    """The record as it is loaded into another store."""
    return replace(record, run=restored(record.run, at)) if isinstance(record, RunEntry) else record


def refusal(mark: StoreMark, url: str) -> str:
    """Why a store with this mark cannot be used, and the way out."""
    since = "" if mark.since is None else f" (since {mark.since:%Y-%m-%d %H:%M:%S} UTC)"
    match mark.kind.value:
        case "importing":
            return (
                f"an import into {url} from {mark.address} has begun and not ended{since}: repeat it, which starts from"
                " the beginning, or use another namespace"
            )
        case "closed":
            return (
                f"{url} is being moved to {mark.address}{since}: try again in a few seconds. If `duly copy` was"
                f" killed, reopen this store with `duly copy --abort {url}`"
            )
        case _:
            return f"everything in {url} was moved to {mark.address}{since}: use that address"
