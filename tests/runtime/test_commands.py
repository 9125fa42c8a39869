"""The command executor: programs, their environment, output, exits and ends."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from executor_support import Invocation, alive, all_dead, announced, nothing_left, on_both_loops, opened, script
from hypothesis import example, given
from hypothesis import strategies as st

from duly.runtime.command import Command
from duly.runtime.executors import CommandExecutor, RemoteFailure, SupervisedProcesses
from duly.runtime.executors.output import fit, text_of

HANG = "sleep 1000 & setsid sleep 1000 & echo $$ $! > {0}.new; mv {0}.new {0}; trap '' TERM; while :; do wait; done"


async def run(executor: CommandExecutor, command: Command, **payload: Any) -> Any:
    return await Invocation(command, **payload).on(executor)


async def failure(executor: CommandExecutor, command: Command, **payload: Any) -> RemoteFailure:
    with pytest.raises(RemoteFailure) as caught:
        await run(executor, command, **payload)
    return caught.value


def shell(text: str) -> Command:
    return Command(text, shell=True)


# --- exits


@on_both_loops
async def test_success_is_exit_code_zero_with_what_was_said() -> None:
    async with opened(CommandExecutor()) as executor:
        value = await run(executor, shell("echo out; echo err >&2"))
        assert value == {"exit_code": 0, "stdout": "out\n", "stderr": "err\n"}


@on_both_loops
async def test_another_exit_code_is_a_failure_with_the_last_of_stderr() -> None:
    async with opened(CommandExecutor()) as executor:
        error = await failure(executor, shell("echo oh no >&2; exit 3"))
        assert (error.type_name, error.message, error.traceback) == ("CommandFailed", "exit code 3", "oh no\n")
        assert "builtins.Exception" in error.lineage


async def test_a_signal_is_named() -> None:
    async with opened(CommandExecutor()) as executor:
        error = await failure(executor, shell("kill -9 $$"))
        assert (error.type_name, error.message) == ("CommandFailed", "killed by signal 9 (SIGKILL)")
        assert (await failure(executor, shell("kill -40 $$"))).message == "killed by signal 40"


@pytest.mark.parametrize(
    ("command", "kind", "text"),
    [
        (Command(["no-such-program"]), "CommandNotFound", "'no-such-program' not found"),
        (Command(["/no/such/program"]), "CommandNotFound", "'/no/such/program' not found"),
        (Command(["/etc/passwd"]), "CommandNotExecutable", "'/etc/passwd' is not executable"),
        (Command(["/etc"]), "CommandNotExecutable", "'/etc' is not executable"),
        (Command(["true"], cwd="/no/such/place"), "DirectoryNotFound", "no such directory: '/no/such/place'"),
        (Command(["true"], env={"A": "nul\0"}), "CommandFailed", "embedded null byte"),
        (Command(["no-such-\udcff"]), "CommandNotFound", "not found"),
        (Command(["no-such-\ud800"]), "CommandFailed", "surrogates not allowed"),
        (Command(["true"], cwd="/no/\udcff"), "DirectoryNotFound", "no such directory"),
        (Command(["true"], env={"A=B": "C"}), "CommandFailed", "illegal environment variable name"),
        (Command(["true"], env={"PATH": "/nowhere"}), "CommandNotFound", "'true' not found"),
    ],
)
async def test_what_cannot_be_started_is_a_failure_that_says_why(command: Command, kind: str, text: str) -> None:
    async with opened(CommandExecutor()) as executor:
        error = await failure(executor, command)
        assert error.type_name == kind
        assert text in error.message


async def test_a_file_without_a_first_line_to_say_how_is_not_executable(tmp_path: Path) -> None:
    (tmp_path / "program").write_text("echo hello")
    (tmp_path / "program").chmod(0o755)
    async with opened(CommandExecutor()) as executor:
        error = await failure(executor, Command(["./program"], cwd=tmp_path))
        assert error.type_name == "CommandNotExecutable"


async def test_a_payload_that_does_not_fit_the_environment_is_a_failure_that_says_so() -> None:
    async with opened(CommandExecutor()) as executor:
        error = await failure(executor, Command(["true"]), text="x" * 200_000)
        assert error.message == "arguments and environment are too long; the payload has 200011 bytes"


# --- what a command is given


async def test_the_environment_is_exactly_what_is_documented(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTED_SECRET", "hunter2")
    async with opened(CommandExecutor()) as executor:
        command = Command(["env"], env={"GREETING": "hello", "DULY_FENCE": "7"})
        value = await run(executor, command, to="ada", words=["ü", 1])
        run_id = Invocation(command).live.claim.run.id
        assert dict(line.split("=", 1) for line in value["stdout"].splitlines()) == {
            "PATH": os.environ["PATH"],
            "GREETING": "hello",
            "DULY_RUN_ID": run_id,
            "DULY_JOB": "report",
            "DULY_ATTEMPT": "2",
            "DULY_DUE": "2026-03-01T02:30:00.000000Z",
            "DULY_FENCE": "42",
            "DULY_IDEMPOTENCY_KEY": run_id,
            "DULY_PAYLOAD": '{"to":"ada","words":["ü",1]}',
        }


async def test_a_path_of_its_own_wins(tmp_path: Path) -> None:
    (tmp_path / "greet").write_text("#!/bin/sh\necho hello from here")
    (tmp_path / "greet").chmod(0o755)
    async with opened(CommandExecutor()) as executor:
        value = await run(executor, Command(["greet"], env={"PATH": str(tmp_path)}))
        assert value["stdout"] == "hello from here\n"


async def test_the_directory_is_the_given_one_or_the_worker_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    async with opened(CommandExecutor()) as executor:
        assert (await run(executor, Command(["pwd"])))["stdout"] == f"{tmp_path}/here\n"
        assert (await run(executor, Command(["pwd"], cwd=tmp_path)))["stdout"] == f"{tmp_path}\n"


async def test_words_are_never_expanded_unless_a_shell_is_asked_for() -> None:
    async with opened(CommandExecutor()) as executor:
        words = ["a b", "$HOME", "*", "; exit 3", ""]
        value = await run(executor, Command(["printf", r"%s\n", *words]))
        assert value["stdout"].split("\n") == [*words, ""]
        assert (await run(executor, shell("echo $((1 + 2)) | cat")))["stdout"] == "3\n"


async def test_there_is_nothing_to_read_from_stdin() -> None:
    async with opened(CommandExecutor()) as executor:
        assert (await run(executor, Command(["cat"])))["stdout"] == ""


# --- output


@on_both_loops
async def test_of_a_big_output_the_end_is_kept() -> None:
    async with opened(CommandExecutor(max_result_bytes=1_000_000)) as executor:
        value = await run(executor, shell("seq 1 1000000; seq 1 100000 >&2"))
        assert len(value["stdout"]) <= 65536
        assert value["stdout"].startswith("[")
        assert value["stdout"].endswith("999999\n1000000\n")
        assert value["stderr"].endswith("99999\n100000\n")


async def test_the_value_fits_into_the_result() -> None:
    async with opened(CommandExecutor(max_result_bytes=1000)) as executor:
        value = await run(executor, shell(r"printf '\001%.0s' $(seq 3000); seq 1 3000 >&2"))
        assert 900 < len(msgspec.json.encode(value)) <= 1000
        assert value["stderr"].endswith("2999\n3000\n")
    async with opened(CommandExecutor(max_result_bytes=10)) as executor:
        assert await run(executor, shell("echo long")) == {"exit_code": 0, "stdout": "", "stderr": ""}


async def test_output_that_is_no_text_becomes_text() -> None:
    async with opened(CommandExecutor()) as executor:
        value = await run(executor, shell(r"printf 'a\377b\000c \303\274'"))
        assert value["stdout"] == "a\ufffdb\ufffdc ü"


async def test_output_after_the_last_reader_is_gone_ends_the_command() -> None:
    """Programs are started with SIGPIPE as it is by default, though Python ignores it."""
    async with opened(CommandExecutor()) as executor:
        assert (await run(executor, shell("yes | head -n 1")))["stdout"] == "y\n"


@given(st.binary(max_size=60), st.integers(1, 1000))
@example(b"\0" * 17, 1)
def test_a_cut_text_says_so_and_is_no_longer_than_what_was_kept(kept: bytes, cut: int) -> None:
    text = text_of(kept, cut)
    assert text.startswith("[")
    assert len(text) <= max(len(kept), len("[1060 bytes cut]\n"))


def test_a_cut_never_leaves_half_a_character() -> None:
    kept = "ü".encode() * 50
    for start in range(4):
        assert "\ufffd" not in text_of(kept[start:], 1)


@given(st.text(max_size=200), st.text(max_size=200), st.integers(0, 300))
def test_two_texts_share_the_room_there_is(stdout: str, stderr: str, room: int) -> None:
    kept = fit(stdout, stderr, room)
    size = sum(len(msgspec.json.encode(text)) - 2 for text in kept)
    assert size <= room
    assert stdout.endswith(kept[0])
    assert stderr.endswith(kept[1])
    if kept != (stdout, stderr):
        assert size > room - 12  # no more was cut than one character's worth on each side


# --- ends


@on_both_loops
async def test_cancelling_kills_a_command_and_all_that_it_started(tmp_path: Path) -> None:
    async with opened(CommandExecutor(grace=0.05)) as executor:
        task = Invocation(shell(HANG.format(tmp_path / "ready"))).start(executor)
        pids = await announced(tmp_path / "ready")
        assert all(alive(int(pid)) for pid in pids)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not any(alive(int(pid)) for pid in pids)


async def test_a_command_that_heeds_sigterm_may_clean_up(tmp_path: Path) -> None:
    async with opened(CommandExecutor(grace=600)) as executor:
        polite = f"trap 'echo bye > {tmp_path}/bye; exit 0' TERM; touch {tmp_path}/ready; while :; do sleep 0.01; done"
        task = Invocation(shell(f"echo $$ > {tmp_path}/pid; {polite}")).start(executor)
        await announced(tmp_path / "pid")
        while not (tmp_path / "ready").exists():  # noqa: ASYNC110  # another process writes it
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await announced(tmp_path / "bye") == ["bye"]


async def test_an_exit_that_is_known_outlives_a_cancellation() -> None:
    async with opened(CommandExecutor()) as executor:
        task = Invocation(shell("exit 0")).start(executor)
        await asyncio.sleep(0)
        (process,) = executor._running
        await asyncio.wait({process.ended})
        task.cancel()
        assert (await task)["exit_code"] == 0
        assert not task.cancelling()


async def test_the_supervisor_stops_a_command_if_the_worker_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duly.runtime.executors.commands._BACKSTOP", 0.01)
    async with opened(CommandExecutor()) as executor:
        error = await failure(executor, Command(["sleep", "1000"]), timeout=0.01)
        assert error.message == "killed by signal 9 (SIGKILL)"


@pytest.mark.parametrize("days", [24, 25, 366])
async def test_a_timeout_of_weeks_leaves_the_supervisor_alive(days: int) -> None:
    async with opened(CommandExecutor()) as executor:
        assert (await run(executor, shell("sleep 0.05"), timeout=days * 86400.0))["exit_code"] == 0
        assert (await run(executor, shell("true")))["exit_code"] == 0


async def test_what_a_command_leaves_in_the_background_ends_with_it(tmp_path: Path) -> None:
    async with opened(CommandExecutor()) as executor:
        value = await run(executor, shell(f"sleep 1000 & echo $! > {tmp_path}/pid; echo done"))
        assert value["stdout"] == "done\n"
        assert not alive(int((await announced(tmp_path / "pid"))[0]))


@on_both_loops
async def test_when_the_supervisor_is_killed_commands_fail_and_the_next_one_works(tmp_path: Path) -> None:
    async with opened(SupervisedProcesses()) as processes:
        executor = CommandExecutor(processes)
        task = Invocation(shell(f"echo $$ > {tmp_path}/pid; exec sleep 1000")).start(executor)
        pids = await announced(tmp_path / "pid")
        os.kill(processes.supervisor_pid, signal.SIGKILL)
        with pytest.raises(RemoteFailure, match="supervisor") as caught:
            await task
        assert caught.value.type_name == "ExecutorFailed"
        await all_dead(*pids)
        assert (await run(executor, Command(["true"])))["exit_code"] == 0
        await executor.close()


@on_both_loops
async def test_closing_while_busy_ends_the_command(tmp_path: Path) -> None:
    with nothing_left():
        executor = CommandExecutor(grace=0.05)
        task = Invocation(shell(HANG.format(tmp_path / "ready"))).start(executor)
        pids = await announced(tmp_path / "ready")
        await asyncio.gather(executor.close(), executor.close())
        with pytest.raises(RemoteFailure, match="closed while the command ran"):
            await task
        assert not any(alive(int(pid)) for pid in pids)
        with pytest.raises(RemoteFailure, match="closed"):
            await run(executor, Command(["true"]))


@on_both_loops
async def test_many_commands_at_a_time_leave_nothing_behind() -> None:
    async with opened(CommandExecutor()) as executor:
        values = await asyncio.gather(*(run(executor, Command(["echo", str(number)])) for number in range(40)))
        assert [value["stdout"] for value in values] == [f"{number}\n" for number in range(40)]


async def test_a_worker_that_is_killed_takes_its_commands_along(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    worker = await asyncio.create_subprocess_exec(*script("command_script.py"), ready, HANG.format(ready))
    pids = await announced(ready)
    assert all(alive(int(pid)) for pid in pids)
    worker.kill()
    await worker.wait()
    await all_dead(*pids)
