"""The planner: which form runs have while nodes of an earlier version are alive."""

import asyncio

from tests.sim.company import played

from duly import Every, Job, Scheduler
from duly.model import Node


def program():
    scheduler = Scheduler("memory://")

    async def work() -> None: ...

    scheduler.add(Job(name="report", handler=work, schedule=Every(seconds=1), overlap="allow"))
    return scheduler


async def first_planned_after(company, instant):
    """The first run that was planned then or later; runs are planned in the order of their due instants."""

    async def found():
        runs = [run for run in await company.runs("report") if run.created_at >= instant]
        return min(runs, key=lambda run: run.due) if runs else None

    return await company.until(found)


@played
async def test_runs_have_a_time_to_start_by_only_while_all_live_nodes_know_of_it(company):
    coordinator = company.office.backend.coordinator
    began = company.clock.now()
    await coordinator.announce(Node("old", "host", 1, began), 30.0)
    await company.start("new", program())
    assert (await first_planned_after(company, began)).start_by is None
    await asyncio.sleep(60)  # the old node has gone
    assert (await first_planned_after(company, company.clock.now())).start_by is not None
    await coordinator.announce(Node("old", "host", 1, company.clock.now()), 600.0)
    await asyncio.sleep(10)
    assert (await first_planned_after(company, company.clock.now())).start_by is None
