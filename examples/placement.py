"""Placement: the leader gives runs to nodes, and some only to nodes with the right labels."""

from duly import Every, Scheduler, SchedulerConfig

scheduler = Scheduler("sqlite:///placement.db", SchedulerConfig(placement="assign", assign_ahead=2))


@scheduler.job(selector={"gpu": "yes"})
async def train(model: str) -> str:
    return f"trained {model}"


@scheduler.job(Every(minutes=5))
async def report() -> None:
    print("any node will do")
