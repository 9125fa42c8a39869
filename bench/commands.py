"""How long the command line takes: `python -m bench.commands [--rounds 20]`.

Each command runs as a separate process, on a small SQLite store. The figure is the median of the wall times. The
processor time of one call stands beside it, because other work on the machine changes it less. The exit code is 1 if a
median is above its limit.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

from duly import Every, Job, Scheduler

LIMITS = {"--version": 0.1, "--help": 0.1, "jobs": 0.3, "runs": 0.3, "nodes": 0.3}  # in seconds


async def fill(url: str) -> None:
    """A store with a hundred jobs and a thousand waiting runs."""
    async with Scheduler(url).client() as scheduler:
        for number in range(100):
            await scheduler.register(Job(handler="tidy_up", name=f"tidy_up_{number}", schedule=Every(hours=6)))
        await scheduler.submit_many("mail", [{"number": number} for number in range(1000)])


def seconds(command: str, folder: str) -> float:
    """How long one call takes."""
    program = Path(sysconfig.get_path("scripts")) / "duly"
    began = time.perf_counter()
    subprocess.run([str(program), command], cwd=folder, capture_output=True, check=True)
    return time.perf_counter() - began


def cpu_seconds() -> float:
    """The processor time of all calls so far."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    late = 0
    with tempfile.TemporaryDirectory(prefix="duly-commands-") as folder:
        asyncio.run(fill(f"sqlite:///{folder}/duly.db"))
        for command, limit in LIMITS.items():
            seconds(command, folder)  # fills the caches
            used = cpu_seconds()
            found = [seconds(command, folder) for _ in range(rounds)]
            used = (cpu_seconds() - used) / rounds
            median = statistics.median(found)
            late += median > limit
            verdict = "ok" if median <= limit else "too slow"
            figures = f"{median * 1e3:6.0f} ms (processor {used * 1e3:.0f} ms), limit {limit * 1e3:.0f} ms"
            print(f"duly {command:<10} {figures}: {verdict}")
    return min(late, 1)


if __name__ == "__main__":
    sys.exit(main())
