"""Upcoming runs: what the walk over the plans finds is what computing all schedules would find, at a bounded cost."""

import asyncio
import heapq
import random
from datetime import UTC, datetime, timedelta
from itertools import count, islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from duly import Scheduler
from duly.model import EverySpec, Ids, JobChange, JobRecord, JobSpec, Origin
from duly.model.config import LEAST_HORIZON
from duly.rules.planning import Outlook, plan
from duly.rules.schedules import schedule_of
from duly.testing import ManualClock

NOW = datetime(2027, 3, 1, tzinfo=UTC)
OUTLOOK = Outlook(timedelta(seconds=LEAST_HORIZON), timedelta(seconds=60))
NUMBERS = count()


class Jobs:
    """Jobs as a planner leaves them: with runs ahead, or just created."""

    def __init__(self):
        self.records, self.made = [], []
        self._ids = Ids(lambda: NOW, random.Random(7))

    def add(self, every, offset, planned):
        cursor, name = NOW + timedelta(seconds=offset), f"job{len(self.records):05d}"
        spec = JobSpec(name=name, handler=name, schedule=EverySpec(timedelta(seconds=every), start_at=cursor))
        record = JobRecord(self._ids.new(), spec, 1, Origin.API, NOW, NOW, cursor=cursor, plan_at=NOW)
        if planned:
            firing = plan(record, schedule_of(record, lambda _: None), NOW, OUTLOOK)
            record = replace(record, cursor=firing.cursor, plan_at=firing.plan_at, planned=len(firing.runs))
            self.made += firing.runs
        self.records.append(record)

    def instants(self):
        """The times of all upcoming runs, computed from every schedule."""

        def of(record):
            due = record.cursor
            while True:
                yield due
                due += record.spec.schedule.interval

        return heapq.merge(sorted(run.ready_at for run in self.made), *(of(record) for record in self.records))

    async def upcoming(self, limit, read=None):
        """What a scheduler finds; `read` gets the names of the records that it reads."""
        scheduler = Scheduler(f"memory://upcoming-{next(NUMBERS)}", clock=ManualClock(NOW))
        async with scheduler.client():
            client = await scheduler._client()
            store = client.backend.store
            await store.save([JobChange(record, None) for record in self.records])
            await client.backend.queue.put(self.made)
            if read is not None:
                jobs = store.jobs

                async def watched(names=None, **options):
                    found = await jobs(names, **options)
                    read.extend(found)
                    return found

                store.jobs = watched
            return await scheduler.upcoming(limit)


JOB = st.tuples(
    st.sampled_from([0.1, 0.5, 1, 7, 60, 3600, 86400]),
    st.sampled_from([0.0, 0.3, 3, 29, 31, 44, 46, 100, 3600]),
    st.booleans(),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(JOB, min_size=1, max_size=25), st.sampled_from([1, 5, 20, 32, 33, 100]), st.sampled_from([1, 3, 200]))
def test_the_walk_finds_what_computing_all_schedules_finds(definitions, limit, looked_at):
    jobs = Jobs()
    for definition in definitions:
        jobs.add(*definition)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("duly.scheduler.job_admin._LOOKED_AT", looked_at)
        found = asyncio.run(jobs.upcoming(limit))
    assert [each.at for each in found] == list(islice(jobs.instants(), limit))


async def test_few_of_many_jobs_are_read():
    jobs, read = Jobs(), []
    for number in range(3000):
        jobs.add(86400, 60 * number + 100, True)
    found = await jobs.upcoming(20, read)
    assert [each.at for each in found] == list(islice(jobs.instants(), 20))
    assert len(read) <= 400


@pytest.mark.parametrize("planned", [True, False], ids=["aligned", "not yet planned"])
async def test_a_bounded_number_of_jobs_is_read(planned):
    jobs, read = Jobs(), []
    for _ in range(4000):
        jobs.add(86400, 3600, planned)
    found = await jobs.upcoming(20, read)
    assert [each.at for each in found] == list(islice(jobs.instants(), 20))
    assert len(read) <= 2000
