"""`duly run --supervise` and `--reload`: processes are replaced without a gap, and a crash costs less than a second."""

import asyncio
import os
import signal
import time
import urllib.error
import urllib.request

import pytest

from duly.model import OutcomeKind, State
from tests.crashing.trial import Trial

MACHINE = 4.0  # seconds that a busy machine may take to start a process; nothing of ours waits so long

APP = """
import os
from duly import Scheduler, SchedulerConfig

scheduler = Scheduler(config=SchedulerConfig(lock_ttl=30, shutdown_timeout=5))
VERSION = "one"

@scheduler.job
async def version() -> str:
    return VERSION

@scheduler.job
async def pid() -> int:
    return os.getpid()
"""


@pytest.fixture
async def trial(shared_url, tmp_path):
    async for each in _trial(shared_url, tmp_path):
        yield each


@pytest.fixture
async def on_sqlite(tmp_path):
    async for each in _trial(f"sqlite:///{tmp_path}/duly.db", tmp_path):
        yield each


async def _trial(url, folder):
    trial = Trial(url, folder)
    async with trial.client.client():
        yield trial
        trial.close()


async def answer(trial: Trial, handler: str) -> object:
    return await (await trial.client.submit(handler)).result(timeout=30)


async def replacement(trial: Trial, old: int) -> int:
    """The process that replaces another one, once the other takes no more runs."""
    new = await trial.process("node", other_than=old)
    drains = f"process {new} replaces process {old}"
    await trial.until(lambda: "stopping: waiting" in trial.log("node").partition(drains)[2], "the old process drains")
    return new


# --- crashes


async def test_runs_of_a_killed_process_begin_again_at_once(trial):
    trial.start("node")
    pid = await trial.process("node")
    [run_id] = await trial.submit("hold", until="enough")
    [once] = await trial.submit("hold_once", until="enough")
    await trial.all_begun([run_id, once])
    killed = trial.kill(pid)
    await trial.all_begun([run_id], times=2)
    first, second = trial.begun()[run_id]
    assert second.at - killed < 1.0 + MACHINE
    assert (first.pid, second.pid) == (pid, await trial.process("node", other_than=pid))
    [attempt] = await trial.client.attempts(run_id)
    assert (attempt.node, attempt.outcome) == ("node", OutcomeKind.LOST)
    assert attempt.failure.message == "the worker's process ended: killed by SIGKILL"
    assert (await trial.client.get_run(run_id)).losses == 1
    await trial.ended([once], State.LOST)
    assert (await trial.client.get_run(once)).reason == "worker vanished: killed by SIGKILL"
    assert len(trial.begun()[once]) == 1
    await trial.until((trial.folder / "hooks").exists, "the hook of the lost run was called")
    assert (trial.folder / "hooks").read_text().split() == [once, str(second.pid)]
    (trial.folder / "enough").touch()
    await trial.ended([run_id])
    assert await trial.stop("node") == 0
    assert "was given back" in trial.log("node") or "were given back" in trial.log("node")


async def test_a_crash_is_given_back_to_other_nodes_before_the_process_is_replaced(on_sqlite):
    on_sqlite.start("node")
    pid = await on_sqlite.process("node")
    runs = await on_sqlite.submit("hold", 4, until="enough")
    await on_sqlite.all_begun(runs)
    on_sqlite.start("other")
    other = await on_sqlite.process("other")
    on_sqlite.kill(pid)
    await on_sqlite.all_begun(runs, times=2)
    assert {on_sqlite.begun()[run_id][1].pid for run_id in runs} <= {other, await on_sqlite.process("node", pid)}
    (on_sqlite.folder / "enough").touch()
    await on_sqlite.ended(runs)


async def test_a_run_that_crashes_its_process_fails_after_its_losses(on_sqlite):
    """Crashes are counted as before: twice among others, then alone."""
    on_sqlite.start("node")
    [run_id] = await on_sqlite.submit("crash")
    await on_sqlite.ended([run_id], State.FAILED)
    run = await on_sqlite.client.get_run(run_id)
    assert run.losses == 3
    assert run.reason == "its worker vanished 3 times, the last time with no other run on it"
    assert run.failure.message == "the worker's process ended: exit code 139 (SIGSEGV)"
    assert len(on_sqlite.begun()[run_id]) == 3


