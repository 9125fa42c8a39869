"""Deploys of many jobs: what is known to be in the store is not read, and whatever changes it makes it unknown."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from duly import Every, Job, Scheduler
from duly.model import JobChange, JobStatus, Node
from duly.rules import job_changes

MANY = 1200


@pytest.fixture
def url(shared_url):
    return shared_url


async def work() -> None: ...


class Program:
    """A program with many jobs on a store, which starts as often as a test asks for it."""

    def __init__(self, url, **changed):
        self.scheduler = Scheduler(url)
        for number in range(MANY):
            name = f"job{number:04d}"
            every = changed.get(name, 3600)
            self.scheduler.add(Job(name=name, handler=work, schedule=Every(seconds=every), restore=True))

    async def start(self, later=0):
        """Deploy; how many records were read, and how many were written."""
        async with self.scheduler.client():
            client = await self.scheduler._client()
            store = client.backend.store
            read, written, jobs, save = [], [], store.jobs, store.save

            async def watched_jobs(names=None, **options):
                found = await jobs(names, **options)
                read.extend(found)
                return found

            async def watched_save(changes, **options):
                saved = await save(changes, **options)
                written.extend(saved)
                return saved

            store.jobs, store.save = watched_jobs, watched_save
            since = client.clock.now() + timedelta(seconds=later)
            await client.code_deploys.deploy(client.registry.jobs(), since)
            return len(read), len(written)


async def test_ids_of_jobs_grow_in_the_order_of_the_program(url):
    program = Program(url)
    await program.start()
    async with program.scheduler.client():
        client = await program.scheduler._client()
        records = await client.backend.store.jobs([job.name for job in client.registry.jobs()])
    uids = {record.name: record.uid for record in records}
    in_order = [uids[job.name] for job in client.registry.jobs()]
    assert in_order == sorted(in_order)


async def test_an_unchanged_program_reads_and_writes_no_definition(url):
    assert await Program(url).start() == (0, MANY)
    assert await Program(url).start() == (0, 0)


async def test_one_changed_job_lets_only_its_part_be_compared(url):
    await Program(url).start()
    read, written = await Program(url, job0007=60).start()
    assert 0 < read < MANY / 2
    assert written == 1
    assert await Program(url, job0007=60).start() == (MANY, 0)  # what was known is forgotten
    assert await Program(url, job0007=60).start() == (0, 0)


async def test_a_job_that_another_program_has_changed_is_brought_back(url):
    await Program(url).start()
    await Program(url, job0007=60).start(later=1)
    _, written = await Program(url).start(later=2)
    assert written == 1
    assert (await _record(url, "job0007")).spec.schedule.interval == timedelta(hours=1)


async def test_a_job_that_was_removed_is_restored(url):
    await Program(url).start()
    async with Scheduler(url).client() as other:
        await other.remove("job0042")
    assert (await _record(url, "job0042")).status is JobStatus.REMOVED
    _, written = await Program(url).start()
    assert written == 1
    assert (await _record(url, "job0042")).status is JobStatus.ACTIVE


async def test_a_job_that_is_paused_or_retired_is_as_the_code_defines_it(url):
    await Program(url).start()
    async with Scheduler(url).client() as other:
        await other.pause("job0042")
    assert await Program(url).start() == (0, 0)


async def test_a_change_during_the_comparison_is_not_overlooked(url):
    await Program(url).start()
    program, other = Program(url), Scheduler(url)
    await _forget(url)
    async with other.client(), program.scheduler.client():
        store = (await program.scheduler._client()).backend.store
        elsewhere = (await other._client()).backend.store
        jobs = store.jobs

        async def jobs_and_change(names=None, **options):
            found = await jobs(names, **options)
            if names and "job0042" in names:  # it has been read as it was, and is removed before the end
                record = await elsewhere.job("job0042")
                if record.removed_at is None:
                    await elsewhere.save([job_changes.remove(record, record.updated_at)])
            return found

        store.jobs = jobs_and_change
        client = await program.scheduler._client()
        await client.code_deploys.deploy(client.registry.jobs(), client.clock.now())
    _, written = await Program(url).start()
    assert written == 1
    assert (await _record(url, "job0042")).status is JobStatus.ACTIVE


async def test_nothing_is_taken_as_known_while_a_node_of_an_earlier_version_is_alive(url):
    await Program(url).start()
    async with Scheduler(url).client() as other:
        client = await other._client()
        now = client.clock.now()
        old = Node(id="old", host="h", pid=1, version="0.1.0", started_at=now, protocol=1)
        await client.backend.coordinator.announce(old, 60)
    assert await Program(url).start() == (MANY, 0)


async def _record(url, name):
    async with Scheduler(url).client() as scheduler:
        return await (await scheduler._client()).backend.store.job(name)


async def _forget(url):
    """Redefine a job without a change of its definition: what was known is forgotten."""
    record = await _record(url, "job0001")
    async with Scheduler(url).client() as scheduler:
        store = (await scheduler._client()).backend.store
        await store.save([JobChange(replace(record, revision=2), 1, redefines=True)])
