"""A cluster that is backed up, restored and moved while it works, and what must be true of it afterwards."""

import asyncio
import logging
import uuid
from collections import Counter
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from duly import Context, Every, Scheduler, SchedulerConfig
from duly.backends.address import Address, open_address
from duly.errors import BackendUnavailable, StoreMoved
from duly.model.definitions import definitions_log
from duly.ports import Opening

KINDS = ("sqlite", "redis", "postgres", "split")
TICK = timedelta(seconds=0.25)

_log = logging.getLogger(__name__)


class Place:
    """A namespace of a store: each is new."""

    def __init__(self, kind, tmp_path, request):
        self.kind = kind
        self.namespace = f"drill{uuid.uuid4().hex[:12]}"
        if kind == "sqlite":
            self.address = Address(f"sqlite:///{tmp_path}/{self.namespace}.db")
        elif kind == "redis":
            self.address = Address(request.getfixturevalue("redis_url"))
        elif kind == "postgres":
            self.address = Address(request.getfixturevalue("postgres_url"))
        else:
            stream = f"{request.getfixturevalue('redis_url')}?stream={self.namespace}"
            self.address = Address(request.getfixturevalue("postgres_url"), stream)

    def backend(self, *, migrates=True):
        return open_address(self.address, Opening(self.namespace, migrates=migrates))


class Program:
    """The code of a node, and what its handlers have done, in whichever store."""

    def __init__(self):
        self.ticked: Counter[datetime] = Counter()
        self.done: Counter[int] = Counter()
        self.accepted: dict[int, str] = {}
        self.versions = 0

    def scheduler(self, place):
        """Each call has another definition of the job `rare`."""
        self.versions += 1
        config = SchedulerConfig(namespace=place.namespace, lock_ttl=2.0, leader_ttl=2.0, misfire_grace=5.0)
        address = place.address
        scheduler = Scheduler(config=config, store=address.store, queue=address.queue)

        @scheduler.job(Every(seconds=TICK.total_seconds()), misfire="all", overlap="allow")
        async def tick(ctx: Context) -> None:
            self.ticked[ctx.due] += 1

        @scheduler.job
        async def count(number: int) -> int:
            await asyncio.sleep(0.005)
            self.done[number] += 1
            _log.warning("counted %d", number)
            return number

        @scheduler.job(Every(days=self.versions))
        async def rare() -> None: ...

        return scheduler

    async def submit(self, scheduler, first=0):
        """Submit numbers, with a dedupe key, until the store has moved; only answered submissions are accepted."""
        number = first
        while True:
            counted = scheduler.submit("count", {"number": number}, dedupe_key=str(number), unique_for=3600)
            try:
                self.accepted[number] = (await counted).id
            except StoreMoved:
                return number
            except BackendUnavailable:
                await asyncio.sleep(0.05)
                continue
            number += 1
            await asyncio.sleep(0.002)

    @asynccontextmanager
    async def working(self, place, first=0):
        """A node that works on a store, and a client that submits to it."""
        scheduler = self.scheduler(place)
        async with scheduler:
            submitting = asyncio.ensure_future(self.submit(scheduler, first))
            try:
                await asyncio.sleep(1.5)
                yield scheduler
            finally:
                submitting.cancel()
                await asyncio.wait([submitting])

    async def all_done(self, scheduler, numbers):
        """Wait until these numbers have been counted, and their runs have completed in this store."""
        for number in sorted(numbers):
            run = await scheduler.get_run(self.accepted[number])
            deadline = asyncio.get_running_loop().time() + 30
            while run.state != "completed":
                assert asyncio.get_running_loop().time() < deadline, run
                await asyncio.sleep(0.05)
                run = await scheduler.get_run(self.accepted[number])
            lines = [line.text for line in await scheduler.logs(run.id)]
            # What the source wrote after the backup is not in it: such a run is counted again, and logs one line here.
            assert set(lines) == {f"counted {number}"}, "it has a log"
            assert len(lines) <= self.done[number], "no line is doubled"

    async def all_versions(self, place):
        """Every definition of the job `rare` but the present one is in its log."""
        async with place.backend() as backend:
            log = await backend.store.read(definitions_log("rare"))
        assert [entry.sequence for entry in log] == list(range(1, self.versions))


async def accounted(scheduler, place, job="tick"):
    """Every due time of a job since it was created has one record: a run, or a skip with its reason. How many."""
    async with place.backend() as backend:
        record = await backend.store.job(job)
        first, until = record.created_at, datetime.now(UTC) - timedelta(seconds=2)
        instants = list(_instants(first, until))
        found = await backend.store.ledger(record.uid, first, until, 100_000, instants)
        covered: Counter[datetime] = Counter()
        for run in found:
            last = run.until or run.due
            covered.update(at for at in instants if run.due <= at <= last)
        missing = [at for at in instants if not covered[at]]
        assert not missing, (missing[:5], len(missing), len(instants))
        doubled = [at for at in instants if covered[at] > 1]
        assert not doubled, doubled[:5]
        return len(instants), {run.reason for run in found if run.state == "skipped"}


def _instants(first, until):
    step = round(TICK.total_seconds() * 1_000_000)
    micros = -(-round(first.timestamp() * 1_000_000) // step) * step
    while micros <= until.timestamp() * 1_000_000:
        yield datetime.fromtimestamp(micros // 1_000_000, UTC) + timedelta(microseconds=micros % 1_000_000)
        micros += step
