"""The supervisor and the processes: what is started is killed, whoever dies and however."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from pathlib import Path

import pytest
from executor_support import alive, all_dead, announced, eventually, nothing_left, on_both_loops, opened, script

from duly.runtime.executors import RemoteFailure, SupervisedProcesses, supervisor
from duly.runtime.executors import supervised as supervised_module
from duly.runtime.executors.supervised import Exit, Supervised

ENV = {"PATH": os.environ["PATH"]}
TRAP = 'trap "" TERM; echo $$ > {0}.new; mv {0}.new {0}; while :; do sleep 1000; done'
POLITE = 'trap "exit 5" TERM; echo $$ > {0}.new; mv {0}.new {0}; while :; do sleep 1000 & wait; done'


def spawn(
    processes: SupervisedProcesses,
    *argv: str,
    env: dict[str, str] | None = None,
    cwd: str = "/",
    out: int | None = None,
) -> Supervised:
    null = os.open(os.devnull, os.O_WRONLY)
    return processes.spawn(list(argv), ENV if env is None else env, cwd, [os.dup(null) if out is None else out, null])


def shell(processes: SupervisedProcesses, text: str) -> Supervised:
    return spawn(processes, "sh", "-c", text)


async def exit_of(process: Supervised) -> Exit:
    async with asyncio.timeout(30):
        return await process.ended


async def said(processes: SupervisedProcesses, *argv: str, env: dict[str, str] | None = None, cwd: str = "/") -> str:
    reader, writer = os.pipe()
    try:
        await exit_of(spawn(processes, *argv, env=env, cwd=cwd, out=writer))
        return os.read(reader, 65536).decode(errors="surrogateescape")
    finally:
        os.close(reader)


# --- starting


@on_both_loops
async def test_a_program_is_started_and_its_exit_reported() -> None:
    async with opened(SupervisedProcesses()) as processes:
        assert await exit_of(spawn(processes, "true")) == Exit(0)
        assert await exit_of(shell(processes, "exit 7")) == Exit(7)
        killed = await exit_of(shell(processes, "kill -SEGV $$"))
        assert killed == Exit(-signal.SIGSEGV)
        assert killed.text == "killed by signal 11 (SIGSEGV)"


@on_both_loops
async def test_it_gets_the_environment_and_the_directory_it_was_given(tmp_path: Path) -> None:
    async with opened(SupervisedProcesses()) as processes:
        assert await said(processes, "/usr/bin/env", env={"A": "1", "B": "zwölf \udcff"}) == "A=1\nB=zwölf \udcff\n"
        assert await said(processes, "pwd", cwd=str(tmp_path)) == f"{tmp_path}\n"


async def test_a_long_environment_arrives_whole() -> None:
    async with opened(SupervisedProcesses()) as processes:
        env = {**ENV, **{f"V{number}": "x" * 100_000 for number in range(8)}}
        assert await said(processes, "sh", "-c", "echo ${#V7}", env=env) == "100000\n"


async def test_a_program_starts_with_plain_signals_and_no_descriptors_of_ours() -> None:
    before = signal.signal(signal.SIGQUIT, signal.SIG_IGN)  # as a shell does for what it starts in the background
    async with opened(SupervisedProcesses()) as processes:
        try:
            status = await said(processes, "cat", "/proc/self/status")
        finally:
            signal.signal(signal.SIGQUIT, before)
        masks = dict(line.split(":\t") for line in status.splitlines() if line.startswith("Sig"))
        changeable = sum(1 << (number - 1) for number in signal.valid_signals())  # two are the C library's own
        assert [int(masks[name], 16) & changeable for name in ("SigIgn", "SigBlk", "SigCgt")] == [0, 0, 0]
        assert (await said(processes, "ls", "/proc/self/fd")).split() == [
            "0",
            "1",
            "2",
            "3",
        ]  # 3 is the listing itself
        assert await said(processes, "readlink", "/proc/self/fd/0") == "/dev/null\n"


@pytest.mark.parametrize(
    ("argv", "cwd", "stage", "number"),
    [
        (["no-such-program"], "/", "exec", errno.ENOENT),
        (["/etc/passwd"], "/", "exec", errno.EACCES),
        (["true"], "/no/such/directory", "cwd", errno.ENOENT),
        (["true", "x" * 200_000], "/", "exec", errno.E2BIG),
        (["true", "nul\0"], "/", "exec", None),
    ],
)
async def test_what_cannot_be_started_ends_with_its_reason(
    argv: list[str], cwd: str, stage: str, number: int | None
) -> None:
    async with opened(SupervisedProcesses()) as processes:
        trouble = (await exit_of(spawn(processes, *argv, cwd=cwd))).trouble
        assert trouble is not None
        assert (trouble.stage, trouble.errno) == (stage, number)


# --- stopping


@on_both_loops
async def test_a_ward_that_heeds_sigterm_ends_in_its_own_way(tmp_path: Path) -> None:
    async with opened(SupervisedProcesses()) as processes:
        process = shell(processes, POLITE.format(tmp_path / "ready"))
        await announced(tmp_path / "ready")
        assert not await process.end(grace=60)
        assert await exit_of(process) == Exit(5, stopped=True)


@on_both_loops
async def test_a_ward_that_ignores_sigterm_is_killed_after_the_grace(tmp_path: Path) -> None:
    async with opened(SupervisedProcesses()) as processes:
        process = shell(processes, TRAP.format(tmp_path / "ready"))
        await announced(tmp_path / "ready")
        assert not await process.end(grace=0.05)
        assert await exit_of(process) == Exit(-signal.SIGKILL, stopped=True)


async def test_cancelling_the_end_of_a_ward_hurries_it(tmp_path: Path) -> None:
    async with opened(SupervisedProcesses()) as processes:
        process = shell(processes, TRAP.format(tmp_path / "ready"))
        await announced(tmp_path / "ready")
        ending = asyncio.ensure_future(process.end(grace=600))
        await asyncio.sleep(0)
        ending.cancel()
        assert await ending
        assert process.ended.done()


async def test_a_second_kill_may_be_sooner_than_the_first(tmp_path: Path) -> None:
    async with opened(SupervisedProcesses()) as processes:
        process = shell(processes, TRAP.format(tmp_path / "ready"))
        await announced(tmp_path / "ready")
        process.kill(600)
        process.kill(0)
        assert (await exit_of(process)).code == -signal.SIGKILL


async def test_what_a_ward_leaves_in_its_group_is_dead_when_its_exit_is_reported(tmp_path: Path) -> None:
    async with opened(SupervisedProcesses()) as processes:
        process = shell(processes, f"sleep 1000 & echo $! > {tmp_path}/pid")
        assert (await exit_of(process)).code == 0
        assert not alive(int((tmp_path / "pid").read_text()))


async def test_what_a_ward_has_detached_is_dead_when_its_exit_is_reported(tmp_path: Path) -> None:
    async with opened(SupervisedProcesses()) as processes:
        nested = f"setsid sh -c 'sleep 1000 & echo $$ $! > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pids; wait'"
        process = shell(processes, f'(setsid sh -c "{nested} & wait" &) & while [ ! -e {tmp_path}/pids ]; do :; done')
        assert (await exit_of(process)).code == 0
        assert not any(alive(int(pid)) for pid in await announced(tmp_path / "pids"))


async def test_what_a_living_ward_has_detached_lives_on_though_another_ends(tmp_path: Path) -> None:
    async with opened(SupervisedProcesses()) as processes:
        detach = f"(setsid sh -c 'echo $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; exec sleep 1000' &)"
        process = shell(processes, f"{detach}; while :; do sleep 1000; done")
        (pid,) = await announced(tmp_path / "pid")
        await exit_of(spawn(processes, "true"))
        await exit_of(spawn(processes, "true"))
        assert alive(int(pid))
        await process.end(0)
        assert not alive(int(pid))


async def test_a_limit_holds_without_the_worker() -> None:
    async with opened(SupervisedProcesses()) as processes:
        process = spawn(processes, "sleep", "1000")
        process.limit(0.01)
        assert await exit_of(process) == Exit(-signal.SIGKILL)


async def test_a_limit_can_be_taken_back(tmp_path: Path) -> None:
    async with opened(SupervisedProcesses()) as processes:
        process = shell(processes, POLITE.format(tmp_path / "ready"))
        process.limit(0.2)
        process.limit(None)
        other = spawn(processes, "sleep", "1000")
        other.limit(0.4)
        assert (await exit_of(other)).code == -signal.SIGKILL
        assert not process.ended.done()


# --- deaths


@on_both_loops
async def test_processes_die_with_a_supervisor_that_is_killed_and_the_next_has_another(tmp_path: Path) -> None:
    async with opened(SupervisedProcesses()) as processes:
        process = shell(processes, f"sleep 1000 & echo $! $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pids; wait")
        pids = await announced(tmp_path / "pids")
        first = processes.supervisor_pid
        os.kill(first, signal.SIGKILL)
        ended = await exit_of(process)
        assert ended.code is None
        assert "supervisor" in ended.text
        await all_dead(*pids)
        assert await exit_of(spawn(processes, "true")) == Exit(0)
        assert processes.supervisor_pid not in {None, first}
        await eventually(lambda: not Path(f"/proc/{first}").exists())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_supervisor_leaves_signals_to_its_worker(number: int) -> None:
    async with opened(SupervisedProcesses()) as processes:
        await exit_of(spawn(processes, "true"))
        pid = processes.supervisor_pid
        os.kill(pid, number)
        assert await exit_of(spawn(processes, "true")) == Exit(0)
        assert processes.supervisor_pid == pid


@pytest.mark.parametrize("fork", ["", "fork"])
async def test_everything_dies_with_a_worker_that_is_killed(tmp_path: Path, fork: str) -> None:
    """Also if a forked copy of the worker keeps its end of the link open."""
    ready = tmp_path / "ready"
    worker = await asyncio.create_subprocess_exec(*script("supervisor_script.py"), ready, fork)
    pids = await announced(ready)
    assert all(alive(int(pid)) for pid in pids)
    worker.kill()
    await worker.wait()
    try:
        await all_dead(*pids)
    finally:
        if fork:
            (copy,) = await announced(tmp_path / "ready.copy")
            os.kill(int(copy), signal.SIGKILL)


async def test_everything_dies_with_worker_and_supervisor_killed_together(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    worker = await asyncio.create_subprocess_exec(*script("supervisor_script.py"), ready, "")
    supervisor, process, *rest = await announced(ready)
    os.kill(int(supervisor), signal.SIGKILL)
    worker.kill()
    await worker.wait()
    await all_dead(supervisor, process)
    for pid in rest:
        os.kill(int(pid), signal.SIGKILL)  # beyond what is promised: nobody was left to do it


# --- elsewhere

ELSEWHERE = """
import os, runpy, sys
del os.waitid, os.pidfd_open
sys.platform = "elsewhere"
runpy.run_path({!r}, run_name="__main__")
"""


async def test_a_system_without_the_help_of_linux_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No prctl, no pidfd, no way to look at the dead without burying them: groups are killed all the same."""
    (tmp_path / "supervisor.py").write_text(ELSEWHERE.format(str(supervised_module._SUPERVISOR)))
    monkeypatch.setattr(supervised_module, "_SUPERVISOR", tmp_path / "supervisor.py")
    async with opened(SupervisedProcesses()) as processes:
        assert await exit_of(shell(processes, "exit 7")) == Exit(7)
        process = shell(processes, f"sleep 1000 & echo $! $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pids; wait")
        pids = await announced(tmp_path / "pids")
        assert not await process.end(0)
        await all_dead(*pids)
        spawn(processes, "sleep", "1000")


def test_children_are_found_without_the_kernel_s_list() -> None:
    assert os.getpid() in supervisor._processes()
    assert supervisor._parent(os.getpid()) == os.getppid()
    assert supervisor._parent(2**22 + 1) is None


# --- closing


@on_both_loops
async def test_closing_kills_what_still_runs_and_may_be_repeated(tmp_path: Path) -> None:
    with nothing_left():
        processes = SupervisedProcesses()
        await processes.close()
        with pytest.raises(RemoteFailure, match="closed"):
            spawn(processes, "true")
        processes = SupervisedProcesses()
        process = shell(processes, TRAP.format(tmp_path / "ready"))
        (pid,) = await announced(tmp_path / "ready")
        await asyncio.gather(processes.close(), processes.close())
        await processes.close()
        assert process.ended.result().code is None
        assert not alive(int(pid))


async def test_many_processes_at_a_time() -> None:
    async with opened(SupervisedProcesses()) as processes:
        many = [shell(processes, f"exit {number}") for number in range(50)]
        assert [(await exit_of(process)).code for process in many] == list(range(50))
