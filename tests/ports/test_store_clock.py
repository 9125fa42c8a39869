"""The store's clock as a node knows it: near the truth, never ahead of it, and not carried away by a jump."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.model import shift
from duly.ports.clock import BELIEVE_AFTER, StoreClock

START = datetime(2027, 3, 1, tzinfo=UTC)
MINUTE = 60.0


class Machine:
    """A machine with a wall clock that is off, and a steady one."""

    def __init__(self, off=0.0):
        self.elapsed = 1000.0
        self.off = off

    def now(self):
        return shift(START, self.elapsed + self.off)

    def monotonic(self):
        return self.elapsed


class Server:
    """A server somewhere else, whose clock is right until it is stepped."""

    def __init__(self, machine, clock):
        self.machine = machine
        self.clock = clock
        self.step = 0.0

    @property
    def true(self):
        return shift(START, self.machine.elapsed)

    def ask(self, there=0.001, back=0.001):
        """One question and its answer, each some time under way."""
        sent = self.machine.elapsed
        self.machine.elapsed += there
        said = shift(self.true, self.step)
        self.machine.elapsed += back
        self.clock.read(said, sent)

    def wait(self, seconds, every=5.0):
        """Let time pass, asking now and then."""
        end = self.machine.elapsed + seconds
        while self.machine.elapsed < end:
            self.machine.elapsed += every
            self.ask()

    def error(self):
        """How far the node's idea is ahead of the true time."""
        return (self.clock.now() - self.true).total_seconds()


def world(off=0.0):
    machine = Machine(off)
    clock = StoreClock(machine)
    return machine, clock, Server(machine, clock)


@pytest.mark.parametrize("off", [0, -60, 60, -600, 600, -1e8])
def test_a_wrong_clock_of_the_node_does_not_matter(off):
    _, clock, server = world(off)
    assert not clock.known
    server.ask()
    assert clock.known
    assert -0.002 <= server.error() <= 0
    server.wait(100)
    assert -0.002 <= server.error() <= 0
    assert clock.doubt == 0


def test_a_step_of_the_nodes_clock_is_not_noticed():
    machine, clock, server = world()
    server.ask()
    machine.off = 600
    assert -0.002 <= server.error() <= 0
    server.wait(100)
    assert -0.002 <= server.error() <= 0
    assert clock.followed == 0


@given(st.lists(st.tuples(st.floats(0, 0.9), st.floats(0, 0.9), st.floats(0.1, 30)), min_size=1, max_size=30))
def test_it_is_never_ahead_of_the_store_and_at_most_one_answer_behind(trips):
    machine, clock, server = world()
    for there, back, pause in trips:
        server.ask(there, back)
        assert -max(trip[1] for trip in trips) - 1e-5 <= server.error() <= 1e-5
        machine.elapsed += pause
    assert clock.doubt == 0


@pytest.mark.parametrize("step", [600.0, -600.0, 5.0, -5.0])
def test_a_jump_that_goes_back_is_never_followed(step):
    _, clock, server = world()
    server.wait(MINUTE)
    server.step = step
    server.wait(8, every=1.0)
    assert clock.doubt == pytest.approx(step, abs=0.1)
    assert -0.01 <= server.error() <= 0
    server.step = 0.0
    server.wait(5, every=1.0)
    assert (clock.doubt, clock.followed) == (0, 0)
    assert -0.01 <= server.error() <= 0


@pytest.mark.parametrize("step", [600.0, -600.0])
def test_a_jump_that_stays_is_followed_after_a_while(step):
    _, clock, server = world()
    server.wait(MINUTE)
    server.step = step
    server.wait(BELIEVE_AFTER - 10)
    assert -0.01 <= server.error() <= 0
    server.wait(20)
    assert server.error() == pytest.approx(step, abs=0.01)
    assert (clock.doubt, clock.followed) == (0, 1)


def test_a_clock_that_jumps_about_is_not_followed():
    _, clock, server = world()
    server.wait(MINUTE)
    for number in range(20):
        server.step = 100.0 * (1 + number % 2)
        server.wait(5)
    assert clock.doubt != 0
    assert -0.01 <= server.error() <= 0


def test_a_slow_drift_is_followed():
    _, clock, server = world()
    for _ in range(1000):
        server.step += 0.0025  # 500 ppm at a reading every five seconds
        server.wait(5)
    assert server.error() == pytest.approx(server.step, abs=0.05)
    assert clock.followed == 0


def test_a_slow_answer_is_no_jump():
    _, clock, server = world()
    server.wait(MINUTE)
    server.ask(there=8.0, back=0.0)
    server.ask(there=0.0, back=8.0)
    assert clock.doubt == 0
    assert -0.01 <= server.error() <= 1e-5


# --- a store whose clock is the machine's own


def test_of_a_file_the_machines_clock_is_the_stores():
    machine = Machine(off=-60)
    clock = StoreClock(machine, direct=True)
    assert clock.known
    for _ in range(10):
        machine.elapsed += 100
        assert clock.now() == machine.now()


@pytest.mark.parametrize("step", [600.0, -600.0])
def test_of_a_file_too_a_jump_is_followed_only_if_it_stays(step):
    machine = Machine()
    clock = StoreClock(machine, direct=True)
    clock.now()
    machine.off = step
    machine.elapsed += 8
    assert clock.now() == shift(START, machine.elapsed)
    assert clock.doubt == step
    machine.off = 0.0
    machine.elapsed += 1
    assert (clock.now(), clock.doubt) == (machine.now(), 0)
    machine.off = step
    clock.now()
    machine.elapsed += BELIEVE_AFTER + 1
    assert clock.now() == machine.now()
    assert (clock.doubt, clock.followed) == (0, 1)


def test_instants_are_exact_to_the_microsecond():
    machine = Machine()
    clock = StoreClock(machine, direct=True)
    machine.off = timedelta(microseconds=123457).total_seconds()
    assert clock.now() == machine.now()


@given(st.lists(st.tuples(st.floats(0, 0.9), st.floats(0, 0.9)), min_size=1, max_size=30))
def test_the_latest_that_it_can_be_is_not_before_the_true_time(trips):
    machine, clock, server = world()
    for there, back in trips:
        server.ask(there, back)
        assert (clock.latest() - server.true).total_seconds() >= -1e-5
        machine.elapsed += 5
        assert (clock.latest() - server.true).total_seconds() >= -1e-5
    assert (clock.latest() - server.true).total_seconds() <= max(sum(trip) for trip in trips) + 1e-5
