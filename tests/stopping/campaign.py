"""A campaign of stops: `python -m tests.stopping.campaign [--stops 50] [--only redis]`.

On each kind of store a node under load, with stubborn async and sync handlers, is told to stop again and again. Ends
with 1 if a stop took longer than shutdown_timeout + 2 s, left a run `running`, or was counted as a crash.
"""

import argparse
import asyncio
import random
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from duly.testing.postgres_servers import postgres_server
from duly.testing.servers import redis_server
from tests.stopping.trial import STUBBORN, Stopped, Trial

SHUTDOWN_TIMEOUT = 1.0
BOUND = 2.0
LOAD = 400


async def stops(url: str, folder: Path, number: int, dice: random.Random) -> list[Stopped]:
    trial = Trial(url, folder, SHUTDOWN_TIMEOUT)
    found: list[Stopped] = []
    async with trial.client.client():
        for count in range(number):
            await trial.start(f"node-{count}")
            await trial.occupy(*dice.sample(STUBBORN, dice.randint(2, len(STUBBORN))), "stubborn", "endless")
            await trial.load(LOAD)
            await asyncio.sleep(dice.uniform(0.0, 0.1))
            found.append(await trial.stop(twice=dice.random() < 0.2))
            for run_id in trial.runs:
                await trial.client.cancel(run_id)
            trial.forget()
    return found


def told(kind: str, found: list[Stopped]) -> bool:
    """Say how it went; whether it went well."""
    slow = [stop.seconds for stop in found if stop.seconds > SHUTDOWN_TIMEOUT + BOUND]
    running = sum(len(stop.running) for stop in found)
    crashed = sum(len(stop.crashed) for stop in found)
    codes = sorted({stop.code for stop in found}, key=str)
    times = sorted(stop.seconds for stop in found)
    line = f"{kind}: {len(found)} stops, exit after {times[0]:.2f} to {times[-1]:.2f} s, codes {codes}"
    sys.stdout.write(f"{line}; too slow {len(slow)}, left running {running}, counted as crashes {crashed}\n")
    sys.stdout.flush()
    return not slow and not running and not crashed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stops", type=int, default=50, help="per store")
    parser.add_argument("--only", choices=["sqlite", "redis", "postgres"])
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    well = True
    with ExitStack() as stack:
        urls = {"sqlite": lambda: f"sqlite:///{stack.enter_context(tempfile.TemporaryDirectory())}/duly.db"}
        urls["redis"] = lambda: stack.enter_context(redis_server()).url
        urls["postgres"] = lambda: stack.enter_context(postgres_server()).url
        for kind in [given.only] if given.only else list(urls):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "began"
            folder.mkdir()
            dice = random.Random(f"{kind}/{given.seed}")
            well &= told(kind, asyncio.run(stops(urls[kind](), folder, given.stops, dice)))
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
