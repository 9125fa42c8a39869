"""A campaign of failovers: `python -m tests.faults.failovers [--failovers 20] [--only cluster] [--replicas 1]`.

Nodes work on a Redis Cluster (three masters, three replicas) and on a master with two replicas and three sentinels,
while the master is killed, cut off and killed, paused, or replaced in order. Ends with 1 if the store forgot a run that
replicas had confirmed, or began an at-most-once run twice whose start they had confirmed, if more was lost than was
reported, or if work paused for longer than ten seconds.
"""

import argparse
import asyncio
import itertools
import sys
import tempfile
from pathlib import Path

from tests.faults.failover_trial import FAULTS, Result, Trial
from tests.faults.redis_groups import cluster_group, sentinel_group

KINDS = ("cluster", "sentinel")
NAMESPACE = "failovers"
LONGEST_PAUSE = 10.0


def group_of(kind: str):
    return cluster_group(NAMESPACE) if kind == "cluster" else sentinel_group()


def trial(kind: str, replicas: int, faults: list[str], seed: int, folder: Path) -> Result:
    with group_of(kind) as group:
        url = f"{group.url}?replicas={replicas}" if replicas else group.url
        return asyncio.run(Trial(group, url, NAMESPACE, folder, seed).run(faults))


def is_well(result: Result, replicas: int) -> bool:
    if replicas and (result.forgotten or result.begun_twice):
        return False
    return result.forgotten <= result.reported and max(result.pauses) <= LONGEST_PAUSE


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--failovers", type=int, default=20, help="per group")
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--replicas", type=int, choices=(0, 1), help="both, unless given")
    parser.add_argument("--fault", choices=FAULTS, help="only this one")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    well = True
    for kind in [given.only] if given.only else KINDS:
        for replicas in (1, 0) if given.replicas is None else (given.replicas,):
            faults = list(itertools.islice(itertools.cycle([given.fault] if given.fault else FAULTS), given.failovers))
            with tempfile.TemporaryDirectory() as folder:
                result = trial(kind, replicas, faults, given.seed, Path(folder))
            sys.stdout.write(f"{kind}, replicas={replicas}: {result}\n")
            sys.stdout.flush()
            well &= is_well(result, replicas)
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
