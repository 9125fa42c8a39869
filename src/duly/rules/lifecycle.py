"""The table of legal transitions between states of a run."""

from __future__ import annotations

from duly.model import State

MOVES: dict[State, frozenset[State]] = {
    State.PENDING: frozenset({State.QUEUED, State.RUNNING, State.CANCELLED, State.SKIPPED}),
    State.QUEUED: frozenset({State.PENDING, State.RUNNING, State.CANCELLED, State.SKIPPED}),
    State.RUNNING: frozenset(
        {State.PENDING, State.COMPLETED, State.FAILED, State.CANCELLED, State.LOST, State.SKIPPED}
    ),
    State.COMPLETED: frozenset(),
    State.FAILED: frozenset({State.PENDING}),
    State.CANCELLED: frozenset({State.PENDING}),
    State.LOST: frozenset({State.PENDING}),
    State.SKIPPED: frozenset(),
}

REDRIVABLE = frozenset(state for state, to in MOVES.items() if to == {State.PENDING})


def may_move(before: State, after: State) -> bool:
    """Whether a run may go from one state to the other in one step."""
    return after in MOVES[before]
