"""The network: each fault does what it says, and nothing else."""

import asyncio

import pytest

from duly.errors import BackendError, BackendUnavailable
from duly.model import Claim, RunQuery, State, Succeeded
from duly.ports import Backend
from duly.rules.settling import settle
from duly.testing.sim import FOUL, Call, Fault, Note, Weather

from .stage import Stage


def _settlement(stage, claim):
    return settle(claim.run, claim.fence, Succeeded(), stage.clock.now(), 0.5)


async def _claimed(stage, session) -> Claim:
    await session.queue.put([stage.run()])
    return (await session.queue.claim("a", None, None, 10, 15, 1)).claims[0]


class TestPassing:
    def test_a_session_is_a_backend(self):
        stage = Stage()

        async def main():
            session: Backend = stage.network.session("a")
            async with session as opened, opened.session() as other:
                run = stage.run()
                assert (await opened.queue.put([run]))[0].created
                assert (await other.store.run(run.id)).state is State.QUEUED
                assert opened.capabilities.threads is False
                assert (await opened.examine())[0].subject == "durability"
                assert (await opened.store.runs(RunQuery(), 10)).runs[0].id == run.id

        stage.play(main())

    def test_a_call_takes_its_time_and_is_applied_at_one_moment(self):
        stage = Stage(weather=Weather(request=(1, 1), answer=(0.5, 0.5)))

        async def main():
            await stage.network.session("a").queue.put([stage.run()])
            return stage.loop.time()

        assert stage.play(main()) == 1.5
        [call] = stage.calls("queue.put")
        assert (call.at, call.node, call.copy) == (1, "a", False)
        assert call.now == stage.history.events[-1].now

    def test_the_history_tells_arguments_answers_and_changes(self):
        stage = Stage()

        async def main():
            session = stage.network.session("a")
            claim = await _claimed(stage, session)
            await session.queue.settle([_settlement(stage, claim)])
            return claim

        claim = stage.play(main())
        [put], [lent], [settled] = (stage.calls(f"queue.{name}") for name in ("put", "claim", "settle"))
        assert put.changes[0].before is None
        assert lent.arguments["node"] == "a"
        assert lent.answer.claims == [claim]
        assert [(c.before.state, c.after.state) for c in lent.changes] == [(State.QUEUED, State.RUNNING)]
        assert settled.answer == [True]
        assert settled.changes[0].after.state is State.COMPLETED

    def test_what_was_sent_does_not_change_on_the_way(self):
        stage = Stage()

        async def main():
            runs = [stage.run()]
            putting = asyncio.create_task(stage.network.session("a").queue.put(runs))
            await asyncio.sleep(0)
            runs.clear()
            return len(await putting)

        assert stage.play(main()) == 1

    def test_errors_are_answers(self):
        stage = Stage()

        async def refuse():
            raise BackendError("no")

        async def main():
            with pytest.raises(BackendError, match="no"):
                await stage.network.call("a", "store.refuse", refuse, {})
            with pytest.raises(BackendError, match="transactions"):
                stage.network.session("a").store.transaction(None, timeout=1)

        stage.play(main())

    def test_waiting_ends_early_on_work(self):
        stage = Stage()

        async def main():
            session = stage.network.session("a")
            waiting = asyncio.create_task(session.queue.wait("a", None, 60))
            await asyncio.sleep(1)
            assert not waiting.done()
            await stage.network.session("b").queue.put([stage.run()])
            await waiting
            assert stage.loop.time() < 2
            await session.queue.wait("a", None, 5)
            return stage.loop.time()

        assert 6 < stage.play(main()) < 7

    def test_finished_and_watch_work(self):
        stage = Stage()

        async def main():
            session = stage.network.session("a")
            claim = await _claimed(stage, session)
            waiting = asyncio.create_task(session.store.finished([claim.run.id], 60))
            watching = session.coordinator.watch("config")
            first = asyncio.create_task(anext(watching))
            await session.queue.settle([_settlement(stage, claim)])
            assert [run.id for run in await waiting] == [claim.run.id]
            await session.coordinator.put("config", b"1")
            assert (await first).value == b"1"
            assert stage.loop.time() < 2

        stage.play(main())


