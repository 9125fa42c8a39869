"""The logs of runs: lines that attempts report under their fences, bounded, numbered, deleted with the run."""

from __future__ import annotations

from collections.abc import Sequence

from duly.model import Claim, LineSource, LogLine, Progress, Report, State, Verdict
from duly.model.run_log import room_for
from duly.testing.conformance.world import LEASE, LOST, World, failed, part, scenario

ODD_TEXTS = ("", " ", "\t", "\x1b[31mred\x1b[0m", "a\rb", "€ 😀 \u202e", '"\\', "line\u2028break", "x" * 8000)


def report_of(
    world: World,
    claim: Claim,
    texts: Sequence[str] = (),
    *,
    written: int = 0,
    keep: int = 200,
    progress: Progress | None = None,
) -> Report:
    """A report of an attempt."""
    lines = tuple(LogLine(0, claim.run.attempt, world.now, LineSource.LOG, text, "INFO", "app.mail") for text in texts)
    return Report(claim.run.id, claim.fence, progress, lines, written, keep)


async def texts_of(world: World, claim: Claim, after: int = 0, limit: int = 1_000) -> list[str]:
    return [line.text for line in await world.store.lines(claim.run.id, after, limit)]


@part
class RunLogSuite:
    """Lines and progress that running attempts report."""

    async def _claimed(self, world: World, number: int = 1) -> list[Claim]:
        await world.put(*[world.run() for _ in range(number)])
        return await world.claim(number)

    @scenario
    async def test_lines_are_kept_in_order_and_numbered(self, world: World) -> None:
        [claim] = await self._claimed(world)
        assert await world.store.lines(claim.run.id) == []
        assert await world.store.lines("0nothing") == []
        assert await world.store.report([]) == []
        assert await world.store.report([report_of(world, claim, ["one", "two"])]) == [True]
        assert await world.store.report([report_of(world, claim, ["three"], written=2)]) == [True]
        lines = await world.store.lines(claim.run.id)
        assert [(line.number, line.text) for line in lines] == [(1, "one"), (2, "two"), (3, "three")]
        assert lines[0] == LogLine(1, 1, world.now, LineSource.LOG, "one", "INFO", "app.mail")
        assert await texts_of(world, claim, after=1, limit=1) == ["two"]
        assert await texts_of(world, claim, after=3) == []
        assert await texts_of(world, claim, limit=0) == []

    @scenario
    async def test_lines_are_kept_as_they_are(self, world: World) -> None:
        [claim] = await self._claimed(world)
        assert await world.store.report([report_of(world, claim, ODD_TEXTS)]) == [True]
        assert tuple(await texts_of(world, claim)) == ODD_TEXTS

    @scenario
    async def test_each_source_is_kept(self, world: World) -> None:
        [claim] = await self._claimed(world)
        lines = tuple(LogLine(0, 1, world.now, source, source.value) for source in LineSource)
        assert await world.store.report([Report(claim.run.id, claim.fence, None, lines)]) == [True]
        found = await world.store.lines(claim.run.id)
        assert [(line.source, line.text, line.level) for line in found] == [
            (each, each.value, "") for each in LineSource
        ]

    @scenario
    async def test_a_stale_owner_adds_nothing(self, world: World) -> None:
        [claim] = await self._claimed(world)
        assert await world.store.report([report_of(world, claim, ["mine"])]) == [True]
        world.advance(LEASE + 1)
        [taken] = await world.queue.reap(1, LEASE, now=world.now)
        half = Progress(0.5)
        assert await world.store.report([report_of(world, claim, ["late"], written=1, progress=half)]) == [False]
        await world.settle(taken, LOST)
        assert await world.store.report([report_of(world, claim, ["later"], written=1)]) == [False]
        [again] = await world.claim(1)
        assert await world.store.report([report_of(world, claim, ["too late"], written=1)]) == [False]
        assert await world.store.report([report_of(world, again, ["next"])]) == [True]
        assert await texts_of(world, claim) == ["mine", "next"]
        assert (await world.stored(claim.run)).progress is None

    @scenario
    async def test_unknown_and_waiting_runs_take_no_lines(self, world: World) -> None:
        [claim, other] = await self._claimed(world, 2)
        unknown = Report("0nothing", claim.fence, None, (LogLine(0, 1, world.now, LineSource.LOG, "x"),))
        await world.settle(other, failed(delay=100.0))
        reports = [unknown, report_of(world, claim, ["x"]), report_of(world, other, ["y"])]
        assert await world.store.report(reports) == [False, True, False]
        assert await texts_of(world, claim) == ["x"]
        assert await texts_of(world, other) == []

    @scenario
    async def test_an_ended_run_takes_the_last_lines_of_its_attempt(self, world: World) -> None:
        [claim] = await self._claimed(world)
        assert await world.settle(claim)
        last = report_of(world, claim, ["last"], progress=Progress(1.0))
        assert await world.store.report([last]) == [True]
        assert await texts_of(world, claim) == ["last"]
        stored = await world.stored(claim.run)
        assert (stored.state, stored.progress) == (State.COMPLETED, None)

    @scenario
    async def test_a_repeated_report_adds_nothing(self, world: World) -> None:
        [claim] = await self._claimed(world)
        first, second = report_of(world, claim, ["a", "b"]), report_of(world, claim, ["c"], written=2)
        assert await world.store.report([first, second]) == [True, True]
        assert await world.store.report([first]) == [True]
        assert await world.store.report([second]) == [True]
        assert await texts_of(world, claim) == ["a", "b", "c"]

    @scenario
    async def test_a_gap_shows_in_the_numbers(self, world: World) -> None:
        [claim] = await self._claimed(world)
        assert await world.store.report([report_of(world, claim, ["first"])]) == [True]
        assert await world.store.report([report_of(world, claim, ["last"], written=50)]) == [True]
        assert [(line.number, line.text) for line in await world.store.lines(claim.run.id)] == [
            (1, "first"),
            (51, "last"),
        ]

    @scenario
    async def test_the_newest_lines_stay(self, world: World) -> None:
        [claim] = await self._claimed(world)
        for start in range(0, 40, 4):
            texts = [str(number) for number in range(start, start + 4)]
            assert await world.store.report([report_of(world, claim, texts, written=start, keep=10)]) == [True]
        assert await texts_of(world, claim) == [str(number) for number in range(30, 40)]
        assert await texts_of(world, claim, after=38) == ["38", "39"]
        assert await texts_of(world, claim, after=5, limit=2) == ["30", "31"]
        many = [str(number) for number in range(40, 65)]
        assert await world.store.report([report_of(world, claim, many, written=40, keep=10)]) == [True]
        assert await texts_of(world, claim) == many[-10:]
        assert await world.store.report([report_of(world, claim, ["end"], written=65, keep=1)]) == [True]
        assert await texts_of(world, claim) == ["end"]

    @scenario
    async def test_the_bytes_of_a_log_are_bounded(self, world: World) -> None:
        [claim] = await self._claimed(world)
        for number in range(30):
            long = f"{number} ".ljust(4000, "é")
            assert await world.store.report([report_of(world, claim, [long], written=number)]) == [True]
        texts = await texts_of(world, claim)
        assert [text.split()[0] for text in texts] == [str(number) for number in range(30 - len(texts), 30)]
        size = sum(len(text.encode()) + 1 for text in texts)
        assert room_for(200) - 8000 < size <= room_for(200)

    @scenario
    async def test_logs_of_many_runs_are_reported_together(self, world: World) -> None:
        claims = await self._claimed(world, 150)
        reports = [report_of(world, claim, [claim.run.id], progress=Progress(2, 3, "n")) for claim in claims]
        assert await world.store.report(reports) == [True] * 150
        for claim in claims[::37]:
            assert await texts_of(world, claim) == [claim.run.id]
            assert (await world.stored(claim.run)).progress == Progress(2, 3, "n")

    @scenario
    async def test_progress_is_replaced_and_stays_at_the_end(self, world: World) -> None:
        [claim] = await self._claimed(world)
        for done in (1.0, 2.0):
            assert await world.store.report([report_of(world, claim, progress=Progress(done, 2))]) == [True]
            assert (await world.stored(claim.run)).progress == Progress(done, 2)
        assert await world.store.report([report_of(world, claim, ["no progress"])]) == [True]
        assert (await world.stored(claim.run)).progress == Progress(2, 2)
        await world.settle(claim)
        assert (await world.stored(claim.run)).progress == Progress(2, 2)

    @scenario
    async def test_a_redriven_run_keeps_the_lines_of_its_attempts(self, world: World) -> None:
        [claim] = await self._claimed(world)
        await world.store.report([report_of(world, claim, ["a1", "a2"])])
        await world.settle(claim, failed(delay=0.0))
        [second] = await world.claim(1)
        await world.store.report([report_of(world, second, ["b1"])])
        await world.settle(second, failed(verdict=Verdict.NEVER))
        await world.store.redrive([claim.run.id], now=world.now)
        [third] = await world.claim(1)
        await world.store.report([report_of(world, third, ["c1"])])
        lines = await world.store.lines(claim.run.id)
        assert [(line.number, line.attempt, line.text) for line in lines] == [
            (1, 1, "a1"),
            (2, 1, "a2"),
            (3, 2, "b1"),
            (4, 1, "c1"),
        ]
        assert [line.text for line in await world.store.lines(claim.run.id, attempt=1)] == ["a1", "a2", "c1"]
        assert [line.text for line in await world.store.lines(claim.run.id, 1, 1, attempt=1)] == ["a2"]
        assert [line.text for line in await world.store.lines(claim.run.id, attempt=2)] == ["b1"]
        assert await world.store.lines(claim.run.id, attempt=3) == []

    @scenario
    async def test_a_log_is_deleted_with_its_run(self, world: World) -> None:
        claims = await self._claimed(world, 3)
        await world.store.report([report_of(world, claim, ["x"]) for claim in claims])
        for claim in claims:
            await world.settle(claim)
        world.advance(1)
        assert await world.store.purge(State.COMPLETED, None, 1, 100) == 2
        left = [await texts_of(world, claim) for claim in claims]
        assert sorted(left) == [[], [], ["x"]]
        assert await world.store.purge(State.COMPLETED, world.now, None, 100) == 1
        assert [await texts_of(world, claim) for claim in claims] == [[], [], []]
