"""Several processes on one store: one leads, all work, and any of them may die at any moment."""

import signal
import time

import pytest

from duly import State
from duly.model import OutcomeKind


@pytest.fixture(params=["queue", "assign"])
def placement(request):
    """Whoever says which node starts a run, the promises are the same."""
    return request.param


async def test_every_instant_is_run_once_by_one_of_three(cluster):
    await cluster.up("a", "b", "c")
    start = await cluster.until(lambda: len(cluster.notes("beat")) > 3, "it beats") and time.time()
    await cluster.until(lambda: len(cluster.notes("beat")) > 30, "it goes on beating")
    end = time.time()
    codes = [cluster.stop(name) for name in ("a", "b", "c")]
    assert codes == [0, 0, 0]
    cluster.beats_are_complete(round(start * 5), round(end * 5) - 2)


async def test_a_killed_leader_is_replaced_and_nothing_is_missed_or_doubled(cluster):
    await cluster.up("a", "b")
    leader = await cluster.until(cluster.leader, "somebody leads")
    await cluster.until(lambda: len(cluster.notes("beat")) > 5, "it beats")
    first = round(time.time() * 5)
    cluster.kill(leader)
    killed_at = len(cluster.notes("beat"))
    other = next(iter(cluster.nodes))
    assert await cluster.until(lambda: cluster.leads(other), "the other leads") is True
    await cluster.until(lambda: len(cluster.notes("beat")) > killed_at + 20, "it goes on beating")
    end = round(time.time() * 5) - 3
    # What the killed node had claimed runs again once its lease has lapsed; nothing else may be missing or double.
    await cluster.until(lambda: set(range(first, end)) <= set(cluster.beats()), "every instant has run")
    again = [beat for beat in range(first, end) if cluster.beats().count(beat) > 1]
    assert len(again) <= 4


async def test_a_killed_workers_run_starts_again_elsewhere_without_using_up_a_retry(cluster):
    await cluster.up("a", "b")
    run = await cluster.client.submit("slow", {"name": "x"})
    [[_, _, first, _, _]] = await cluster.until(lambda: cluster.notes("begin", "x"), "it has begun")
    cluster.kill(first)
    await cluster.until(lambda: len(cluster.notes("begin", "x")) == 2, "it has begun again")
    cluster.let_go("x")
    result = await run.result(timeout=40)
    assert result != first
    stored = await run.get()
    assert (stored.state, stored.failures, stored.losses) == (State.COMPLETED, 0, 1)
    attempts = await cluster.client.attempts(run.id)
    assert [(attempt.node, attempt.outcome) for attempt in attempts] == [
        (first, OutcomeKind.LOST),
        (result, OutcomeKind.SUCCEEDED),
    ]
    fences = [int(words[4]) for words in cluster.notes("begin", "x")]
    assert fences == sorted(set(fences))


async def test_a_stopped_process_that_comes_back_can_settle_nothing(cluster):
    await cluster.up("a", "b")
    run = await cluster.client.submit("slow", {"name": "x"})
    [[_, _, first, _, _]] = await cluster.until(lambda: cluster.notes("begin", "x"), "it has begun")
    await cluster.freeze(first)
    await cluster.until(lambda: len(cluster.notes("begin", "x")) == 2, "it has begun again elsewhere")
    cluster.let_go("x")
    result = await run.result(timeout=40)
    settled = await run.get()
    cluster.signal(first, signal.SIGCONT)
    await cluster.until(lambda: any(words[2] == first for words in cluster.notes("end", "x")), "the late one ended")
    assert cluster.stop(first) == 0
    assert result != first
    assert await run.get() == settled
    assert len(await cluster.client.attempts(run.id)) == 2


async def test_at_most_once_is_lost_with_its_worker(cluster):
    await cluster.up("a", "b")
    run = await cluster.client.submit("once", {"name": "x"})
    [[_, _, first, _, _]] = await cluster.until(lambda: cluster.notes("begin", "x"), "it has begun")
    cluster.kill(first)
    await cluster.until(lambda: _in_state(run, State.LOST), "it is lost")
    cluster.let_go("x")
    assert len(cluster.notes("begin", "x")) == 1


async def _in_state(run, state):
    return (await run.get()).state is state


async def test_a_graceful_stop_hands_leadership_over_at_once(cluster):
    await cluster.up("a", "b")
    leader = await cluster.until(cluster.leader, "somebody leads")
    await cluster.until(lambda: cluster.notes("beat"), "the leader knows it, and plans")
    other = "b" if leader == "a" else "a"
    assert cluster.stop(leader) == 0
    assert await cluster.until(lambda: cluster.leads(other), "the other leads")
    log = (cluster.folder / f"{leader}.log").read_text()
    assert "resigned from main" in log
    assert "lost main" not in cluster.logs()