async def test_a_process_that_dies_again_and_again_is_replaced_after_growing_pauses(on_sqlite):
    (on_sqlite.folder / "dying.py").write_text(
        "import os, threading\nfrom duly import Scheduler\nscheduler = Scheduler()\n"
        "if os.path.exists('started'):\n    threading.Timer(0.5, os._exit, [3]).start()\n"
    )
    on_sqlite.start("node", program="dying:scheduler")
    first = await on_sqlite.process("node")
    await on_sqlite.until(lambda: "node node started" in on_sqlite.log("node"), "it has started")
    await asyncio.sleep(0.2)
    (on_sqlite.folder / "started").touch()
    on_sqlite.kill(first)
    began = time.monotonic()
    await on_sqlite.until(lambda: on_sqlite.log("node").count("exit code 3") >= 4, "it died four times")
    assert time.monotonic() - began > 4 * 0.5 + 0.1 + 0.2 + 0.4
    assert await on_sqlite.stop("node") == 0


async def test_commands_are_dead_before_their_runs_begin_again(on_sqlite):
    on_sqlite.start("node")
    pid = await on_sqlite.process("node")
    [run_id] = await on_sqlite.submit("locked")
    await on_sqlite.all_begun([run_id])
    on_sqlite.kill(pid)
    await on_sqlite.all_begun([run_id], times=2)
    (on_sqlite.folder / "enough").touch()
    await on_sqlite.ended([run_id])
    assert not (on_sqlite.folder / "overlaps").exists()


async def test_a_supervisor_that_is_killed_takes_its_process_with_it(on_sqlite):
    on_sqlite.start("node")
    pid = await on_sqlite.process("node")
    on_sqlite.supervisors["node"].kill()

    def gone() -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False

    await on_sqlite.until(gone, "the process has ended")
    assert await on_sqlite.client.nodes() == []


# --- replacing


async def test_sighup_replaces_the_process_without_a_gap(trial):
    trial.start("node")
    old = await trial.process("node")
    [run_id] = await trial.submit("hold", until="enough")
    await trial.all_begun([run_id])
    trial.supervisors["node"].send_signal(signal.SIGHUP)
    new = await replacement(trial, old)
    other = await trial.submit("hold", 4, until="later")
    await trial.all_begun(other)
    assert {trial.begun()[each][0].pid for each in other} == {new}, "the old process takes no more runs"
    assert (await trial.client.get_run(run_id)).state is State.RUNNING
    (trial.folder / "enough").touch()
    await trial.ended([run_id])
    assert len(trial.begun()[run_id]) == 1, "the old process finished it"
    await asyncio.sleep(0.5)
    assert [node.pid for node in await trial.client.nodes()] == [new], "the old process has not withdrawn the presence"
    (trial.folder / "later").touch()
    await trial.ended(other)
    assert "in use" not in trial.log("node")
    assert "share" not in trial.log("node")
    assert await trial.stop("node") == 0


async def test_a_program_that_cannot_be_imported_keeps_the_old_process(on_sqlite):
    program = on_sqlite.folder / "shop.py"
    program.write_text(APP)
    on_sqlite.start("node", program="shop:scheduler")
    pid = await on_sqlite.process("node")
    program.write_text(APP + "\nimport nothing_of_this_name\n")
    on_sqlite.supervisors["node"].send_signal(signal.SIGHUP)
    await on_sqlite.until(lambda: f"process {pid} goes on" in on_sqlite.log("node"), "the old process goes on")
    assert "ModuleNotFoundError: No module named 'nothing_of_this_name'" in on_sqlite.log("node")
    assert await answer(on_sqlite, "pid") == pid
    program.write_text(APP.replace("one", "second"))
    on_sqlite.supervisors["node"].send_signal(signal.SIGHUP)
    await replacement(on_sqlite, pid)
    assert await answer(on_sqlite, "version") == "second"


async def test_a_program_that_cannot_start_at_first_is_the_end(on_sqlite):
    (on_sqlite.folder / "shop.py").write_text("import nothing_of_this_name\n")
    on_sqlite.start("node", program="shop:scheduler")
    assert await asyncio.to_thread(on_sqlite.supervisors["node"].wait, 60) == 1
    assert "nothing_of_this_name" in on_sqlite.log("node")


