"""A campaign of outages: `python -m tests.faults.outages [--trials 20] [--only redis]`.

Nodes run long handlers while their store is away for two leases, and another node starts during that time. Ends with 1
if a run was repeated or lost.
"""

import argparse
import asyncio
import random
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

from duly.model import State
from tests.faults.crew import Crew
from tests.faults.node import LEASE
from tests.faults.stores import KINDS, store

DELIVERIES = ("at_least_once", "at_most_once")
RUNS = 4
AT_ONCE = 4  # trials that share one outage, each in a namespace of its own


async def outage(place, crews: list[Crew], dice: random.Random) -> None:
    for crew in crews:
        crew.start("one")
        crew.start("two")
    for crew in crews:
        await crew.alive(2)
        for delivery in DELIVERIES:
            for _ in range(RUNS):
                await crew.client.submit(delivery)
    for crew in crews:

        async def all_began(crew=crew) -> bool:
            return sum(not path.name.startswith("beat") for path in crew.folder.iterdir()) >= 2 * RUNS

        await crew.until(all_began, "the handlers have begun")
    await asyncio.to_thread(place.pause)
    loop = asyncio.get_running_loop()
    for crew in crews:
        loop.call_later(dice.uniform(0.2, 2 * LEASE), crew.start, "newcomer")
    await asyncio.sleep(2 * LEASE)
    await asyncio.to_thread(place.resume)
    for crew in crews:

        async def all_ended(crew=crew) -> bool:
            states = [State.PENDING, State.QUEUED, State.RUNNING]
            found = [await crew.client.runs(job, states) for job in DELIVERIES]
            return not any(page.runs for page in found)

        await crew.until(all_ended, "the runs have ended")


async def trials(kind: str, number: int, seed: int) -> tuple[int, int, int]:
    """How many trials there were, and how many runs were repeated and lost."""
    done = repeated = lost = 0
    dice = random.Random(f"{kind}/{seed}")
    while done < number:
        some = min(AT_ONCE, number - done)
        async with AsyncExitStack() as stack:
            place = stack.enter_context(store(kind))
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            crews = [Crew(place.url, f"t{each}", folder) for each in range(some)]
            for crew in crews:
                await stack.enter_async_context(crew.client.client())
                stack.callback(crew.close)
            await outage(place, crews, dice)
            for crew in crews:
                repeated += sum(crew.repeats(delivery) for delivery in DELIVERIES)
                lost += len((await crew.client.runs(state=[State.LOST, State.FAILED])).runs)
        done += some
        sys.stderr.write(f"\r{kind}: {done} of {number} ")
    sys.stderr.write("\n")
    return done, repeated, lost


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=20, help="per store")
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    well = True
    for kind in [given.only] if given.only else KINDS:
        done, repeated, lost = asyncio.run(trials(kind, given.trials, given.seed))
        sys.stdout.write(f"{kind}: {done} outages of {2 * LEASE:g} s, {2 * RUNS} runs each: ")
        sys.stdout.write(f"{repeated} repeated, {lost} lost\n")
        sys.stdout.flush()
        well &= repeated == 0 and lost == 0
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
