"""Which shards this node takes and hands over, as time goes by. Makes no calls: the elector carries out the decisions.

Only what exceeds a node's share moves, one shard at a time. A node has too many only after a claim's lease has passed:
by then a node that has died is no longer counted, and its shards are not handed back and forth.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from msgspec import Struct

from duly.rules.shards import rank, share, to_hand_over, turn


class Step(Struct, frozen=True):
    """What to do now: shards to take, one to hand over, and the seconds until it is worth looking again."""

    take: tuple[str, ...] = ()
    hand_over: str | None = None
    again: float = math.inf


class ShardBalance:
    """`lease` is how long a leadership lasts without renewal, `presence` how long a node counts that has died."""

    def __init__(self, me: str, lease: float, presence: float) -> None:
        self._me = me
        self._lease = lease
        self._presence = presence
        self._free_since: dict[str, float] = {}
        self._over_since: float | None = None
        self._handed: tuple[str, float] | None = None

    def free_for(self, now: float) -> dict[str, float]:
        """The shards that nobody leads, as far as this node knows, and for how many seconds."""
        return {shard: now - since for shard, since in self._free_since.items()}

    def step(self, held: Sequence[str], others: Mapping[str, str | None], nodes: Sequence[str], now: float) -> Step:
        """Decide, given the shards held here, the holders of all others (None: free), and the nodes that share them."""
        self._note(others, now)
        most = share(len(held) + len(others), len(nodes))
        take, again = self._taken(held, nodes, most, now)
        return Step(tuple(take), self._handed_over(held, most, now), again)

    def _note(self, others: Mapping[str, str | None], now: float) -> None:
        free = [shard for shard, holder in others.items() if holder is None]
        self._free_since = {shard: self._free_since.get(shard, now) for shard in free}
        if self._handed is not None and others.get(self._handed[0]) is not None:
            self._handed = None  # it has a new leader

    def _taken(self, held: Sequence[str], nodes: Sequence[str], most: int, now: float) -> tuple[list[str], float]:
        """The free shards whose time has come, and the seconds until the next one's comes."""
        ranks = {shard: rank(shard, self._me, nodes) for shard in self._free_since}
        take: list[str] = []
        again = math.inf
        for shard in sorted(ranks, key=ranks.__getitem__):
            has_share = len(held) + len(take) >= most
            at = self._free_since[shard] + turn(ranks[shard], self._lease, has_share=has_share)
            if self._handed is not None and self._handed[0] == shard:
                at = self._handed[1] + self._lease / 2  # another node should take it
            if now >= at:
                take.append(shard)
            else:
                again = min(again, at - now)
        if self._handed is not None and self._handed[0] in take:  # no node took it: do not offer it again soon
            self._handed, self._over_since = None, now
        return take, again

    def _handed_over(self, held: Sequence[str], most: int, now: float) -> str | None:
        if len(held) <= most:
            self._over_since = None
            return None
        if self._over_since is None:
            self._over_since = now
        if self._free_since or self._handed is not None or now - self._over_since < self._presence:
            return None
        shard = to_hand_over(held, self._me)
        self._handed = (shard, now)
        return shard
