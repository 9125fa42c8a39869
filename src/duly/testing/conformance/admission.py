"""Admission: the tables of `rules.admission`, row by row.

A store may decide in Python, in a script or in SQL what prevents a run from starting. In any case it must reproduce
every row of the two tables, so that no copy of a rule deviates from the others.
"""

from __future__ import annotations

from msgspec.structs import replace

from duly.model import Assignment, JobChange, Pause, Run, State, WhenFull
from duly.model.holds import UNPLACED, hold_for_group
from duly.rules.admission import ADMISSIONS, HOLDS, OVERLAP, REPLACED, Admission, hold_key
from duly.testing.conformance.world import World, part, scenario

_NODE = "node-1"


async def _queued(world: World, job: str, *, blocked: bool, assigned: bool) -> Run:
    """A queued run of a job that is paused or not, assigned to the node or not."""
    record = world.record(job, every=None)
    await world.create(record)
    run = world.run(job)
    await world.put(replace(run, assignable=True, hold=UNPLACED) if assigned else run)
    if assigned:
        assert await world.queue.assign([Assignment(run.id, _NODE)]) == [True]
    if blocked:
        paused = replace(record, revision=2, paused=Pause(world.now))
        assert await world.store.save([JobChange(paused, 1)], now=world.now) != [None]
    return run


async def _entering(world: World, when_full: WhenFull, *, full: bool) -> tuple[Run, Run]:
    """A run that waits in a group of one or of two, and a due one before that group."""
    group, limit = f"{when_full}-{full}", 1 if full else 2
    member = world.run(group=group, limit=limit, when_full=when_full)
    await world.put(member)
    await world.queue.promote(10, now=world.now)
    entrant = world.run(group=group, limit=limit, when_full=when_full)
    await world.put(entrant)
    await world.queue.promote(10, now=world.now)
    return member, entrant


@part
class AdmissionSuite:
    """A run is prevented from starting exactly as the tables say."""

    @scenario
    async def test_every_row_of_the_table_of_holds(self, world: World) -> None:
        for (blocked, known, assigned), hold in HOLDS.items():
            row = f"blocked={blocked}, known={known}, assigned={assigned}"
            job = f"job-{blocked}-{known}-{assigned}"
            run = await _queued(world, job, blocked=blocked, assigned=assigned)
            claims = await world.claim(node=_NODE, handlers={job} if known else {"other"})
            assert [claim.run.id for claim in claims] == ([run.id] if hold is None else []), row
            stored = await world.stored(run)
            assert stored.hold == hold_key(hold, job, job), row
            assert (stored.assignee is not None) == (assigned and stored.hold != UNPLACED), row

    @scenario
    async def test_every_row_of_the_table_of_admissions(self, world: World) -> None:
        for (full, when_full), admission in ADMISSIONS.items():
            row = f"full={full}, when_full={when_full}"
            member, entrant = await _entering(world, when_full, full=full)
            first, second = await world.stored(member), await world.stored(entrant)
            match admission:
                case Admission.ENTER:
                    assert (first.member, second.member) == (True, True), row
                case Admission.SKIP:
                    assert (first.member, second.state, second.reason) == (True, State.SKIPPED, OVERLAP), row
                case Admission.HOLD:
                    assert (first.member, second.hold) == (True, hold_for_group(entrant.group or "")), row
                case Admission.REPLACE:
                    assert (first.state, first.reason) == (State.CANCELLED, REPLACED), row
                    assert second.member, row
