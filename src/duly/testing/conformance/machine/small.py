"""Small things: the machine of logs, values and buckets, and of leases, presence and shared values."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import invariant

from duly.model import Item, Lease, Node
from duly.ports import Backend
from duly.testing.conformance.machine.base import NODES, PICKS, RECENT, Machine, step
from duly.testing.conformance.machine.twins import LeasePair, agree


class SmallMachine(Machine):
    """Logs, values, buckets; leases, presence, shared values."""

    def __init__(self) -> None:
        super().__init__()
        self.leases: list[LeasePair] = []
        self._shared: dict[str, tuple[int, int]] = {}

    # --- the store's

    @step(
        log=st.sampled_from(["audit", "events"]),
        count=st.integers(0, 3),
        expect=st.sampled_from([None, 0, 1, 3]),
        keep=st.sampled_from([None, 1, 2, 5]),
    )
    def append(self, log: str, count: int, expect: int | None, keep: int | None) -> None:
        entries = [f"{log} {number}".encode() for number in range(count)]
        kept = keep if log == "events" else None
        self.twins.same("append", lambda backend: backend.store.append(log, entries, expect, kept))

    @step(log=st.sampled_from(["audit", "events"]), after=st.integers(0, 8), limit=st.integers(1, 4))
    def read(self, log: str, after: int, limit: int) -> None:
        answers = self.twins.ask(lambda backend: backend.store.read(log, after, limit))
        agree("read", *([(entry.sequence, entry.value) for entry in entries] for entries in answers))

    @step(
        kind=st.sampled_from(["token", "setting"]),
        key=st.sampled_from(["a", "b"]),
        value=st.sampled_from([b"1", b"2", None]),
        expect=st.sampled_from([None, 0, 1, 2]),
    )
    def put_value(self, kind: str, key: str, value: bytes | None, expect: int | None) -> None:
        self.twins.same("put value", lambda backend: backend.store.put(kind, key, value, expect))
        self.twins.same("get value", lambda backend: backend.store.get(kind, key))
        self.twins.same("items", lambda backend: backend.store.items(kind))

    @step(bucket=st.sampled_from(["api", "mail"]), tokens=st.sampled_from([0.5, 1.0, 4.0, 10.0, 11.0]))
    def take(self, bucket: str, tokens: float) -> None:
        real, model = self.twins.ask(
            lambda backend: backend.store.take(bucket, tokens, rate=0.25, burst=10.0, now=self.now)
        )
        assert real == model or abs(real - model) < 1e-6 or min(real, model) > 1e9, f"take: {real} and {model}"

    # --- the coordinator's

    @step(2, name=st.sampled_from(["leader", "lock"]), holder=NODES, ttl=st.sampled_from([1.0, 10.0, 60.0]))
    def acquire(self, name: str, holder: str, ttl: float) -> None:
        real, model = self.twins.ask(lambda backend: backend.coordinator.acquire(name, holder, ttl, now=self.now))
        if (lease := self.twins.leased("acquire", real, model)) is not None:
            self.leases.append(lease)

    @step(2, picks=PICKS)
    def renew_leases(self, picks: list[int]) -> None:
        real, model = self.twins.ask(
            lambda backend: backend.coordinator.renew(self._ours(backend, picks), 10.0, now=self.now)
        )
        for ours, theirs in zip(real, model, strict=True):
            self.twins.leased("renew", ours, theirs)

    @step(picks=st.lists(RECENT, min_size=1, max_size=2))
    def release(self, picks: list[int]) -> None:
        self.twins.ask(lambda backend: backend.coordinator.release(self._ours(backend, picks)))

    def _ours(self, backend: Backend, picks: list[int]) -> list[Lease]:
        pairs = [self.leases[-1 - pick % len(self.leases)] for pick in picks] if self.leases else []
        return [pair.real if backend is self.twins.real else pair.model for pair in pairs]

    @step(name=st.sampled_from(["leader", "lock", "nothing"]))
    def holder(self, name: str) -> None:
        self.twins.leased("holder", *self.twins.ask(lambda backend: backend.coordinator.holder(name, now=self.now)))

    @step(name=NODES, age=st.integers(0, 2), ttl=st.sampled_from([1.0, 10.0]))
    def announce(self, name: str, age: int, ttl: float) -> None:
        node = Node(id=name, host="h", pid=1, started_at=self.world.after(-age), handlers=frozenset({"mail"}))
        self.twins.same("announce", lambda backend: backend.coordinator.announce(node, ttl, now=self.now))

    @step(name=NODES, metrics=st.sampled_from([None, {"running": 2.0}]), age=st.sampled_from([None, 0, 1]))
    def beat(self, name: str, metrics: dict[str, float] | None, age: int | None) -> None:
        born = None if age is None else self.world.after(-age)
        self.twins.same(
            "beat", lambda backend: backend.coordinator.beat(name, 10.0, metrics, started_at=born, now=self.now)
        )

    @step(name=NODES)
    def retire(self, name: str) -> None:
        self.twins.same("retire", lambda backend: backend.coordinator.retire(name))

    @invariant()
    def nodes(self) -> None:
        self.twins.same("nodes", lambda backend: backend.coordinator.nodes(now=self.now))

    @step(key=st.sampled_from(["config", "other"]), expect=st.sampled_from(["any", "absent", "right", "wrong"]))
    def share(self, key: str, expect: str) -> None:
        """Versions may grow in any steps, so the right one is each store's own."""
        known = self._shared.get(key, (0, 0))
        expected = {"any": (None, None), "absent": (0, 0), "right": known, "wrong": (known[0] + 7, known[1] + 7)}
        ours, theirs = expected[expect]
        value = str(self.now).encode()
        real, model = self.twins.ask(
            lambda backend: backend.coordinator.put(key, value, ours if backend is self.twins.real else theirs)
        )
        self._same_item(key, real, model)
        self._same_item(key, *self.twins.ask(lambda backend: backend.coordinator.get(key)))

    def _same_item(self, key: str, real: Item | None, model: Item | None) -> None:
        agree("shared value", real and real.value, model and model.value)
        if real is not None and model is not None:
            assert real.version >= self._shared.get(key, (0, 0))[0], f"the version of {key} went back"
            self._shared[key] = (real.version, model.version)
