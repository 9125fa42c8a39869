"""A network between nodes and their store: it is slow, loses messages, delivers them twice, and partitions.

A `FaultySession` is a backend for one node on a shared memory store. Each port call travels there, is applied whole at
one virtual moment by the store's own process, and its answer travels back; node and network fail independently, so a
call of a node that died on the way is still applied. A caller waits at most `Weather.deadline` and then sees
`BackendUnavailable`: the outcome is unknown. Faults come from a seed, one sequence per node; `script` overrides them.
"""

from __future__ import annotations

import asyncio
import inspect
import random
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Coroutine
from enum import StrEnum
from functools import partial
from typing import Any, Self, cast

from msgspec import Struct

from duly.backends.memory import MemoryBackend
from duly.backends.memory.backend import CAPABILITIES
from duly.errors import BackendError, BackendUnavailable
from duly.model import Item
from duly.ports import Capabilities, Clock, Coordinator, Finding, Queue, Store, StoreClock
from duly.testing.sim.clock import SimClock
from duly.testing.sim.contents import TapedContents
from duly.testing.sim.history import History
from duly.testing.sim.loop import SimLoop

_WAITS = frozenset({"wait", "finished"})
_HERE = frozenset({"transaction", "within"})  # refused at once by a store that has none
_QUICK = (0.01, 0.2)


class Fault(StrEnum):
    """What may happen to one call."""

    NONE = "none"
    REQUEST_LOST = "request lost"  # not applied; the caller gets no answer
    ANSWER_LOST = "answer lost"  # applied; the caller gets no answer
    DUPLICATED = "duplicated"  # applied, and again some seconds later; the second answer goes nowhere


class Weather(Struct, frozen=True):
    """How the network behaves: chances from 0 to 1, times in seconds, (least, most).

    A `slow` message takes as long as `slowness` says instead, perhaps longer than its sender waits.
    """

    request: tuple[float, float] = (0.001, 0.005)
    answer: tuple[float, float] = (0.001, 0.005)
    slow: float = 0.0
    slowness: tuple[float, float] = (0.1, 10.0)
    lose_request: float = 0.0
    lose_answer: float = 0.0
    duplicate: float = 0.0
    echo: tuple[float, float] = (0.5, 30.0)
    deadline: float = 2.0


FAIR = Weather()
FOUL = Weather(slow=0.05, lose_request=0.03, lose_answer=0.03, duplicate=0.03)


class _Passage(Struct, frozen=True):
    """The random choices for one call."""

    fault: Fault
    request: float
    answer: float
    echo: float
    deadline: float


