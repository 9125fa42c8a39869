"""The incarnation: whether the store is still the one this session knew, with all that it acknowledged.

A server that was replaced, emptied, restored from an old copy, or failed over to a replica that lagged, has forgotten
things that others act on. Each new connection asks, and each beat looks. Fences go on above all that this session has
seen, and the loss is told once: the first call after it raises, so the node says so and tries again.
"""

from __future__ import annotations

import secrets

from duly.errors import BackendUnavailable

_LOSSES = {
    "empty": "has forgotten everything: it came back, or was emptied, without what it had acknowledged",
    "other": "is not the store it was: another node has found it empty or behind, and it began anew",
    "behind": "has forgotten its latest changes: it came back from an older copy, or a replica took over that lagged",
}


class StoreIdentity:
    """What one session knows about the store. `high` is the greatest fence it has seen."""

    def __init__(self, place: str) -> None:
        self.id = ""
        self.number = 0
        self.high = 0
        self._place = place

    def saw(self, fence: int) -> None:
        """A fence was given out; no later one may be smaller."""
        self.high = max(self.high, fence)

    def question(self) -> tuple[str, int, str, int]:
        """What the store is told: whom we know, how far, and what to call itself if it has to begin anew."""
        return self.id, self.high, secrets.token_hex(8), self.number

    def learn(self, found: bytes, number: int, last: int, verdict: bytes) -> None:
        """Take the answer in; raise once if the store is another, or has lost something."""
        self.id, self.number = found.decode(), number
        self.saw(last)
        if (loss := _LOSSES.get(verdict.decode())) is not None:
            raise BackendUnavailable(f"{self._place} {loss} (incarnation {number} of the store)")

    def differs(self, found: bytes | None, last: bytes | None) -> bool:
        """Whether what a beat came back with is not what this session knows."""
        return bool(self.id) and ((found or b"").decode() != self.id or int(last or 0) < self.high)
