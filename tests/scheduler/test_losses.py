"""What a scheduler says about changes that its store has lost."""

import msgspec
import pytest

from duly import RunNotFound, Scheduler
from duly.model import Lost
from duly.model.loss import LOSSES, LossReport
from duly.rules.settling import settle

ABSENT = "06604e5b6fc33e0683d22faf17"


@pytest.fixture
async def scheduler():
    made = Scheduler("memory://")
    async with made.client():
        yield made


async def _lose(scheduler, **counts):
    client = await scheduler._client()
    await client.backend.store.append(LOSSES, [msgspec.json.encode(LossReport(2, "behind", **counts))])


async def test_health_names_a_loss_of_the_last_hour(scheduler):
    assert (await scheduler.health()).status == "healthy"
    await _lose(scheduler, added=12, settled=3)
    health = await scheduler.health()
    assert health.status == "degraded"
    [reason] = health.reasons
    assert "the store lost up to 12 submitted or planned runs and the end of up to 3 runs" in reason


async def test_the_doctor_names_losses(scheduler):
    await _lose(scheduler, added=12)
    [finding] = [each for each in await scheduler.examine() if each.subject == "lost changes"]
    assert finding.severity == "warning"
    assert "up to 12 submitted or planned runs" in finding.message


async def test_a_run_that_is_absent_may_have_been_lost(scheduler):
    with pytest.raises(RunNotFound, match=r"retention has purged it$"):
        await scheduler.explain(ABSENT)
    await _lose(scheduler, added=12)
    with pytest.raises(RunNotFound, match="or the store lost it; the store lost up to 12"):
        await scheduler.explain(ABSENT)


async def test_an_unreadable_report_hides_no_other(scheduler):
    client = await scheduler._client()
    await client.backend.store.append(LOSSES, [b"{"])
    await _lose(scheduler, added=1)
    assert len((await scheduler.health()).reasons) == 1


async def test_a_run_whose_worker_is_gone_may_have_ended_before_a_loss(scheduler):
    client = await scheduler._client()
    queue = client.backend.queue
    run = await scheduler.submit("mail", {})
    [claim] = (await queue.claim("node", None, None, 1, 15.0, 1)).claims
    await _lose(scheduler, settled=3)
    await queue.settle([settle(claim.run, claim.fence, Lost(), client.clock.now(), 0.5)])
    reasons = (await scheduler.explain(run.id)).reasons
    assert any("The store lost the end of up to 3 runs" in reason for reason in reasons)
