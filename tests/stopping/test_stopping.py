"""A process that is told to stop is gone in time, and everything it held was given back, whatever its handlers do."""

import asyncio
import signal
from pathlib import Path

import pytest

from duly.model import State
from duly.testing.postgres_servers import postgres_server
from duly.testing.servers import redis_server
from tests.stopping.trial import ONCE, STUBBORN, Trial

BOUND = 2.0
MACHINE = 3.0  # seconds that a busy machine may take to start and end threads and processes; nothing of ours waits so


@pytest.fixture
async def trial(shared_url, tmp_path):
    folder = tmp_path / "began"
    folder.mkdir()
    trial = Trial(shared_url, folder, shutdown_timeout=1.0)
    async with trial.client.client():
        yield trial
        trial.close()


INTERRUPTED = "queued interrupted"
EXPECTED = dict.fromkeys(STUBBORN, INTERRUPTED) | dict.fromkeys(ONCE, "lost interrupted")


def check(stopped, seconds, code=0):
    assert stopped.running == []
    assert stopped.crashed == []
    assert stopped.code == code
    assert stopped.seconds < seconds + BOUND + MACHINE


async def test_whatever_handlers_do_the_process_is_gone_and_what_it_held_is_given_back(trial):
    await trial.start()
    await trial.occupy(*STUBBORN, *ONCE)
    await trial.load(300)
    stopped = await trial.stop()
    check(stopped, trial.shutdown_timeout)
    retried = stopped.outcomes.pop("hooked")
    assert retried.split() in (["pending", "failed"], ["queued", "failed"])  # its failure was known: a hook hung
    assert stopped.outcomes == {handler: EXPECTED[handler] for handler in stopped.outcomes}
    assert await trial.client.nodes() == []


async def test_a_second_signal_does_not_wait_for_handlers(trial):
    trial.shutdown_timeout = 3600.0
    await trial.start()
    await trial.occupy("stubborn", "endless", "patient")
    stopped = await trial.stop(twice=True)
    check(stopped, 0.0)
    assert set(stopped.outcomes.values()) == {INTERRUPTED}


async def test_a_thread_of_asyncios_own_pool_does_not_keep_the_process(trial):
    await trial.start()
    await trial.occupy("in_a_pool")
    check(await trial.stop(), trial.shutdown_timeout)


async def test_a_blocked_event_loop_does_not_keep_the_process_and_its_runs_are_given_back(trial):
    await trial.start()
    await trial.occupy("patient", "polite", "patient_once")
    await trial.occupy("blocking")
    stopped = await trial.stop()
    check(stopped, trial.shutdown_timeout, code=1)
    assert stopped.outcomes.pop("patient_once") == "lost interrupted"
    assert set(stopped.outcomes.values()) == {INTERRUPTED}


async def test_three_deploys_do_not_count_against_a_long_handler(trial):
    trial.shutdown_timeout = 0.0
    await trial.start("first")
    await trial.occupy("endless")
    [run_id] = trial.runs
    for name in ("second", "third", "fourth"):
        check(await trial.stop(), 0.0)
        begun = len(list(trial.folder.iterdir()))
        await trial.start(name)

        async def begun_again(before=begun):
            return len(list(trial.folder.iterdir())) > before

        await trial.until(begun_again, "it has begun again")
    run = await trial.client.get_run(run_id)
    assert (run.state, run.failures, run.losses) == (State.RUNNING, 0, 0)
    check(await trial.stop(), 0.0)


async def test_a_signal_during_the_start_ends_it(tmp_path):
    """The store lets nobody in: the start hangs, and the process is gone all the same."""
    with redis_server() as server:
        folder = tmp_path / "began"
        folder.mkdir()
        trial = Trial(server.url, folder, shutdown_timeout=1.0)
        server.pause()
        try:
            trial.spawn()

            async def is_up():
                return catches_sigterm(trial.node.pid)

            await trial.until(is_up, "it listens to signals")
            trial.node.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(trial.node.wait, 1.0 + BOUND + MACHINE) in (0, 1)
        finally:
            trial.close()
            server.resume()
            await trial.client.close()


def catches_sigterm(pid):
    [caught] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt:")]
    return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


@pytest.mark.parametrize("start", [redis_server, postgres_server], ids=["redis", "postgres"])
async def test_a_store_that_hangs_does_not_keep_the_process(start, tmp_path):
    with start() as server:
        folder = tmp_path / "began"
        folder.mkdir()
        trial = Trial(server.url, folder, shutdown_timeout=1.0)
        async with trial.client.client():
            await trial.start()
            await trial.occupy("patient", "endless")
            server.pause()
            try:
                trial.node.send_signal(signal.SIGTERM)
                assert await asyncio.to_thread(trial.node.wait, 1.0 + BOUND + MACHINE) == 0
            finally:
                trial.close()
                server.resume()
