"""The warden and the wards: what is started is killed, whoever dies and however."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from pathlib import Path

import pytest
from executor_support import alive, all_dead, announced, eventually, nothing_left, on_both_loops, opened, script

from duly.runtime.executors import RemoteFailure, Wards, warden
from duly.runtime.executors import wards as wards_module
from duly.runtime.executors.wards import Exit, Ward

ENV = {"PATH": os.environ["PATH"]}
TRAP = 'trap "" TERM; echo $$ > {0}.new; mv {0}.new {0}; while :; do sleep 1000; done'
POLITE = 'trap "exit 5" TERM; echo $$ > {0}.new; mv {0}.new {0}; while :; do sleep 1000 & wait; done'


def spawn(wards: Wards, *argv: str, env: dict[str, str] | None = None, cwd: str = "/", out: int | None = None) -> Ward:
    null = os.open(os.devnull, os.O_WRONLY)
    return wards.spawn(list(argv), ENV if env is None else env, cwd, [os.dup(null) if out is None else out, null])


def shell(wards: Wards, text: str) -> Ward:
    return spawn(wards, "sh", "-c", text)


async def exit_of(ward: Ward) -> Exit:
    async with asyncio.timeout(30):
        return await ward.ended


async def said(wards: Wards, *argv: str, env: dict[str, str] | None = None, cwd: str = "/") -> str:
    reader, writer = os.pipe()
    try:
        await exit_of(spawn(wards, *argv, env=env, cwd=cwd, out=writer))
        return os.read(reader, 65536).decode(errors="surrogateescape")
    finally:
        os.close(reader)


# --- starting


@on_both_loops
async def test_a_program_is_started_and_its_exit_reported() -> None:
    async with opened(Wards()) as wards:
        assert await exit_of(spawn(wards, "true")) == Exit(0)
        assert await exit_of(shell(wards, "exit 7")) == Exit(7)
        killed = await exit_of(shell(wards, "kill -SEGV $$"))
        assert killed == Exit(-signal.SIGSEGV)
        assert killed.text == "killed by signal 11 (SIGSEGV)"


@on_both_loops
async def test_it_gets_the_environment_and_the_directory_it_was_given(tmp_path: Path) -> None:
    async with opened(Wards()) as wards:
        assert await said(wards, "/usr/bin/env", env={"A": "1", "B": "zwölf \udcff"}) == "A=1\nB=zwölf \udcff\n"
        assert await said(wards, "pwd", cwd=str(tmp_path)) == f"{tmp_path}\n"


async def test_a_long_environment_arrives_whole() -> None:
    async with opened(Wards()) as wards:
        env = {**ENV, **{f"V{number}": "x" * 100_000 for number in range(8)}}
        assert await said(wards, "sh", "-c", "echo ${#V7}", env=env) == "100000\n"


async def test_a_program_starts_with_plain_signals_and_no_descriptors_of_ours() -> None:
    before = signal.signal(signal.SIGQUIT, signal.SIG_IGN)  # as a shell does for what it starts in the background
    async with opened(Wards()) as wards:
        try:
            status = await said(wards, "cat", "/proc/self/status")
        finally:
            signal.signal(signal.SIGQUIT, before)
        masks = dict(line.split(":\t") for line in status.splitlines() if line.startswith("Sig"))
        changeable = sum(1 << (number - 1) for number in signal.valid_signals())  # two are the C library's own
        assert [int(masks[name], 16) & changeable for name in ("SigIgn", "SigBlk", "SigCgt")] == [0, 0, 0]
        assert (await said(wards, "ls", "/proc/self/fd")).split() == ["0", "1", "2", "3"]  # 3 is the listing itself
        assert await said(wards, "readlink", "/proc/self/fd/0") == "/dev/null\n"


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
    async with opened(Wards()) as wards:
        trouble = (await exit_of(spawn(wards, *argv, cwd=cwd))).trouble
        assert trouble is not None
        assert (trouble.stage, trouble.errno) == (stage, number)


# --- stopping


@on_both_loops
async def test_a_ward_that_heeds_sigterm_ends_in_its_own_way(tmp_path: Path) -> None:
    async with opened(Wards()) as wards:
        ward = shell(wards, POLITE.format(tmp_path / "ready"))
        await announced(tmp_path / "ready")
        assert not await ward.end(grace=60)
        assert await exit_of(ward) == Exit(5, stopped=True)


@on_both_loops
async def test_a_ward_that_ignores_sigterm_is_killed_after_the_grace(tmp_path: Path) -> None:
    async with opened(Wards()) as wards:
        ward = shell(wards, TRAP.format(tmp_path / "ready"))
        await announced(tmp_path / "ready")
        assert not await ward.end(grace=0.05)
        assert await exit_of(ward) == Exit(-signal.SIGKILL, stopped=True)


async def test_cancelling_the_end_of_a_ward_hurries_it(tmp_path: Path) -> None:
    async with opened(Wards()) as wards:
        ward = shell(wards, TRAP.format(tmp_path / "ready"))
        await announced(tmp_path / "ready")
        ending = asyncio.ensure_future(ward.end(grace=600))
        await asyncio.sleep(0)
        ending.cancel()
        assert await ending
        assert ward.ended.done()


async def test_a_second_kill_may_be_sooner_than_the_first(tmp_path: Path) -> None:
    async with opened(Wards()) as wards:
        ward = shell(wards, TRAP.format(tmp_path / "ready"))
        await announced(tmp_path / "ready")
        ward.kill(600)
        ward.kill(0)
        assert (await exit_of(ward)).code == -signal.SIGKILL


async def test_what_a_ward_leaves_in_its_group_is_dead_when_its_exit_is_reported(tmp_path: Path) -> None:
    async with opened(Wards()) as wards:
        ward = shell(wards, f"sleep 1000 & echo $! > {tmp_path}/pid")
        assert (await exit_of(ward)).code == 0
        assert not alive(int((tmp_path / "pid").read_text()))


async def test_what_a_ward_has_detached_is_dead_when_its_exit_is_reported(tmp_path: Path) -> None:
    async with opened(Wards()) as wards:
        nested = f"setsid sh -c 'sleep 1000 & echo $$ $! > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pids; wait'"
        ward = shell(wards, f'(setsid sh -c "{nested} & wait" &) & while [ ! -e {tmp_path}/pids ]; do :; done')
        assert (await exit_of(ward)).code == 0
        assert not any(alive(int(pid)) for pid in await announced(tmp_path / "pids"))


async def test_what_a_living_ward_has_detached_lives_on_though_another_ends(tmp_path: Path) -> None:
    async with opened(Wards()) as wards:
        detach = f"(setsid sh -c 'echo $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; exec sleep 1000' &)"
        ward = shell(wards, f"{detach}; while :; do sleep 1000; done")
        (pid,) = await announced(tmp_path / "pid")
        await exit_of(spawn(wards, "true"))
        await exit_of(spawn(wards, "true"))
        assert alive(int(pid))
        await ward.end(0)
        assert not alive(int(pid))


async def test_a_limit_holds_without_the_worker() -> None:
    async with opened(Wards()) as wards:
        ward = spawn(wards, "sleep", "1000")
        ward.limit(0.01)
        assert await exit_of(ward) == Exit(-signal.SIGKILL)


async def test_a_limit_can_be_taken_back(tmp_path: Path) -> None:
    async with opened(Wards()) as wards:
        ward = shell(wards, POLITE.format(tmp_path / "ready"))
        ward.limit(0.2)
        ward.limit(None)
        other = spawn(wards, "sleep", "1000")
        other.limit(0.4)
        assert (await exit_of(other)).code == -signal.SIGKILL
        assert not ward.ended.done()


# --- deaths


@on_both_loops
async def test_wards_die_with_a_warden_that_is_killed_and_the_next_has_another(tmp_path: Path) -> None:
    async with opened(Wards()) as wards:
        ward = shell(wards, f"sleep 1000 & echo $! $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pids; wait")
        pids = await announced(tmp_path / "pids")
        first = wards.warden_pid
        os.kill(first, signal.SIGKILL)
        ended = await exit_of(ward)
        assert ended.code is None
        assert "warden" in ended.text
        await all_dead(*pids)
        assert await exit_of(spawn(wards, "true")) == Exit(0)
        assert wards.warden_pid not in {None, first}
        await eventually(lambda: not Path(f"/proc/{first}").exists())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_warden_leaves_signals_to_its_worker(number: int) -> None:
    async with opened(Wards()) as wards:
        await exit_of(spawn(wards, "true"))
        pid = wards.warden_pid
        os.kill(pid, number)
        assert await exit_of(spawn(wards, "true")) == Exit(0)
        assert wards.warden_pid == pid


@pytest.mark.parametrize("fork", ["", "fork"])
async def test_everything_dies_with_a_worker_that_is_killed(tmp_path: Path, fork: str) -> None:
    """Also if a forked copy of the worker keeps its end of the link open."""
    ready = tmp_path / "ready"
    worker = await asyncio.create_subprocess_exec(*script("warden_script.py"), ready, fork)
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


async def test_everything_dies_with_worker_and_warden_killed_together(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    worker = await asyncio.create_subprocess_exec(*script("warden_script.py"), ready, "")
    warden, ward, *rest = await announced(ready)
    os.kill(int(warden), signal.SIGKILL)
    worker.kill()
    await worker.wait()
    await all_dead(warden, ward)
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
    (tmp_path / "warden.py").write_text(ELSEWHERE.format(str(wards_module._WARDEN)))
    monkeypatch.setattr(wards_module, "_WARDEN", tmp_path / "warden.py")
    async with opened(Wards()) as wards:
        assert await exit_of(shell(wards, "exit 7")) == Exit(7)
        ward = shell(wards, f"sleep 1000 & echo $! $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pids; wait")
        pids = await announced(tmp_path / "pids")
        assert not await ward.end(0)
        await all_dead(*pids)
        spawn(wards, "sleep", "1000")


def test_children_are_found_without_the_kernel_s_list() -> None:
    assert os.getpid() in warden._processes()
    assert warden._parent(os.getpid()) == os.getppid()
    assert warden._parent(2**22 + 1) is None


# --- closing


@on_both_loops
async def test_closing_kills_what_still_runs_and_may_be_repeated(tmp_path: Path) -> None:
    with nothing_left():
        wards = Wards()
        await wards.close()
        with pytest.raises(RemoteFailure, match="closed"):
            spawn(wards, "true")
        wards = Wards()
        ward = shell(wards, TRAP.format(tmp_path / "ready"))
        (pid,) = await announced(tmp_path / "ready")
        await asyncio.gather(wards.close(), wards.close())
        await wards.close()
        assert ward.ended.result().code is None
        assert not alive(int(pid))


async def test_many_wards_at_a_time() -> None:
    async with opened(Wards()) as wards:
        many = [shell(wards, f"exit {number}") for number in range(50)]
        assert [(await exit_of(ward)).code for ward in many] == list(range(50))
