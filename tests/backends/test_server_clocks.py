"""A server's clock that has jumped decides nothing until its callers believe it."""

import pytest
from tests import conftest, postgres_stores

from duly.backends import open_backend
from duly.model import Beat, BeatReply, State, shift
from duly.ports import Opening
from duly.testing.conformance.world import LEASE, World


@pytest.fixture(params=["redis", "postgres"])
def server_url(request):
    if request.param == "redis":
        return conftest.emptied(request.getfixturevalue("redis_url"))
    return postgres_stores.emptied(request.getfixturevalue("postgres_url"))


class Callers(World):
    """Calls as they are made at work: without an instant, by the server's clock as it is expected to be."""

    def jump(self, seconds):
        """From now on the server's clock is off by that much from what its callers expect.

        It is their idea that is shifted, not the server's clock: what is in the store by then must not matter.
        """
        self.backend.clock._offset -= round(seconds * 1e6)

    def time(self):
        return self.backend.clock.now()

    async def put_due_in(self, seconds):
        at = shift(self.time(), seconds)
        run = self.run(due=at, ready_at=at)
        await self.queue.put([run])
        return run

    async def lent(self):
        self._requests += 1
        claimed = await self.queue.claim("node", None, None, 10, LEASE, self._requests)
        return {claim.run.id: claim for claim in claimed.claims}


@pytest.fixture
async def callers(server_url):
    async with open_backend(server_url, Opening()) as backend:
        await backend.store.migrate()
        yield Callers(backend)


@pytest.mark.parametrize("jump", [600, 5])
async def test_a_jump_ahead_starts_nothing_early(callers, jump):
    callers.jump(jump)
    now, soon = await callers.put_due_in(-1), await callers.put_due_in(jump / 2)
    assert set(await callers.lent()) == {now.id}
    assert await callers.queue.promote(10) == (0, soon.ready_at)
    later = await callers.put_due_in(jump / 2)
    assert (await callers.store.run(later.id)).state is State.PENDING
    assert await callers.lent() == {}


@pytest.mark.parametrize("jump", [-600, -5])
async def test_a_jump_back_makes_nothing_late(callers, jump):
    callers.jump(jump)
    run = await callers.put_due_in(0)
    assert set(await callers.lent()) == {run.id}
    after = await callers.put_due_in(0)
    assert set(await callers.lent()) == {after.id}


@pytest.mark.parametrize("jump", [600, -600])
async def test_a_jump_takes_no_claim_over_and_leaves_none_for_ever(callers, jump):
    callers.jump(jump)
    run = await callers.put_due_in(0)
    claim = (await callers.lent())[run.id]
    await callers.queue.renew([], LEASE, LEASE * 2 / 3)
    assert await callers.queue.reap(10, LEASE, LEASE * 2 / 3) == []
    renewal = await callers.queue.renew([Beat(run.id, claim.fence)], LEASE, LEASE * 2 / 3)
    assert renewal.replies == (BeatReply.KEPT,)
    expires = (await callers.store.run(run.id)).expires_at
    assert LEASE - 2 <= (expires - callers.time()).total_seconds() <= LEASE


@pytest.mark.parametrize("jump", [600, -600])
async def test_a_jump_ends_no_lease_and_no_presence(callers, jump):
    from duly.model import Node

    callers.jump(jump)
    lease = await callers.coordinator.acquire("main", "a", 10)
    await callers.coordinator.announce(Node("a", "host", 1, callers.time()), 10)
    assert (await callers.coordinator.holder("main")).fence == lease.fence
    assert await callers.coordinator.acquire("main", "b", 10) is None
    assert [node.id for node in await callers.coordinator.nodes()] == ["a"]
    assert await callers.coordinator.renew([lease], 10) != [None]
    assert await callers.coordinator.beat("a", 10)


async def test_a_fence_is_given_once_whatever_the_clocks_say(callers):
    fences = []
    for jump in (0, 600, -1200, 600):
        callers.jump(jump)
        run = await callers.put_due_in(0)
        fences.append((await callers.lent())[run.id].fence)
    assert fences == sorted(set(fences))


async def test_the_time_of_the_store_is_told_as_the_server_shows_it(callers):
    shown = await callers.store.time()
    callers.jump(600)
    assert (await callers.store.time() - shown).total_seconds() < 60
