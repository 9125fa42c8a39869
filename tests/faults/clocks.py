"""A campaign of wrong clocks: `python -m tests.faults.clocks [--seconds 20] [--only redis]`.

The clock of the leader, of a worker or of a client is off by a minute or ten, in either direction. Ends with 1 if a run
began early, was skipped or not begun, or if lateness (p99) is 50 ms above that of the same cluster with right clocks.
"""

import argparse
import asyncio
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

from msgspec import Struct

from duly.model import State
from tests.faults.crew import Crew
from tests.faults.stores import KINDS, store

OFF = (-600.0, -60.0, 60.0, 600.0)
ROLES = ("leader", "worker", "client")
DELAY = 2.0
AT_ONCE = 4
MORE = 0.050


class Found(Struct):
    """What one cluster did."""

    early: int
    skipped: int
    missing: int
    p99: float

    @property
    def well(self) -> bool:
        return not (self.early or self.skipped or self.missing)


async def play(crew: Crew, role: str, off: float, seconds: float) -> Found:
    crew.start("leader", off if role == "leader" else 0.0, "scheduler")
    crew.start("worker", off if role == "worker" else 0.0, "worker")
    await crew.alive(2)

    async def beats() -> bool:
        return bool(crew.begun("beat"))

    await crew.until(beats, "the schedule runs")
    submitted = 0
    for _ in range(round(seconds)):
        await crew.client.submit("mail", delay=DELAY)
        submitted += 1
        await asyncio.sleep(1)
    await asyncio.sleep(DELAY + 2)
    first = {key: times[0] for job in ("beat", "mail") for key, times in crew.begun(job).items()}
    late = sorted(at - due for due, at in first.values())
    page = await crew.client.runs("beat", State.SKIPPED, limit=1000)
    instants = sorted(round(due) for key, (due, _) in first.items() if key.startswith("beat"))
    missing = instants[-1] - instants[0] + 1 - len(set(instants)) + submitted - len(crew.begun("mail"))
    return Found(sum(each < 0 for each in late), len(page.runs), missing, late[int(len(late) * 0.99)])


async def campaign(kind: str, seconds: float) -> bool:
    """All roles and offsets on one kind of store, a few clusters at a time."""
    cases = [("nobody", 0.0), *((role, off) for role in ROLES for off in OFF)]
    found: dict[tuple[str, float], Found] = {}
    for start in range(0, len(cases), AT_ONCE):
        async with AsyncExitStack() as stack:
            place = stack.enter_context(store(kind))
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            some = cases[start : start + AT_ONCE]
            crews = []
            for number, (role, off) in enumerate(some):
                crew = Crew(place.url, f"c{number}", folder, off if role == "client" else 0.0)
                crews.append(crew)
                await stack.enter_async_context(crew.client.client())
                stack.callback(crew.close)
            results = await asyncio.gather(
                *(play(crew, role, off, seconds) for crew, (role, off) in zip(crews, some, strict=True))
            )
            found |= dict(zip(some, results, strict=True))
        sys.stderr.write(f"\r{kind}: {len(found)} of {len(cases)} ")
    sys.stderr.write("\n")
    normal = found["nobody", 0.0].p99
    well = True
    for (role, off), each in found.items():
        bad = not each.well or each.p99 > normal + MORE
        well &= not bad
        line = f"{kind}: {role:7} {off:+5.0f} s: early {each.early}, skipped {each.skipped}, missing {each.missing}"
        sys.stdout.write(f"{line}, p99 {each.p99 * 1000:.1f} ms{'  <-' if bad else ''}\n")
    sys.stdout.flush()
    return well


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each cluster")
    parser.add_argument("--only", choices=KINDS)
    given = parser.parse_args()
    results = [asyncio.run(campaign(kind, given.seconds)) for kind in ([given.only] if given.only else KINDS)]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
