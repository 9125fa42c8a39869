"""What every store must do first: values, logs, token buckets; a clock and promises that stay the same."""

from __future__ import annotations

from datetime import timedelta

import pytest

from duly.testing.conformance.world import World, part, scenario


@part
class ValueSuite:
    """Values, logs and token buckets; the store's clock and its promises."""

    # --- the store

    @scenario
    async def test_opening_and_closing_twice_change_nothing(self, world: World) -> None:
        await world.store.put("setting", "a", b"1")
        await world.backend.open()
        session = world.backend.session()
        await session.open()
        await session.open()
        assert await session.store.get("setting", "a") == await world.store.get("setting", "a")
        await session.close()
        await session.close()
        assert await world.store.get("setting", "a") is not None

    @scenario
    async def test_an_examination_finds_something_to_say_or_nothing(self, world: World) -> None:
        for finding in await world.backend.examine():
            assert finding.subject
            assert finding.message

    @scenario
    async def test_the_store_has_a_clock(self, world: World) -> None:
        first = await world.store.time()
        second = await world.store.time()
        assert first.utcoffset() == timedelta(0)
        assert second >= first

    @scenario
    async def test_asking_again_tells_what_opening_told(self, world: World) -> None:
        told = world.backend.capabilities
        assert await world.backend.refresh() == told
        assert world.backend.capabilities == told

    # --- logs, values, token buckets

    @scenario
    async def test_logs_are_append_only_and_numbered(self, world: World) -> None:
        assert await world.store.append("audit", [b"one", b"two"]) == 2
        assert await world.store.append("audit", [b"three"]) == 3
        assert await world.store.append("other", [b"x"]) == 1
        entries = await world.store.read("audit")
        assert [(entry.sequence, entry.value) for entry in entries] == [(1, b"one"), (2, b"two"), (3, b"three")]
        assert [entry.value for entry in await world.store.read("audit", after=1, limit=1)] == [b"two"]
        assert await world.store.read("nothing") == []
        assert all(entry.at.tzinfo is not None for entry in entries)

    @scenario
    async def test_a_log_can_be_chained(self, world: World) -> None:
        assert await world.store.append("audit", [b"a"], expect=1) is None
        assert await world.store.append("audit", [b"a"], expect=0) == 1
        assert await world.store.append("audit", [b"b"], expect=0) is None
        assert await world.store.append("audit", [b"b", b"c"], expect=1) == 3
        assert [entry.value for entry in await world.store.read("audit")] == [b"a", b"b", b"c"]

    @scenario
    async def test_a_log_may_keep_only_its_newest_entries(self, world: World) -> None:
        assert await world.store.append("events", [b"1", b"2", b"3"], keep=5) == 3
        assert await world.store.append("events", [b"4", b"5", b"6"], keep=4) == 6
        entries = await world.store.read("events")
        assert [(entry.sequence, entry.value) for entry in entries] == [(3, b"3"), (4, b"4"), (5, b"5"), (6, b"6")]
        for after, limit, found in ((0, 2, [3, 4]), (2, 1, [3]), (4, 9, [5, 6]), (6, 9, []), (9, 9, [])):
            entries = await world.store.read("events", after=after, limit=limit)
            assert [entry.sequence for entry in entries] == found
        assert await world.store.append("events", [b"7"]) == 7
        assert len(await world.store.read("events")) == 5, "without `keep` nothing goes"

    @scenario
    async def test_numbers_of_a_log_go_on_whatever_has_gone(self, world: World) -> None:
        assert await world.store.append("events", [b"x"] * 5, keep=1) == 5
        assert [entry.sequence for entry in await world.store.read("events")] == [5]
        assert await world.store.append("events", [b"y"], expect=1) is None
        assert await world.store.append("events", [b"y"] * 7, expect=5, keep=2) == 12
        assert [entry.sequence for entry in await world.store.read("events")] == [11, 12]
        assert await world.store.append("events", [b"z"], expect=5, keep=1) is None
        assert [entry.sequence for entry in await world.store.read("events")] == [11, 12]
        assert await world.store.append("audit", [b"a"]) == 1, "other logs are as they were"

    @scenario
    async def test_adding_nothing_to_a_log_tells_its_last_number(self, world: World) -> None:
        assert await world.store.append("events", []) == 0
        await world.store.append("events", [b"a", b"b", b"c"], keep=2)
        assert await world.store.append("events", []) == 3
        assert await world.store.append("events", [], keep=1) == 3
        assert [entry.sequence for entry in await world.store.read("events")] == [3]

    @scenario
    async def test_values_are_compared_and_set(self, world: World) -> None:
        assert await world.store.get("token", "a") is None
        assert await world.store.put("token", "a", b"1", expect=1) is None
        first = await world.store.put("token", "a", b"1", expect=0)
        assert first is not None
        assert (first.key, first.value, first.version) == ("a", b"1", 1)
        assert await world.store.put("token", "a", b"2", expect=0) is None
        second = await world.store.put("token", "a", b"2", expect=1)
        assert second == await world.store.get("token", "a")
        assert second is not None
        assert second.version == 2
        third = await world.store.put("token", "a", b"3")
        assert third is not None
        assert third.version == 3

    @scenario
    async def test_values_are_listed_by_kind_and_deleted(self, world: World) -> None:
        for key in ("b", "a"):
            await world.store.put("token", key, key.encode())
        await world.store.put("setting", "a", b"other")
        assert [(item.key, item.value) for item in await world.store.items("token")] == [("a", b"a"), ("b", b"b")]
        assert await world.store.put("token", "a", None, expect=9) is None
        assert len(await world.store.items("token")) == 2
        await world.store.put("token", "a", None, expect=1)
        assert [item.key for item in await world.store.items("token")] == ["b"]
        assert await world.store.get("setting", "a") is not None

    @scenario
    async def test_buckets_refill_with_time(self, world: World) -> None:
        async def take(tokens: float) -> float:
            return await world.store.take("api", tokens, rate=2, burst=10, now=world.now)

        assert await take(10) == 0
        assert await take(1) == pytest.approx(0.5)
        world.advance(2)
        assert await take(4) == 0
        assert await take(3) == pytest.approx(1.5)
        world.advance(1000)
        assert await take(10) == 0
        assert await take(11) > 1e9
        assert await world.store.take("other", 1, rate=2, burst=10, now=world.now) == 0
