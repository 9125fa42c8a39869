"""The clock of a SQLite file: all processes go by one time, whoever of them has a wrong clock."""

from datetime import timedelta

import pytest

from duly.backends.sql.unit import STORE
from duly.backends.sqlite import open_url
from duly.backends.sqlite.file_clock import FileClock
from duly.model import shift
from duly.ports import Opening, SystemClock
from duly.ports.clock import BELIEVE_AFTER


class Off(SystemClock):
    """A wall clock that is wrong, and a steady one that can be made to go faster."""

    def __init__(self, off=0.0):
        self.off = off
        self.ahead = 0.0

    def now(self):
        return shift(super().now(), self.off + self.ahead)

    def monotonic(self):
        return super().monotonic() + self.ahead


@pytest.fixture
def opened(tmp_path):
    """Opens the file as a process with that clock would."""

    def opened(clock):
        return open_url(f"sqlite:///{tmp_path}/duly.db", Opening(clock=clock))

    return opened


def apart(one, other):
    return abs((one.clock.now() - other.clock.now()).total_seconds())


@pytest.mark.parametrize("off", [-600, -60, 60, 600])
async def test_who_comes_later_goes_by_the_time_of_those_who_are_there(opened, off):
    async with opened(Off()) as first:
        await first.queue.renew([], 15)  # it is a node, and lives
        async with opened(Off(off)) as second:
            assert apart(first, second) < 0.5
            assert second.clock.doubt == 0


@pytest.mark.parametrize("off", [-600, -60, 60, 600])
async def test_who_comes_first_with_a_wrong_clock_goes_by_that_of_the_machine(opened, off):
    right = Off()
    async with opened(Off(off)) as first, opened(Off(-off)) as second, opened(right) as third:
        for backend in (first, second, third):
            assert abs((backend.clock.now() - right.now()).total_seconds()) < 0.5
            assert backend.clock.doubt == 0
        await first.queue.renew([], 15)
        for backend in (first, second, third):
            assert abs((await _read(backend) - right.now()).total_seconds()) < 0.5


async def test_where_files_have_no_times_the_process_has_its_own(tmp_path):
    assert FileClock(Off(600), "boot", tmp_path / "nowhere")._machines(7) == 7


async def test_the_time_of_the_machine_is_never_ahead(opened):
    async with opened(Off(600)) as backend:
        for _ in range(20):
            assert await _read(backend) <= Off().now()


@pytest.mark.parametrize("off", [-600, 600])
async def test_what_was_written_before_a_long_silence_binds_nobody(opened, off):
    right = Off()
    async with opened(right) as backend:
        await backend.queue.renew([], 15)
        await backend._session.write(STORE, lambda unit: backend.store._file_clock.write(unit, off * 1_000_000))
    async with opened(right) as backend:
        assert abs((backend.clock.now() - right.now()).total_seconds()) < 0.5


async def test_a_step_of_the_machines_clock_is_followed_when_it_stays(opened):
    clocks = Off(), Off(60)
    async with opened(clocks[0]) as first:
        await first.queue.renew([], 15)
        async with opened(clocks[1]) as second:
            before = first.clock.now()
            for clock in clocks:
                clock.off += 600
            assert await _read(first) - before < timedelta(seconds=5)
            await _read(second)
            for _ in range(2):  # first the file follows, then those who read it
                for clock in clocks:
                    clock.ahead += BELIEVE_AFTER + 1
                for backend in (first, second):
                    await _read(backend)
            expected = shift(before, 2 * (BELIEVE_AFTER + 1) + 600)
            assert abs((first.clock.now() - expected).total_seconds()) < 5
            assert apart(first, second) < 0.5


async def test_a_step_that_is_taken_back_changes_nothing(opened):
    clock = Off()
    async with opened(clock) as backend:
        await backend.queue.renew([], 15)
        clock.off = 600
        await _read(backend)
        clock.ahead += BELIEVE_AFTER / 2
        await _read(backend)
        clock.off = 0
        assert abs((await _read(backend) - clock.now()).total_seconds()) < 0.5


async def _read(backend):
    """As a node does now and then."""
    sent = backend.clock.monotonic()
    backend.clock.read(await backend.store.time(), sent)
    return backend.clock.now()
