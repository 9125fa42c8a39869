"""The simulated loop: virtual time, order, determinism, and processes that stop or die."""

import asyncio
import gc
import os
import subprocess
import sys
from itertools import count

import pytest

from duly.testing.sim import Deadlock, OutOfBounds, SimClock, SimLoop, current_node


def _traced(seed, main, **options):
    loop = SimLoop(seed, trace=True, **options)
    loop.run(main(loop))
    return loop.steps


async def _tick(log, name, times, every=1.0):
    for number in range(times):
        log.append((name, number))
        await asyncio.sleep(every)


class TestTime:
    def test_time_jumps_to_the_next_timer(self):
        async def main():
            loop = asyncio.get_running_loop()
            began = loop.time()
            await asyncio.sleep(86400)
            return loop.time() - began

        assert SimLoop().run(main()) == 86400

    def test_timers_fire_in_their_order(self):
        order = []

        async def main():
            loop = asyncio.get_running_loop()
            loop.call_later(3, order.append, "three")
            loop.call_at(loop.time() + 1, order.append, "one")
            loop.call_later(2, order.append, "two")
            loop.call_later(0, order.append, "now")
            cancelled = loop.call_later(1.5, order.append, "never")
            cancelled.cancel()
            await asyncio.sleep(5)

        SimLoop().run(main())
        assert order == ["now", "one", "two", "three"]

    def test_a_clock_can_be_stepped_and_its_steady_side_does_not_notice(self):
        async def main():
            clock = SimClock(asyncio.get_running_loop())
            start, steady = clock.now(), clock.monotonic()
            await asyncio.sleep(10)
            clock.skew = -60
            return (clock.now() - start).total_seconds(), clock.monotonic() - steady

        assert SimLoop().run(main()) == (-50, 10)


class TestAsyncio:
    def test_timeouts_groups_events_and_queues_work(self):
        async def main():
            queue, event, seen = asyncio.Queue(1), asyncio.Event(), []

            async def produce():
                for number in range(3):
                    await queue.put(number)
                event.set()

            async def consume():
                while not (event.is_set() and queue.empty()):
                    seen.append(await queue.get())
                    await asyncio.sleep(1)

            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(produce())
                tasks.create_task(consume())
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(5):
                    await asyncio.Event().wait()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.sleep(60), 1)
            return seen

        assert SimLoop().run(main()) == [0, 1, 2]

    def test_wait_gather_and_shield_work(self):
        async def main():
            slow, fast = asyncio.create_task(asyncio.sleep(9, "slow")), asyncio.create_task(asyncio.sleep(1, "fast"))
            done, pending = await asyncio.wait([slow, fast], return_when=asyncio.FIRST_COMPLETED)
            assert (done, pending) == ({fast}, {slow})
            assert await asyncio.gather(slow, asyncio.shield(fast)) == ["slow", "fast"]

        SimLoop().run(main())

    def test_threads_are_turns(self):
        async def main():
            node = current_node()
            assert await asyncio.to_thread(lambda: (7, current_node())) == (7, node)
            with pytest.raises(ZeroDivisionError):
                await asyncio.to_thread(lambda: 1 / 0)

        loop = SimLoop()

        async def stage():
            await loop.node("n").start(main())

        loop.run(stage())

    def test_a_group_cancels_its_tasks_when_one_fails(self):
        ended = []

        async def linger():
            try:
                await asyncio.sleep(100)
            finally:
                ended.append(asyncio.get_running_loop().time())

        async def fail():
            await asyncio.sleep(1)
            raise LookupError

        async def main():
            with pytest.raises(ExceptionGroup):
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(linger())
                    tasks.create_task(fail())

        SimLoop().run(main())
        assert ended == [1]

    def test_async_generators_are_closed(self):
        closed = []

        async def numbers():
            try:
                while True:
                    yield 1
            finally:
                await asyncio.sleep(0)
                closed.append(True)

        async def main():
            async for _ in numbers():
                break
            gc.collect()
            await asyncio.sleep(1)

        SimLoop().run(main())
        assert closed == [True]

    def test_there_is_no_network(self):
        async def main():
            with pytest.raises(NotImplementedError, match="virtual time"):
                await asyncio.open_connection("example.org", 80)

        SimLoop().run(main())

    def test_a_loop_can_be_used_by_hand(self):
        loop = SimLoop()
        assert loop.run_until_complete(asyncio.sleep(2, "a")) == "a"
        loop.call_later(1, loop.stop)
        loop.run_forever()
        assert (loop.time(), loop.is_running(), loop.is_closed()) == (3, False, False)
        loop.close()
        loop.close()
        assert loop.is_closed()
        with pytest.raises(RuntimeError, match="closed"):
            loop.call_soon(print)

    def test_what_a_callback_raises_is_raised_at_the_end(self):
        async def main():
            asyncio.get_running_loop().call_soon(lambda: 1 / 0)
            await asyncio.sleep(1)

        with pytest.raises(BaseExceptionGroup) as raised:
            SimLoop().run(main())
        assert raised.group_contains(ZeroDivisionError)

    def test_what_ends_a_node_is_raised_at_the_end(self):
        loop = SimLoop()

        async def broken():
            raise LookupError

        async def main():
            loop.node("n").start(broken())
            await asyncio.sleep(1)

        with pytest.raises(BaseExceptionGroup) as raised:
            loop.run(main())
        assert raised.group_contains(LookupError)