async def test_a_stop_ends_all_processes_within_the_shutdown_timeout(on_sqlite):
    on_sqlite.start("node")
    old = await on_sqlite.process("node")
    [first] = await on_sqlite.submit("hold", until="never")
    await on_sqlite.all_begun([first])
    on_sqlite.supervisors["node"].send_signal(signal.SIGHUP)
    await on_sqlite.process("node", other_than=old)
    [second] = await on_sqlite.submit("hold", until="never")
    await on_sqlite.all_begun([second])
    began = time.monotonic()
    assert await on_sqlite.stop("node") == 0
    assert time.monotonic() - began < 5.0 + 2.0 + MACHINE
    for run_id in (first, second):
        run = await on_sqlite.client.get_run(run_id)
        assert (run.state, run.losses) == (State.QUEUED, 0), "it was given back, not lost"


async def test_the_port_answers_while_the_process_is_replaced(on_sqlite):
    on_sqlite.start("node", "--http", "127.0.0.1:0", "--no-auth")
    old = await on_sqlite.process("node")
    await on_sqlite.until(lambda: "the API on http://" in on_sqlite.log("node"), "it listens")
    url = on_sqlite.log("node").partition("the API on ")[2].split()[0]
    answers: list[object] = []

    def ask_until_replaced(stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                with urllib.request.urlopen(f"{url}/livez", timeout=20) as response:
                    answers.append(response.status)
            except urllib.error.URLError as exc:
                answers.append(str(exc))
            time.sleep(0.01)

    stop = asyncio.Event()
    asking = asyncio.create_task(asyncio.to_thread(ask_until_replaced, stop))
    try:
        on_sqlite.supervisors["node"].send_signal(signal.SIGHUP)
        replacement = await on_sqlite.process("node", other_than=old)
        await on_sqlite.until(lambda: f"replaces process {old}" in on_sqlite.log("node"), "it is replaced")
        on_sqlite.kill(replacement)
        await on_sqlite.until(lambda: on_sqlite.log("node").count("the API on http://") >= 3, "the third one listens")
    finally:
        stop.set()
        await asking
    refused = [each for each in answers if "refused" in str(each)]
    assert not refused
    assert answers.count(200) > 5


async def test_a_job_file_is_read_again_by_the_same_process(on_sqlite):
    file = on_sqlite.folder / "jobs.toml"
    file.write_text('name = "ops"\n[jobs.one]\ncommand = ["true"]\n')
    on_sqlite.start("node", program="jobs.toml")
    pid = await on_sqlite.process("node")
    file.write_text('name = "ops"\n[jobs.one]\ncommand = ["true"]\n[jobs.two]\ncommand = ["true"]\n')
    on_sqlite.supervisors["node"].send_signal(signal.SIGHUP)

    async def read() -> bool:
        return {job.name for job in await on_sqlite.client.jobs()} == {"one", "two"}

    await on_sqlite.until(read, "the file was read again")
    assert await on_sqlite.process("node") == pid


# --- development


async def test_a_changed_source_file_starts_a_new_process(on_sqlite):
    program = on_sqlite.folder / "shop.py"
    program.write_text(APP)
    on_sqlite.start("node", program="shop:scheduler", how="--reload")
    first = await on_sqlite.process("node")
    await asyncio.sleep(0.6)  # the supervisor learns the files when the process works
    program.write_text(APP.replace("one", "three"))
    second = await replacement(on_sqlite, first)
    assert await answer(on_sqlite, "version") == "three"
    program.write_text("broken(\n")
    await on_sqlite.until(lambda: f"process {second} goes on" in on_sqlite.log("node"), "the old process goes on")
    assert "SyntaxError" in on_sqlite.log("node")
    assert await answer(on_sqlite, "version") == "three"
    program.write_text(APP.replace("one", "the fourth"))
    await replacement(on_sqlite, second)
    assert await answer(on_sqlite, "version") == "the fourth"
    assert await on_sqlite.stop("node") == 0


async def test_a_program_that_is_broken_at_first_is_started_when_it_is_mended(on_sqlite):
    program = on_sqlite.folder / "shop.py"
    program.write_text("broken(\n")
    on_sqlite.start("node", program="shop:scheduler", how="--reload")
    await on_sqlite.until(lambda: "waiting for a change" in on_sqlite.log("node"), "it waits")
    program.write_text(APP)
    await on_sqlite.process("node")
    assert await answer(on_sqlite, "version") == "one"


async def test_reload_and_supervise_together_are_refused(on_sqlite):
    on_sqlite.start("node", "--reload")
    assert await asyncio.to_thread(on_sqlite.supervisors["node"].wait, 60) == 2
    assert "choose one" in on_sqlite.log("node")
