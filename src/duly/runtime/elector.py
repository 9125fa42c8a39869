"""The elector: competes for the planning leases and knows which of them this node holds.

Leadership ends here, by a monotonic clock, before it ends in the store, and a new leader installs its epoch before it
writes. Seniority only decides which node asks first when a lease is free; with several shards, each shard has its own
order (`rules.shards`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from msgspec import Struct
from msgspec.structs import replace

from duly.errors import BackendUnavailable
from duly.model import Lease, Role, seconds_between
from duly.model.event import LeaderElected, LeaderLost
from duly.model.job import MAIN
from duly.ports import Coordinator, JobStore
from duly.rules.lease_limits import trusted_until
from duly.rules.shards import STOPPING, is_shared, sharers
from duly.runtime.environment import Environment, NodeService
from duly.runtime.shard_balance import ShardBalance
from duly.runtime.shard_layout import ShardLayout

_PER_RANK = 0.02
_REACTION = 0.1  # how late a busy node may learn of a free lease: hints are passed on at this rate (`node`)
_LONGEST_WAIT = 0.2


class Leadership(Struct, frozen=True):
    """A held planning lease: under this epoch, and trusted until then. The epoch is None while it is in doubt."""

    lease: Lease
    epoch: int | None
    trusted_until: float


class Elector(NodeService):
    """Acquires and holds the leases that this node wants."""

    name = "elector"

    def __init__(
        self,
        env: Environment,
        coordinator: Coordinator,
        store: JobStore,
        shards: Callable[[], Collection[str]],
        elected: Callable[[], None],
        layout: ShardLayout,
    ) -> None:
        super().__init__(env)
        self._node_id = env.card.id
        self._coordinator = coordinator
        self._store = store
        self._shards = shards
        self._ttl = env.config.leader_lease
        self._elected = elected
        self._layout = layout
        self._balance = ShardBalance(self._node_id, self._ttl, env.config.lease)
        self._held: dict[str, Leadership] = {}
        self._patient = True
        self._leaderless_since: float | None = None
        self.resigned = False

    # --- what others ask

    def epoch(self, shard: str) -> int | None:
        """The epoch under which this node leads the shard, None if it does not or cannot be sure."""
        leadership = self._held.get(shard)
        if leadership is None or self._clock.monotonic() >= leadership.trusted_until:
            return None
        return leadership.epoch

    @property
    def leads(self) -> bool:
        return self.epoch(MAIN) is not None

    def leaderless_for(self) -> dict[str, float]:
        """The shards that nobody leads, as far as this node knows, and for how many seconds."""
        now = self._clock.monotonic()
        if self._layout.known > 1:
            return self._balance.free_for(now)
        return {} if self._leaderless_since is None else {MAIN: now - self._leaderless_since}

    def led(self) -> list[str]:
        """The shards this node leads."""
        return [shard for shard in self._held if self.epoch(shard) is not None]

    def doubt(self, shard: str) -> None:
        """The store refused this epoch: a delayed copy of another installation may have arrived after ours.

        If the lease is still ours, the next tick installs it again; if not, the next tick drops it.
        """
        leadership = self._held.get(shard)
        if leadership is not None:
            self._held[shard] = replace(leadership, epoch=None)
            self.signal.wake()

    # --- competing

    async def tick(self) -> float:
        if self.resigned:
            return self._ttl
        await self._keep()
        await self._layout.refresh()
        if self._layout.known == 1:
            wanted, delays = self._shards(), []
        else:
            wanted, delays = [each for each in self._shards() if not is_shared(each)], [await self._balance_shards()]
        delays += [await self._compete(shard) for shard in wanted if shard not in self._held]
        return min([self._ttl / 3, *delays])

    async def _keep(self) -> None:
        """Renew the held leases; those that could not be renewed are lost."""
        if not self._held:
            return
        held = list(self._held.values())
        sent = self._clock.monotonic()
        try:
            renewed = await self._coordinator.renew([leadership.lease for leadership in held], self._ttl)
        except BackendUnavailable:
            self._drop_expired()
            raise
        for leadership, lease in zip(held, renewed, strict=True):
            if leadership.lease.name not in self._held:
                continue  # resigned during the call
            if lease is None:
                self._drop(leadership.lease.name)
            else:
                until = trusted_until(sent, self._ttl)
                await self._hold(lease, self._held[lease.name].epoch, until)

    def _drop_expired(self) -> None:
        for shard in [shard for shard in self._held if self.epoch(shard) is None]:
            self._drop(shard)

    def _drop(self, shard: str) -> None:
        del self._held[shard]
        self._emit(LeaderLost(shard, resigned=False))

    async def _compete(self, shard: str) -> float:
        """Take the lease if it is free; return the seconds until the next try."""
        present = await self._coordinator.holder(shard)
        if shard == MAIN:
            self._note_leader(present)
        if present is not None and present.holder != self._node_id:
            self._patient = True
            return self._until_free(present)
        if self._patient and present is None:
            self._patient = False
            await asyncio.sleep(await self._turn())
        return await self._acquire(shard)

    # --- several shards

    async def _balance_shards(self) -> float:
        """Take free shards and hand over those beyond this node's share; return the seconds until the next try."""
        names = self._layout.names()
        unheld = [shard for shard in names if shard not in self._held]
        # All at once: the next renewal waits for the answers.
        leases = await asyncio.gather(*map(self._coordinator.holder, unheld))
        others = dict(zip(unheld, leases, strict=True))
        nodes = sharers(await self._coordinator.nodes(), self._node_id, self._layout.known)
        holders = {shard: self._other_holder(lease) for shard, lease in others.items()}
        held = [shard for shard in names if shard in self._held]
        step = self._balance.step(held, holders, nodes, self._clock.monotonic())
        for shard in step.take:
            await self._acquire(shard)
        if step.hand_over is not None:
            await self._hand_over(step.hand_over)
        return min([step.again, *(self._until_free(lease) for lease in others.values() if lease is not None)])

    def _other_holder(self, lease: Lease | None) -> str | None:
        """A lease that this node has without knowing it counts as free: acquiring it returns it."""
        return None if lease is None or lease.holder == self._node_id else lease.holder

    async def _hand_over(self, shard: str) -> None:
        leadership = self._held.pop(shard, None)
        if leadership is not None:
            self._emit(LeaderLost(shard, resigned=True))
            await self._coordinator.release([leadership.lease])

    # --- one shard

    def _note_leader(self, present: Lease | None) -> None:
        if present is not None:
            self._leaderless_since = None
        elif self._leaderless_since is None:
            self._leaderless_since = self._clock.monotonic()

    async def _acquire(self, shard: str) -> float:
        sent = self._clock.monotonic()
        lease = await self._coordinator.acquire(shard, self._node_id, self._ttl)
        if lease is None:
            return self._ttl / 3
        await self._hold(lease, None, trusted_until(sent, self._ttl))
        return self._ttl / 3

    async def _hold(self, lease: Lease, epoch: int | None, until: float) -> None:
        """Lead under this epoch, or install one first."""
        installed = epoch is None
        if epoch is None:
            epoch = await self._store.install(lease.name, lease.fence)
        if self.resigned:  # resigned during the call: release it, so that no other node waits for its expiry
            await self._coordinator.release([lease])
            return
        self._held[lease.name] = Leadership(lease, epoch, until)
        if lease.name == MAIN:
            self._note_leader(lease)
        if installed:
            self._emit(LeaderElected(lease, epoch))
            self._elected()

    def _until_free(self, lease: Lease) -> float:
        left = seconds_between(self._clock.now(), lease.expires_at)
        return min(max(left, 0.05), self._ttl / 2)

    async def _turn(self) -> float:
        """How long to let more senior candidates go first. Nodes that are stopping are not candidates."""
        nodes = [node for node in await self._coordinator.nodes() if not node.metrics.get(STOPPING)]
        candidates = [node.id for node in nodes if Role.SCHEDULER in node.roles]
        rank = candidates.index(self._node_id) if self._node_id in candidates else len(candidates)
        return min(_REACTION + rank * _PER_RANK, _LONGEST_WAIT) if rank else 0.0

    # --- leaving

    async def resign(self, *, release: bool = True) -> None:
        """Give up all leadership at once, so that another node can take over without waiting.

        Without `release` the leases stay with this node's id: another process has it and leads on.
        """
        self.resigned = True
        held, self._held = self._held, {}
        for shard in held:
            self._emit(LeaderLost(shard, resigned=True))
        if release:
            await self._coordinator.release([leadership.lease for leadership in held.values()])
