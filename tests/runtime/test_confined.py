"""Confined commands and handlers, with the limits of the system."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import executor_handlers
import pytest
from executor_support import Invocation, eventually, opened
from msgspec.structs import replace

from duly import Command, ConfigurationError, Confinement, Job, Scheduler, SchedulerConfig
from duly.runtime.executors import CommandExecutor, ProcessExecutor, RemoteFailure

NOT_ROOT = os.geteuid() != 0


def python(code: str, **fields: object) -> Command:
    return Command([sys.executable, "-I", "-c", code], confine=Confinement(**fields))


async def run(command: Command) -> str:
    async with opened(CommandExecutor()) as executor:
        return (await Invocation(command).on(executor))["stdout"].strip()


async def failure(command: Command) -> RemoteFailure:
    async with opened(CommandExecutor()) as executor:
        with pytest.raises(RemoteFailure) as caught:
            await Invocation(command).on(executor)
        return caught.value


# --- commands


async def test_a_command_that_allocates_too_much_fails_and_names_the_limit():
    error = await failure(python("x = bytearray(1 << 30)", memory="256M"))
    assert (error.type_name, error.message) == ("CommandFailed", "exit code 1: it reached its limit memory=256 MiB")
    assert "MemoryError" in error.traceback
    assert await run(python("x = bytearray(1 << 20); print('fits')", memory="256M")) == "fits"


async def test_a_command_that_computes_for_too_long_fails_and_names_the_limit():
    error = await failure(python("while True: pass", cpu_seconds=1))
    assert error.message == "killed by signal 24 (SIGXCPU): it reached its limit cpu_seconds=1"
    stubborn = "import signal; signal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"
    assert (await failure(python(stubborn, cpu_seconds=1))).message.endswith("it reached its limit cpu_seconds=1")


async def test_a_command_that_opens_too_many_files_fails_and_names_the_limit():
    error = await failure(python("files = [open('/dev/null') for _ in range(100)]", open_files=32))
    assert error.message == "exit code 1: it reached its limit open_files=32"


async def test_an_unconfined_command_keeps_the_limits_of_the_node():
    code = "import resource; print(resource.getrlimit(resource.RLIMIT_AS), resource.getrlimit(resource.RLIMIT_CPU))"
    plain = await run(Command([sys.executable, "-I", "-c", code]))
    assert await run(python(code, umask=0o022)) == plain


async def test_the_umask_applies_to_the_files_of_a_command(tmp_path):
    await run(Command(["touch", str(tmp_path / "file")], confine={"umask": 0o077}))
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


async def test_a_command_without_new_privileges_says_so():
    code = "print([line for line in open('/proc/self/status') if line.startswith('NoNewPrivs')][0].split()[1])"
    assert await run(python(code, no_new_privileges=True)) == "1"
    assert await run(python(code, umask=0o022)) == "0"


async def test_a_private_folder_is_empty_and_deleted_afterwards():
    code = "import os, pathlib; t = os.environ['TMPDIR']; print(t, oct(os.stat(t).st_mode & 0o777), os.listdir(t))\n"
    code += "(pathlib.Path(t) / 'deep' / 'er').mkdir(parents=True)"
    async with opened(CommandExecutor()) as executor:
        said = (await Invocation(python(code, private_tmp=True)).on(executor))["stdout"].split(maxsplit=2)
        folder = Path(said[0])
        assert said[1:] == ["0o700", "[]\n"]
        again = (await Invocation(python(code, private_tmp=True)).on(executor))["stdout"].split()[0]
        assert again != str(folder), "each run has its own"
    await eventually(lambda: not folder.exists() and not Path(again).exists())


@pytest.mark.skipif(NOT_ROOT, reason="needs root")
async def test_a_command_runs_as_another_user():
    code = "import os; print(os.getuid(), os.getgid(), os.getgroups(), os.stat(os.environ['TMPDIR']).st_uid)"
    command = Command(["python3", "-I", "-c", code], confine={"user": "nobody", "private_tmp": True}, cwd="/")
    uid, gid, *groups, owner = (await run(command)).split()
    assert (uid, owner) == ("65534", "65534")
    assert gid == "65534"
    assert "0" not in "".join(groups).strip("[]").split(",")


@pytest.mark.skipif(NOT_ROOT, reason="needs root")
async def test_a_command_of_another_user_dies_with_its_node():
    """A change of the user clears the wish to die with the parent: it is made again."""
    code = "import ctypes; n = ctypes.c_int(); ctypes.CDLL(None).prctl(2, ctypes.byref(n)); print(n.value)"
    assert await run(Command(["python3", "-I", "-c", code], confine={"user": "nobody"}, cwd="/")) == "9"


async def test_a_user_that_does_not_exist_is_a_failure_of_the_run():
    error = await failure(Command(["true"], confine={"user": "nobody-of-this-name"}))
    assert error.type_name == "ConfinementRefused"
    assert "there is no user 'nobody-of-this-name'" in error.message


async def test_a_node_does_not_start_with_what_it_cannot_confine():
    scheduler = Scheduler("memory://", SchedulerConfig(allow_commands=True))
    scheduler.add(Job(handler=Command(["true"], confine={"user": "nobody-of-this-name"}), name="backup"))
    with pytest.raises(ConfigurationError, match="job 'backup': user=nobody-of-this-name: there is no user"):
        await scheduler.start()


# --- handlers in processes


async def in_process(handler, confine: Confinement, **payload):
    async with opened(ProcessExecutor()) as executor:
        invocation = Invocation(handler, **payload)
        invocation.handler = replace(invocation.handler, confine=confine)
        return await invocation.on(executor)


async def test_a_handler_that_allocates_too_much_fails_and_names_the_limit():
    with pytest.raises(RemoteFailure) as caught:
        await in_process(executor_handlers.allocate, Confinement(memory="512M"), size=1 << 30)
    assert caught.value.type_name == "MemoryError"
    assert caught.value.message.endswith("it reached its limit memory=512 MiB")
    assert await in_process(executor_handlers.allocate, Confinement(memory="512M"), size=1 << 20) == 1 << 20


async def test_a_handler_that_computes_for_too_long_fails_and_names_the_limit():
    with pytest.raises(RemoteFailure) as caught:
        await in_process(executor_handlers.compute, Confinement(cpu_seconds=2))
    assert caught.value.type_name == "ProcessDied"
    assert caught.value.message.endswith("it reached its limit cpu_seconds=2")


async def test_a_confined_process_serves_one_run():
    async with opened(ProcessExecutor()) as executor:
        pids = []
        for confine in (Confinement(umask=0o077), Confinement(umask=0o077), None, None):
            invocation = Invocation(executor_handlers.pid)
            invocation.handler = replace(invocation.handler, confine=confine)
            pids.append(await invocation.on(executor))
    assert len(set(pids[:3])) == 3
    assert pids[2] == pids[3]


# --- definitions


def test_a_handler_without_a_process_of_its_own_cannot_be_confined():
    async def nothing() -> None: ...

    with pytest.raises(ConfigurationError, match=r"confine needs a process of its own: write executor=\"process\""):
        Job(handler=nothing, confine={"memory": "1G"})
    with pytest.raises(ConfigurationError, match=r"write Command"):
        Job(handler=Command(["true"]), name="x", confine={"memory": "1G"})


def test_an_invalid_limit_names_the_job():
    with pytest.raises(ConfigurationError, match="job 'pid': confine: memory='much'"):
        Job(handler=executor_handlers.pid, executor="process", confine={"memory": "much"})