class TestOrder:
    @staticmethod
    async def _three(loop, log):
        for name in "abc":
            loop.node(name).start(_tick(log, name, 4))
        await asyncio.sleep(10)

    def _order(self, seed):
        log, loop = [], SimLoop(seed)
        loop.run(self._three(loop, log))
        return log

    def test_the_seed_chooses_between_nodes(self):
        assert len({tuple(self._order(seed)) for seed in range(20)}) > 5

    def test_within_a_node_order_is_kept(self):
        for seed in range(20):
            log = self._order(seed)
            for name in "abc":
                assert [number for who, number in log if who == name] == [0, 1, 2, 3]
            assert [number for _, number in log] == sorted(number for _, number in log)

    def test_callbacks_of_one_node_are_first_in_first_out(self):
        seen = []

        async def node():
            loop = asyncio.get_running_loop()
            for number in range(10):
                loop.call_soon(seen.append, number)
            await asyncio.sleep(0)

        async def main():
            await asyncio.get_running_loop().node("n").start(node())

        SimLoop(5).run(main())
        assert seen == list(range(10))

    def test_the_same_seed_gives_the_same_steps(self):
        def steps(seed):
            return _traced(seed, lambda loop: self._three(loop, []))

        assert steps(7) == steps(7)
        assert steps(7) != steps(8)

    def test_sets_of_tasks_iterate_alike(self):
        async def main():
            tasks = {asyncio.ensure_future(asyncio.sleep(1, number)) for number in range(50)}
            done, _ = await asyncio.wait(tasks)
            return [task.result() for task in done]

        assert SimLoop().run(main()) == SimLoop().run(main())

    def test_steps_do_not_depend_on_the_hashing_of_strings(self):
        def digest(hash_seed):
            environment = os.environ | {"PYTHONHASHSEED": hash_seed}
            command = [sys.executable, "-c", _DIGEST]
            return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout

        assert digest("1") == digest("2") != ""


_DIGEST = """
import asyncio, hashlib
from duly.testing.sim import SimLoop

async def worker(bell):
    for _ in range(20):
        async with asyncio.timeout(3):
            await asyncio.wait({asyncio.ensure_future(asyncio.sleep(n / 7)) for n in range(5)})
        bell.set()

async def main():
    bell = asyncio.Event()
    for name in "abcd":
        loop.node(name).start(worker(bell))
    await asyncio.sleep(100)

loop = SimLoop(3, trace=True)
loop.run(main())
print(len(loop.steps), hashlib.sha256(repr(loop.steps).encode()).hexdigest())
"""


