"""A server of Redis fails and another takes over, while nodes work: one failover of each group of servers.

`python -m tests.faults.failovers` runs many.
"""

import pytest
from tests.faults.failover_trial import Trial
from tests.faults.redis_groups import cluster_group, sentinel_group

NAMESPACE = "failover"


@pytest.mark.parametrize("group", [lambda: cluster_group(NAMESPACE), sentinel_group], ids=["cluster", "sentinel"])
async def test_what_replicas_confirmed_survives_a_failover(group, tmp_path):
    with group() as servers:
        trial = Trial(servers, f"{servers.url}?replicas=1", NAMESPACE, tmp_path, seed=1)
        result = await trial.run(["cut off and kill"])
    assert result.faults == 1
    assert result.acknowledged > 0
    assert (result.forgotten, result.begun_twice) == (0, 0), result
