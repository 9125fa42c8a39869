"""The parts of the conformance suite build on each other in the order in which `docs/backends.md` lists them."""

import inspect
import re
from pathlib import Path

import pytest

from duly.backends import open_backend
from duly.ports import Backend, Coordinator, Opening, Queue, Store
from duly.testing.conformance import BackendSuite

PAGE = Path(__file__).parents[2] / "docs" / "backends.md"
ROWS = re.findall(r"^\| `(\w+Suite)` \|[^|]+\|([^|]*)\|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
PARTS = [(part, set(re.findall(r"`([\w.]+)`", added))) for part, added in ROWS]
SUITES = {suite.__name__: suite for suite in BackendSuite.__bases__}
RANDOM = {"FuzzSuite", "MachineSuite"}
LIFE = {"open", "close"}


class Watched:
    """A port that notes which of its methods are asked for."""

    def __init__(self, port, name, asked):
        self._port, self._name, self._asked = port, name, asked

    def __getattr__(self, name):
        self._asked.add(f"{self._name}.{name}")
        return getattr(self._port, name)


class WatchedBackend:
    """A memory backend whose ports are watched."""

    def __init__(self, backend, asked):
        self._backend, self._asked = backend, asked
        self.store = Watched(backend.store, "store", asked)
        self.queue = Watched(backend.queue, "queue", asked)
        self.coordinator = Watched(backend.coordinator, "coordinator", asked)

    def session(self):
        self._asked.add("backend.session")
        return WatchedBackend(self._backend.session(), self._asked)

    def __getattr__(self, name):
        if name in methods_of(Backend) - LIFE:
            self._asked.add(f"backend.{name}")
        return getattr(self._backend, name)

    async def __aenter__(self):
        await self._backend.open()
        return self

    async def __aexit__(self, *exc):
        await self._backend.close()


def methods_of(port):
    return {name for name, _ in inspect.getmembers(port, inspect.isfunction) if not name.startswith("_")}


def scenarios_of(suite):
    return [name for name in vars(suite) if name.startswith("test_")]


def test_the_page_lists_every_part_in_the_order_in_which_pytest_runs_them():
    assert [part for part, _ in PARTS] == [suite.__name__ for suite in reversed(BackendSuite.__bases__)]


def test_no_scenario_is_in_two_parts():
    names = [name for suite in SUITES.values() for name in scenarios_of(suite)]
    assert len(names) == len(set(names))


def test_every_method_of_the_ports_is_added_by_one_part():
    ports = {"store": Store, "queue": Queue, "coordinator": Coordinator, "backend": Backend}
    methods = [f"{name}.{method}" for name, port in ports.items() for method in methods_of(port) - LIFE]
    assert sorted(method for _, added in PARTS for method in added) == sorted(methods)


@pytest.mark.parametrize("place", range(len(PARTS)), ids=[part for part, _ in PARTS])
def test_a_part_needs_only_the_methods_of_the_parts_up_to_it(place):
    part, added = PARTS[place]
    asked = set()
    if part not in RANDOM:
        suite = type(part, (SUITES[part],), {"backend": lambda _: WatchedBackend(memory(), asked)})
        for name in scenarios_of(SUITES[part]):
            getattr(suite(), name)()
    before = set().union(*(earlier for _, earlier in PARTS[:place]))
    assert asked - before == added


def memory():
    return open_backend("memory://", Opening())


@pytest.mark.parametrize("part", SUITES)
def test_a_part_is_selected_by_its_name(part):
    assert all(getattr(getattr(SUITES[part], name), part) for name in scenarios_of(SUITES[part]))