class TestPausing:
    def test_a_paused_node_does_nothing_and_catches_up_late(self):
        log, loop = [], SimLoop()

        async def node():
            while True:
                await asyncio.sleep(1)
                log.append(loop.time())

        async def main():
            sleeper = loop.node("n")
            sleeper.start(node())
            await asyncio.sleep(2.5)
            sleeper.pause()
            await asyncio.sleep(5)
            assert log == [1, 2]
            sleeper.resume()
            await asyncio.sleep(1.6)

        loop.run(main())
        assert log == [1, 2, 7.5, 8.5]

    def test_what_others_do_for_it_waits_until_it_is_resumed(self):
        loop, seen = SimLoop(), []

        async def main():
            event, sleeper = asyncio.Event(), loop.node("n")

            async def node():
                await event.wait()
                seen.append(loop.time())

            sleeper.start(node())
            await asyncio.sleep(1)
            sleeper.pause()
            event.set()
            await asyncio.sleep(3)
            assert seen == []
            sleeper.resume()
            await asyncio.sleep(1)

        loop.run(main())
        assert seen == [4]

    def test_others_go_on(self):
        log, loop = [], SimLoop()

        async def main():
            paused = loop.node("a")
            paused.start(_tick(log, "a", 3))
            loop.node("b").start(_tick(log, "b", 3))
            paused.pause()
            await asyncio.sleep(10)

        loop.run(main())
        assert log == [("b", 0), ("b", 1), ("b", 2)]


class TestKilling:
    def test_a_killed_node_never_runs_again_not_even_to_clean_up(self):
        log, loop = [], SimLoop()

        async def child():
            try:
                await asyncio.sleep(2)
            finally:
                log.append("finally")

        async def node():
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(child())
                    tasks.create_task(_tick(log, "n", 10))
            finally:
                log.append("finally")
                await asyncio.sleep(1)
                log.append("too late")

        async def main():
            victim = loop.node("n")
            task = victim.start(node())
            await asyncio.sleep(1.5)
            victim.kill()
            del task
            gc.collect()
            await asyncio.sleep(10)
            return list(log)

        assert loop.run(main()) == [("n", 0), ("n", 1)]

    def test_cancelling_a_task_of_a_killed_node_reaches_nobody(self):
        log, loop = [], SimLoop()

        async def node():
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                log.append("cancelled")

        async def main():
            victim = loop.node("n")
            task = victim.start(node())
            await asyncio.sleep(1)
            victim.kill()
            task.cancel()
            await asyncio.sleep(1)
            return list(log)

        assert loop.run(main()) == []

    def test_a_name_can_be_started_again(self):
        log, loop = [], SimLoop()

        async def main():
            first = loop.node("n")
            first.start(_tick(log, "first", 9))
            await asyncio.sleep(1.5)
            first.kill()
            loop.node("n").start(_tick(log, "second", 2))
            await asyncio.sleep(5)

        loop.run(main())
        assert log == [("first", 0), ("first", 1), ("second", 0), ("second", 1)]

    def test_nodes_know_who_they_are(self):
        loop, names = SimLoop(), []

        async def node():
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(child())

        async def child():
            names.append(current_node().name)

        async def main():
            await loop.node("n").start(node())
            names.append(current_node())

        loop.run(main())
        assert names == ["n", None]


class TestBounds:
    def test_a_deadlock_names_who_waits_and_where(self):
        async def stuck():
            await asyncio.Event().wait()

        async def main():
            loop = asyncio.get_running_loop()
            asleep = loop.node("asleep")
            asleep.start(_tick([], "x", 5))
            asleep.pause()
            await loop.node("n").start(stuck())

        with pytest.raises(Deadlock) as raised:
            SimLoop(11).run(main())
        for word in ("seed 11", "stuck", "<node asleep paused>", "line"):
            assert word in str(raised.value)

    def test_waiting_for_a_killed_node_is_a_deadlock(self):
        async def main():
            node = asyncio.get_running_loop().node("n")
            task = node.start(asyncio.sleep(5))
            node.kill()
            await task

        with pytest.raises(Deadlock):
            SimLoop().run(main())

    def test_steps_are_bounded(self):
        async def main():
            for _ in count():
                await asyncio.sleep(0)

        with pytest.raises(OutOfBounds, match="steps"):
            SimLoop(max_steps=1000).run(main())

    def test_virtual_time_is_bounded(self):
        async def main():
            for _ in count():
                await asyncio.sleep(10)

        with pytest.raises(OutOfBounds):
            SimLoop(max_time=100).run(main())
