"""History: the attempts of a run as people see them."""

from __future__ import annotations

from collections.abc import Sequence

from duly.model import Attempt, OutcomeKind, Run, State


def history_of(run: Run | None, stored: Sequence[Attempt]) -> list[Attempt]:
    """The attempts of a run, oldest first; a success at the first attempt is derived from the run itself."""
    attempts = sorted(stored, key=lambda attempt: attempt.fence)
    if run is None or run.state is not State.COMPLETED or any(a.fence == run.fence for a in attempts):
        return attempts
    if run.started_at is None or run.finished_at is None:
        return attempts
    success = Attempt(
        number=run.attempt,
        fence=run.fence,
        node=run.node or "",
        started_at=run.started_at,
        ended_at=run.finished_at,
        outcome=OutcomeKind.SUCCEEDED,
    )
    return [*attempts, success]