class Network:
    """All connections to one store, and what happens to them."""

    def __init__(
        self,
        loop: SimLoop,
        contents: TapedContents,
        history: History,
        weather: Weather = FAIR,
        backend: Callable[[TapedContents], MemoryBackend] = MemoryBackend,
    ) -> None:
        self.loop = loop
        self.backend = backend
        self.history = history
        self.contents = contents
        self.weather = weather
        self.store = loop.node("store")
        self._away = False
        self._cut: set[str] = set()
        self._dice: dict[str, random.Random] = {}
        self._script: defaultdict[tuple[str, str], deque[Fault]] = defaultdict(deque)

    # --- what may be done to it

    def session(self, node: str, clock: Clock | None = None) -> FaultySession:
        """A backend for one node, whose own clock may be wrong."""
        return FaultySession(self, node, StoreClock(clock or SimClock(self.loop)))

    def script(self, node: str, method: str, *faults: Fault) -> None:
        """What happens to the next calls of one method, as "queue.settle", by one node."""
        self._script[node, method].extend(faults)

    def cut(self, node: str) -> None:
        """Nothing passes between this node and the store."""
        self._cut.add(node)
        self.history.note("cut off", node)

    def join(self, node: str) -> None:
        """The node reaches the store again."""
        self._cut.discard(node)
        self.history.note("joined again", node)

    def take_away(self) -> None:
        """No node can reach the store."""
        self._away = True
        self.history.note("the store is away")

    def bring_back(self) -> None:
        self._away = False
        self.history.note("the store is back")

    def heal(self) -> None:
        """No faults, all nodes connected, no script left; copies still under way arrive."""
        self.weather = FAIR
        self._cut.clear()
        self._script.clear()
        self._away = False
        self.history.note("healed")

    def passes(self, node: str) -> bool:
        """Whether a message between the node and the store arrives now."""
        return not (self._away or node in self._cut)

    # --- passing calls

    async def call(self, node: str, method: str, apply: Callable[[], Coroutine[Any, Any, Any]], told: Any) -> Any:
        """Send one call, wait for its answer, but not for ever."""
        passage = self._passage(node, method)
        answer: asyncio.Future[Any] = self.loop.create_future()
        if not self.passes(node):
            await self._refuse(node, method, passage)
        if passage.fault is not Fault.REQUEST_LOST:
            arrive = partial(self._arrive, node, method, apply, told, passage)
            self._later(passage.request, arrive, answer)
            if passage.fault is Fault.DUPLICATED:
                self._later(passage.request + passage.echo, arrive, None)
        try:
            async with asyncio.timeout(passage.deadline):
                return await answer
        except TimeoutError:
            raise BackendUnavailable(f"{method}: no answer within {passage.deadline} seconds") from None

    async def wait(self, node: str, method: str, waiting: Callable[[], Coroutine[Any, Any, Any]], _: object) -> Any:
        """A call that takes as long as it takes. It changes nothing: it is not repeated, and not in the history."""
        passage = self._passage(node, method)
        if not self.passes(node) or passage.fault is Fault.REQUEST_LOST:
            await self._refuse(node, method, passage)
        await asyncio.sleep(min(passage.request, passage.deadline))
        answer = await waiting()
        await asyncio.sleep(min(passage.answer, passage.deadline))
        if not self.passes(node) or passage.fault is Fault.ANSWER_LOST:
            raise BackendUnavailable(f"{method}: the connection broke")
        return answer

    async def _refuse(self, node: str, method: str, passage: _Passage) -> None:
        """No connection: the caller notices it soon, or only at the deadline."""
        dice = self._dice_of(node)
        await asyncio.sleep(passage.deadline if dice.random() < 0.5 else dice.uniform(*_QUICK))
        raise BackendUnavailable(f"{method}: the store cannot be reached")

    def _arrive(
        self,
        node: str,
        method: str,
        apply: Callable[[], Coroutine[Any, Any, Any]],
        told: dict[str, Any],
        passage: _Passage,
        reply_to: asyncio.Future[Any] | None,
    ) -> None:
        """At the store. `reply_to` None: a copy without a waiting caller."""
        if not self.passes(node):
            return
        answer = _applied(apply)
        self.history.call(node, method, told, answer, self.contents.taped.cut(), copy=reply_to is None)
        if reply_to is not None and passage.fault is not Fault.ANSWER_LOST:
            self._later(passage.answer, self._reply, node, answer, reply_to)

    def _reply(self, node: str, answer: Any, reply_to: asyncio.Future[Any]) -> None:
        """Back at the node, if it still waits."""
        if reply_to.done() or not self.passes(node):
            return
        if isinstance(answer, BackendError):
            reply_to.set_exception(answer)
        else:
            reply_to.set_result(answer)

    def _later(self, delay: float, callback: Callable[..., None], *args: Any) -> None:
        """As the store's process: a message under way no longer depends on its sender."""
        self.loop.call_later(delay, callback, *args, context=self.store.context())

    # --- chances

    def _dice_of(self, node: str) -> random.Random:
        if node not in self._dice:
            self._dice[node] = random.Random(f"network/{self.loop.seed}/{node}")
        return self._dice[node]

    def _passage(self, node: str, method: str) -> _Passage:
        """Decided when the call is sent, in the order of the node's calls."""
        dice, weather = self._dice_of(node), self.weather
        scripted = self._script[node, method]
        chance = dice.random()
        return _Passage(
            fault=scripted.popleft() if scripted else _fault(chance, weather),
            request=_delay(dice, weather, weather.request),
            answer=_delay(dice, weather, weather.answer),
            echo=dice.uniform(*weather.echo),
            deadline=weather.deadline,
        )


