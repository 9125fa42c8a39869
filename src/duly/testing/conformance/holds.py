"""What every queue must do with runs that are held."""

from __future__ import annotations

from msgspec.structs import replace

from duly.model import CancelReply, JobChange, Pause, State
from duly.testing.conformance.world import World, part, scenario


@part
class HoldSuite:
    """Holds: runs that wait outside of every index until they are put back."""

    # --- holds that a run is put with

    @scenario
    async def test_a_held_run_is_out_of_every_index(self, world: World) -> None:
        await world.put(now := world.run(hold="breaker:x"), later := world.run(delay=5, hold="breaker:x"))
        world.advance(10)
        assert await world.queue.promote(10, now=world.now) == (0, None)
        assert await world.claim() == []
        assert await world.state(now) is State.PENDING
        assert await world.queue.holds() == {"breaker:x": 2}
        assert await world.queue.unhold("breaker:x", 10) == 2
        assert {claim.run.id for claim in await world.claim()} == {now.id, later.id}

    @scenario
    async def test_a_held_run_can_be_cancelled(self, world: World) -> None:
        await world.put(run := world.run(hold="k"))
        assert await world.store.cancel([run.id], now=world.now) == [CancelReply.DONE]
        assert await world.queue.holds() == {}
        assert await world.queue.unhold("k", 10) == 0

    @scenario
    async def test_a_run_may_be_put_under_any_hold(self, world: World) -> None:
        run = world.run(hold="breaker:x")
        await world.put(run)
        assert await world.claim() == []
        assert await world.queue.unhold("breaker:x", 10) == 1
        [claim] = await world.claim()
        assert (claim.run.id, claim.run.assignable) == (run.id, False)

    # --- holds that a claim makes

    @scenario
    async def test_runs_of_a_paused_job_are_held_until_unheld(self, world: World) -> None:
        record = world.record("mail", every=None)
        await world.create(record)
        await world.put(*[world.run("mail") for _ in range(3)], other := world.run("sms"))
        paused = replace(record, revision=2, paused=Pause(world.now))
        await world.store.save([JobChange(paused, 1)], now=world.now)
        assert [claim.run.id for claim in await world.claim(1)] == [other.id]
        assert await world.claim() == []
        assert await world.queue.holds() == {"job:mail": 3}
        resumed = replace(record, revision=3)
        await world.store.save([JobChange(resumed, 2)], now=world.now)
        assert await world.queue.unhold("job:mail", 2) == 2
        assert await world.queue.unhold("job:mail", 2) == 1
        assert await world.queue.unhold("job:mail", 2) == 0
        assert len(await world.claim()) == 3
        assert await world.queue.holds() == {}

    @scenario
    async def test_runs_without_a_handler_here_wait_for_a_node_that_has_it(self, world: World) -> None:
        await world.put(mail := world.run("mail"), sms := world.run("sms"))
        assert [claim.run.id for claim in await world.claim(node="old", handlers={"sms"})] == [sms.id]
        assert await world.queue.holds() == {"handler:mail": 1}
        assert (await world.stored(mail)).hold == "handler:mail"
        assert await world.claim(node="old", handlers={"sms"}) == []
        assert [claim.run.id for claim in await world.claim(node="new", handlers={"mail", "sms"})] == [mail.id]
        assert await world.queue.holds() == {}

    @scenario
    async def test_a_claim_holds_only_runs_whose_turn_has_come(self, world: World) -> None:
        early, late = world.run("unknown", delay=-9), world.run("unknown", delay=-1)
        await world.put(early, known := world.run("known", delay=-5), late)
        assert [claim.run.id for claim in await world.claim(1, handlers={"known"})] == [known.id]
        assert [(await world.stored(run)).hold for run in (early, late)] == ["handler:unknown", None]

    @scenario
    async def test_held_runs_do_not_count_towards_the_limit(self, world: World) -> None:
        await world.put(*[world.run("unknown", priority=9) for _ in range(250)])
        await world.put(known := world.run("known"))
        assert [claim.run.id for claim in await world.claim(1, handlers={"known"})] == [known.id]
