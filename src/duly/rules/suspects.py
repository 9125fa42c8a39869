"""Suspects: runs that may have killed their workers, and how to find the one that did.

When a worker vanishes, all its runs are lost, whichever of them is the cause. So a loss alone does not fail a run. A
run whose next loss could be its last is a suspect: it is lent alone, to a node that has nothing else to do, and stays
alone there for a while. If the node vanishes meanwhile, this run is the cause.
"""

from __future__ import annotations

from datetime import timedelta

from duly.model import Node, Run

MAX_LOSSES = 3
_LONGEST = 86_400.0


def is_suspect(losses: int, most: int) -> bool:
    """Whether a run with this number of losses is to be lent alone; `most` losses fail it."""
    return losses >= most - 1


def seconds_alone(losses: int, most: int, lease: float) -> float:
    """How long a suspect stays alone on its node: one lease, and twice as long with each further loss.

    After this time other runs may join it, because a run may take hours. If its worker vanishes after that, the cause
    is unknown, and the run is alone for longer the next time.
    """
    return float(min(lease * 2.0 ** min(losses - (most - 1), 64), _LONGEST))


def was_alone(run: Run, most: int, lease: float) -> bool:
    """Whether a run that was taken over from a vanished node was the only one there when it vanished.

    `run.expires_at` is when the lost claim expired: one lease after its last renewal. Others join a suspect only after
    a renewal at the end of its time alone was acknowledged (`runtime.quarantine`). So if the last renewal was before
    that, no other run had joined it.
    """
    if not is_suspect(run.losses, most) or run.started_at is None or run.expires_at is None:
        return False
    renewed_at = run.expires_at - timedelta(seconds=lease)
    return renewed_at < run.started_at + timedelta(seconds=seconds_alone(run.losses, most, lease))


def vanished(run: Run, reaper: Node) -> bool:
    """Whether the worker of a run that was taken over may have vanished.

    Not if it is the one that has taken it over: then only the claim was lost, and maybe the answer that reported it.
    """
    return run.node != reaper.id or run.started_at is None or run.started_at < reaper.started_at
