"""A campaign of crashes: `python -m tests.crashing.campaign [--crashes 100] [--only redis] [--nodes 2]`.

On each kind of store the process of a supervised node is killed under load, again and again. Ends with 1 if less than
99 % of the runs that it had began again within a second, or if a run began more often than its worker was lost.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from msgspec import Struct

from duly.testing.postgres_servers import postgres_server
from duly.testing.servers import redis_server
from tests.crashing.trial import Trial

BOUND = 1.0
SHARE = 0.99
LOAD = 300
HELD = 8
STEADY = 2.2  # a process that worked for less counts as one that dies again and again: it is replaced after a pause


class Crashes(Struct):
    """What came of the crashes on one store."""

    seconds: list[float] = []  # from the kill until a run of the process began again
    doubled: list[str] = []
    unexplained: list[str] = []


async def crashes(url: str, folder: Path, number: int, nodes: int, dice: random.Random) -> Crashes:
    trial = Trial(url, folder)
    found = Crashes()
    names = [f"node-{each}" for each in range(nodes)]
    try:
        async with trial.client.client():
            for name in names:
                trial.start(name)
            for count in range(number):
                await _crash(trial, names[count % nodes], f"enough-{count}", found, dice)
            for name in names:
                await trial.stop(name)
    finally:
        trial.close()
    return found


async def _crash(trial: Trial, victim: str, until: str, found: Crashes, dice: random.Random) -> None:
    pid = await trial.process(victim)
    await asyncio.sleep(STEADY)
    (trial.folder / "begun").unlink(missing_ok=True)
    load = await trial.submit("quick", LOAD)
    held: list[str] = []
    interrupted: list[str] = []
    while not interrupted:
        held += await trial.submit("hold", HELD, until=until)
        await trial.all_begun(held)
        interrupted = [run_id for run_id in held if trial.begun()[run_id][0].pid == pid]
    load += await trial.submit("quick", LOAD)
    await asyncio.sleep(dice.uniform(0.0, 0.05))
    killed = trial.kill(pid)
    await trial.all_begun(interrupted, times=2)
    found.seconds += [trial.begun()[run_id][1].at - killed for run_id in interrupted]
    (trial.folder / until).touch()
    await trial.ended([*held, *load])
    await _check(trial, held, interrupted, load, found)


async def _check(trial: Trial, held: list[str], interrupted: list[str], load: list[str], found: Crashes) -> None:
    begun = trial.begun()
    for run_id in [*held, *load]:
        run = await trial.client.get_run(run_id)
        if len(begun[run_id]) > 1 + run.losses:
            found.doubled.append(f"{run.job} {run_id} began {len(begun[run_id])} times, and {run.losses} were lost")
    for run_id in interrupted:
        failures = [attempt.failure for attempt in await trial.client.attempts(run_id) if attempt.failure is not None]
        if [failure.message for failure in failures] != ["the worker's process ended: killed by SIGKILL"]:
            found.unexplained.append(f"{run_id}: {failures}")


def told(kind: str, nodes: int, crashed: int, found: Crashes, took: float) -> bool:
    """Say how it went; whether it went well."""
    times = sorted(found.seconds)
    share = sum(each <= BOUND for each in times) / len(times)
    middle, late, last = times[len(times) // 2], times[int(len(times) * SHARE)], times[-1]
    line = f"{kind}, {nodes} nodes: {crashed} crashes in {took:.0f} s, {len(times)} runs began again"
    line += f" after {middle:.2f} s (median), {late:.2f} s (99 %), {last:.2f} s (last); {share:.1%} within {BOUND:g} s"
    sys.stdout.write(f"{line}; doubled {len(found.doubled)}, without reason {len(found.unexplained)}\n")
    for problem in [*found.doubled, *found.unexplained][:10]:
        sys.stdout.write(f"  {problem}\n")
    sys.stdout.flush()
    return share >= SHARE and not found.doubled and not found.unexplained


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--crashes", type=int, default=100, help="per store")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--only", choices=["sqlite", "redis", "postgres"])
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    well = True
    for kind in [given.only] if given.only else ["sqlite", "redis", "postgres"]:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            url = f"sqlite:///{folder}/duly.db"
            if kind != "sqlite":
                url = stack.enter_context(redis_server() if kind == "redis" else postgres_server()).url
            began = time.monotonic()
            found = asyncio.run(crashes(url, folder, given.crashes, given.nodes, random.Random(given.seed)))
            well &= told(kind, given.nodes, given.crashes, found, time.monotonic() - began)
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