def _fault(chance: float, weather: Weather) -> Fault:
    for probability, fault in (
        (weather.lose_request, Fault.REQUEST_LOST),
        (weather.lose_answer, Fault.ANSWER_LOST),
        (weather.duplicate, Fault.DUPLICATED),
    ):
        if chance < probability:
            return fault
        chance -= probability
    return Fault.NONE


def _delay(dice: random.Random, weather: Weather, usual: tuple[float, float]) -> float:
    return dice.uniform(*(weather.slowness if dice.random() < weather.slow else usual))


def _applied(apply: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run a port method of the memory store to its end, which it reaches without waiting; errors are answers."""
    coroutine = apply()
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    except BackendError as error:
        return error
    coroutine.close()
    raise RuntimeError(f"{apply} waits: it cannot be applied at one moment")


class FaultySession:
    """A backend as one node sees it through the network."""

    capabilities = CAPABILITIES
    store: Store
    queue: Queue
    coordinator: Coordinator

    def __init__(self, network: Network, node: str, clock: StoreClock) -> None:
        self.url = f"sim://{node}"
        self.clock = clock
        self._network = network
        self._node = node
        inner = network.backend(network.contents)
        self._inner = inner
        self.store = cast("Store", _Remote(network, node, "store", inner.store))
        self.queue = cast("Queue", _Remote(network, node, "queue", inner.queue))
        self.coordinator = cast("Coordinator", _Remote(network, node, "coordinator", inner.coordinator))

    async def open(self) -> None:
        await self._network.call(self._node, "backend.open", self._inner.open, {})
        sent = self.clock.monotonic()
        self.clock.read(await self.store.time(), sent)

    async def close(self) -> None:
        """Nothing to close: what is on its way stays on its way."""

    def session(self, timeout: float | None = None) -> Self:  # the network decides
        return type(self)(self._network, self._node, self.clock)

    async def refresh(self) -> Capabilities:
        can: Capabilities = await self._network.call(self._node, "backend.refresh", self._inner.refresh, {})
        return can

    async def examine(self) -> list[Finding]:
        findings: list[Finding] = await self._network.call(self._node, "backend.examine", self._inner.examine, {})
        return findings

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


class _Remote:
    """One port at the other end of the network: every method of the port, whichever it has."""

    def __init__(self, network: Network, node: str, name: str, port: object) -> None:
        self._network = network
        self._node = node
        self._name = name
        self._port = port

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._port, name)
        if name in _HERE:
            return cast("Callable[..., Any]", method)
        if name == "watch":
            return partial(self._watch, method)
        passing = self._network.wait if name in _WAITS else self._network.call
        full_name = f"{self._name}.{name}"

        def send(*args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
            bound = inspect.signature(method).bind(*args, **kwargs)
            told = {key: _frozen(value) for key, value in bound.arguments.items()}
            return passing(self._node, full_name, partial(method, **told), told)

        return send

    async def _watch(self, method: Callable[[str], AsyncIterator[Item]], key: str) -> AsyncIterator[Item]:
        async for item in method(key):
            if not self._network.passes(self._node):
                raise BackendUnavailable("coordinator.watch: the connection broke")
            yield item


def _frozen(value: Any) -> Any:
    """A copy of the arguments: the caller may change its list afterwards."""
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, set):
        return frozenset(value)
    return dict(value) if isinstance(value, dict) else value