class TestFaults:
    def test_a_lost_request_is_not_applied(self):
        stage = Stage()
        stage.network.script("a", "queue.put", Fault.REQUEST_LOST)

        async def main():
            session = stage.network.session("a")
            with pytest.raises(BackendUnavailable, match="no answer"):
                await session.queue.put([stage.run()])
            assert stage.loop.time() == stage.network.weather.deadline
            assert stage.calls("queue.put") == []
            await session.queue.put([stage.run()])

        stage.play(main())
        assert len(stage.calls("queue.put")) == 1

    def test_a_lost_answer_was_applied_all_the_same(self):
        stage = Stage()
        stage.network.script("a", "queue.put", Fault.ANSWER_LOST)

        async def main():
            session, run = stage.network.session("a"), stage.run()
            with pytest.raises(BackendUnavailable):
                await session.queue.put([run])
            return (await session.queue.put([run]))[0].created

        assert stage.play(main()) is False
        assert [call.copy for call in stage.calls("queue.put")] == [False, False]

    def test_a_duplicate_is_applied_again_later(self):
        stage = Stage(weather=Weather(echo=(7, 7)))
        stage.network.script("a", "store.append", Fault.DUPLICATED)

        async def main():
            session = stage.network.session("a")
            assert await session.store.append("log", [b"x"]) == 1
            await asyncio.sleep(6)
            assert len(await session.store.read("log")) == 1
            await asyncio.sleep(2)
            return len(await session.store.read("log"))

        assert stage.play(main()) == 2
        first, copy = stage.calls("store.append")
        assert (first.copy, copy.copy) == (False, True)
        assert copy.at == pytest.approx(first.at + 7)

    def test_a_slow_request_is_applied_after_its_sender_gave_up(self):
        stage = Stage(weather=Weather(request=(5, 5), deadline=2))

        async def main():
            with pytest.raises(BackendUnavailable):
                await stage.network.session("a").queue.put([stage.run()])
            await asyncio.sleep(10)

        stage.play(main())
        assert [call.at for call in stage.calls("queue.put")] == [5]

    def test_a_node_that_is_cut_off_fails_alone_and_in_bounded_time(self):
        stage = Stage()

        async def main():
            a, b = stage.network.session("a"), stage.network.session("b")
            stage.network.cut("a")
            for number in range(1, 6):
                with pytest.raises(BackendUnavailable):
                    await a.queue.holds()
                assert stage.loop.time() <= number * stage.network.weather.deadline
            with pytest.raises(BackendUnavailable):
                await a.queue.wait("a", None, 60)
            await b.queue.holds()
            stage.network.join("a")
            await a.queue.holds()

        stage.play(main())

    def test_an_answer_does_not_pass_a_cut(self):
        stage = Stage(weather=Weather(request=(0.1, 0.1), answer=(0.5, 0.5)))

        async def main():
            putting = asyncio.create_task(stage.network.session("a").queue.put([stage.run()]))
            await asyncio.sleep(0.3)
            stage.network.cut("a")
            with pytest.raises(BackendUnavailable):
                await putting

        stage.play(main())
        assert len(stage.calls("queue.put")) == 1

    def test_a_store_that_is_away_is_away_for_all(self):
        stage = Stage()

        async def main():
            stage.network.take_away()
            for name in "ab":
                with pytest.raises(BackendUnavailable):
                    await stage.network.session(name).open()
            stage.network.bring_back()
            await stage.network.session("a").open()

        stage.play(main())

    def test_a_frozen_store_answers_late_or_never(self):
        stage = Stage()

        async def main():
            session = stage.network.session("a")
            stage.network.store.pause()
            with pytest.raises(BackendUnavailable):
                await session.queue.put([stage.run()])
            stage.network.store.resume()
            await asyncio.sleep(1)

        stage.play(main())
        assert len(stage.calls("queue.put")) == 1

    def test_healing_ends_every_fault(self):
        stage = Stage(weather=Weather(lose_request=1.0))

        async def main():
            session = stage.network.session("a")
            stage.network.cut("a")
            stage.network.take_away()
            stage.network.script("a", "queue.put", Fault.ANSWER_LOST)
            stage.network.heal()
            await session.queue.put([stage.run()])

        stage.play(main())
        assert [event.text for event in stage.history.events if isinstance(event, Note)][-1] == "healed"

    def test_waits_are_never_duplicated(self):
        stage = Stage(weather=Weather(duplicate=1.0))

        async def main():
            session = stage.network.session("a")
            await session.queue.wait("a", None, 1)
            await session.store.finished(["0none"], 1)
            await asyncio.sleep(60)

        stage.play(main())
        assert [event for event in stage.history.events if isinstance(event, Call)] == []


class TestNodes:
    def test_the_call_of_a_node_that_died_is_still_applied(self):
        stage = Stage(weather=Weather(request=(1, 1)))

        async def main():
            node = stage.loop.node("a")
            node.start(stage.network.session("a").queue.put([stage.run()]))
            await asyncio.sleep(0.5)
            node.kill()
            await asyncio.sleep(5)

        stage.play(main())
        assert [call.at for call in stage.calls("queue.put")] == [1]

    def test_a_paused_node_finds_its_answer_or_its_deadline_when_it_comes_back(self):
        stage = Stage()
        seen = []

        async def work(session):
            await session.queue.put([stage.run()])
            seen.append(stage.loop.time())

        async def main():
            node = stage.loop.node("a")
            node.start(work(stage.network.session("a")))
            await asyncio.sleep(0.001)
            node.pause()
            await asyncio.sleep(1)
            assert len(stage.calls("queue.put")) == 1
            node.resume()
            await asyncio.sleep(1)

        stage.play(main())
        assert seen == [pytest.approx(1.001)]


class TestChance:
    @staticmethod
    async def _busy(stage, name):
        session = stage.network.session(name)
        for _ in range(300):
            try:
                await session.queue.put([stage.run()])
            except BackendUnavailable:
                stage.history.note("unavailable", name)

    def _history(self, seed):
        stage = Stage(seed, FOUL)

        async def main():
            tasks = [stage.loop.node(name).start(self._busy(stage, name)) for name in "abc"]
            await asyncio.gather(*tasks)
            await asyncio.sleep(60)

        stage.play(main())
        return stage.history.events

    def test_the_same_seed_gives_the_same_history(self):
        assert self._history(3) == self._history(3)
        assert self._history(3) != self._history(4)

    def test_all_faults_come_up(self):
        events = self._history(5)
        puts = [event for event in events if isinstance(event, Call)]
        copies = sum(put.copy for put in puts)
        unavailable = sum(isinstance(event, Note) for event in events)
        assert 5 < copies < 80
        assert 20 < unavailable < 200
        assert 900 - unavailable < len(puts) - copies < 900
