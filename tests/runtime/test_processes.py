"""The process executor: handlers in child interpreters, which can be killed and never hurt the worker."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import executor_handlers as handlers
import pytest
from executor_support import (
    HERE,
    PATIENCE,
    Invocation,
    alive,
    all_dead,
    announce,
    announced,
    children,
    descriptors,
    eventually,
    nothing_left,
    on_both_loops,
    opened,
    script,
)

from duly.errors import GiveUp, Retry
from duly.model import Progress
from duly.runtime.active_runs import Unbegun
from duly.runtime.executors import ProcessExecutor, RemoteFailure, SupervisedProcesses, importable

STUBBORN = {"grace": 0.05}


async def call(executor: ProcessExecutor, target: Callable[..., Any], **payload: Any) -> Any:
    return await Invocation(target, **payload).on(executor)


async def failure(executor: ProcessExecutor, target: Callable[..., Any], **payload: Any) -> RemoteFailure:
    with pytest.raises(RemoteFailure) as caught:
        await call(executor, target, **payload)
    return caught.value


# --- values and exceptions


@on_both_loops
async def test_values_travel_there_and_back() -> None:
    async with opened(ProcessExecutor()) as executor:
        assert await call(executor, handlers.add, a=1, b=2) == 3
        assert await call(executor, handlers.add, a=1) == 11
        value = {"a": [1, 2.5, None, True, "ü"], "b": {}}
        assert await call(executor, handlers.echo, value=value) == value
        assert await call(executor, handlers.echo) is None


async def test_arguments_have_the_types_of_their_annotations() -> None:
    async with opened(ProcessExecutor()) as executor:
        key = "6f1c3c1e-5c5c-4c5e-9f43-0c8c9f8f7a11"
        order = {"id": key, "total": "12.30", "at": "2026-03-01T00:00:00Z"}
        value = await call(
            executor,
            handlers.typed,
            when="2026-03-01T00:00:00Z",
            key=key,
            price="0.10",
            point={"x": 1, "y": 2},
            order=order,
            colour="red",
            other="2026-03-01",
        )
        assert value["kinds"] == ["datetime", "UUID", "Decimal", "Point", "Order", "Decimal", "Colour", "date"]
        assert value["next"] == "2026-03-02T00:00:00Z"
        assert (value["point"], value["order"], value["colour"]) == ({"x": 1, "y": 2}, order, "red")
        person = {"name": "Ada", "born": "1815-12-10"}
        assert await call(executor, handlers.older, person=person) == {"name": "Ada", "born": "1815-12-09"}


async def test_an_async_handler_runs_in_a_process_too() -> None:
    async with opened(ProcessExecutor()) as executor:
        assert await call(executor, handlers.add_later, a=1, b=2) == 3
        assert await call(executor, handlers.add_later, a=3, b=4) == 7


async def test_a_binder_and_an_encoder_can_be_chosen() -> None:
    async with opened(ProcessExecutor(binder=f"{__name__}:bind_twice", encoder=f"{__name__}:encode_twice")) as executor:
        assert await call(executor, handlers.add, a=1, b=2) == [6, 6]


def bind_twice(function: Callable[..., Any], payload: bytes) -> dict[str, Any]:
    return {name: 2 * value for name, value in json.loads(payload).items()}


def encode_twice(value: Any) -> bytes:
    return json.dumps([value, value]).encode()


async def test_an_exception_comes_back_with_its_name_text_traceback_and_lineage() -> None:
    async with opened(ProcessExecutor()) as executor:
        error = await failure(executor, handlers.refuse)
        assert (error.type_name, error.message) == ("Refused", "not today")
        assert 'in refuse\n    raise Refused("not today")' in error.traceback
        assert "serving.py" not in error.traceback
        names = ["executor_handlers.Refused", *(f"builtins.{c.__name__}" for c in ValueError.__mro__)]
        assert error.lineage == tuple(names)


async def test_exceptions_that_are_hard_to_tell_are_told() -> None:
    async with opened(ProcessExecutor()) as executor:
        assert "text raised RuntimeError" in (await failure(executor, handlers.unspeakable)).message
        assert (await failure(executor, handlers.odd_text)).message == "name \\udcff\\u0000"
        assert (await failure(executor, handlers.add, a="one")).type_name == "ValidationError"


async def test_retry_and_give_up_come_back_as_they_are() -> None:
    async with opened(ProcessExecutor()) as executor:
        for target, payload, after in [
            (handlers.retry, {}, None),
            (handlers.retry, {"after": 60}, 60.0),
            (handlers.retry_in_a_while, {}, timedelta(minutes=2).total_seconds()),
        ]:
            with pytest.raises(Retry) as asked:
                await call(executor, target, **payload)
            assert asked.value.after == after
        with pytest.raises(GiveUp) as gave_up:
            await call(executor, handlers.give_up)
        assert gave_up.value.reason == "no use"
        assert "in give_up" in gave_up.value.__cause__.traceback


@pytest.mark.parametrize(
    ("target", "payload", "text"),
    [
        (handlers.unencodable, {}, "object cannot be turned into JSON"),
        (handlers.not_a_number, {}, "NaN"),
        (handlers.big, {"size": 2000}, "2002 bytes, more than 1000"),
    ],
)
async def test_a_value_that_cannot_be_kept_is_a_failure_of_its_own_kind(
    target: Callable[..., Any], payload: dict[str, Any], text: str
) -> None:
    async with opened(ProcessExecutor(max_result_bytes=1000)) as executor:
        error = await failure(executor, target, **payload)
        assert error.type_name == "ResultError"
        assert text in error.message


async def test_a_big_value_arrives_whole() -> None:
    async with opened(ProcessExecutor(max_result_bytes=10_000_000)) as executor:
        assert len(await call(executor, handlers.big, size=5_000_000)) == 5_000_000
        assert await call(executor, handlers.echo, value="x" * 250_000) == "x" * 250_000


# --- handlers that go wrong


async def test_exits_and_interrupts_are_failures_and_the_child_goes_on() -> None:
    async with opened(ProcessExecutor()) as executor:
        first = await call(executor, handlers.pid)
        left = await failure(executor, handlers.leave)
        assert (left.type_name, left.message) == ("SystemExit", "3")
        assert "builtins.Exception" not in left.lineage
        assert (await failure(executor, handlers.interrupt)).type_name == "KeyboardInterrupt"
        assert (await failure(executor, handlers.recurse)).type_name == "RecursionError"
        assert await call(executor, handlers.pid) == first


@on_both_loops
async def test_a_child_that_dies_is_a_failure_and_is_replaced() -> None:
    async with opened(ProcessExecutor()) as executor:
        first = await call(executor, handlers.pid)
        died = await failure(executor, handlers.vanish, code=7)
        assert (died.type_name, died.message) == ("ProcessDied", "exit code 7")
        assert "builtins.Exception" in died.lineage
        assert (await failure(executor, handlers.vanish, code=0)).message == "exit code 0"
        assert await call(executor, handlers.pid) != first


async def test_a_crash_of_the_interpreter_is_a_failure(capfd: pytest.CaptureFixture[str]) -> None:
    async with opened(ProcessExecutor()) as executor:
        died = await failure(executor, handlers.crash)
        assert (died.type_name, died.message) == ("ProcessDied", "killed by signal 11 (SIGSEGV)")
        assert "in crash" in capfd.readouterr().err


async def test_a_handler_that_closes_the_link_has_died() -> None:
    async with opened(ProcessExecutor()) as executor:
        assert (await failure(executor, handlers.close_link)).type_name == "ProcessDied"
        assert await call(executor, handlers.add, a=1) == 11


async def test_a_handler_that_forks_answers_once() -> None:
    async with opened(ProcessExecutor()) as executor:
        first = await call(executor, handlers.fork_and_return)
        assert await call(executor, handlers.pid) == first


# --- the context


async def test_the_context_knows_the_run() -> None:
    async with opened(ProcessExecutor()) as executor:
        invocation = Invocation(handlers.facts, timeout=90)
        run = invocation.live.claim.run
        assert await invocation.on(executor) == {
            "run_id": run.id,
            "job": "report",
            "attempt": 2,
            "due": "2026-03-01T02:30:00Z",
            "deadline": "2026-03-01T02:31:30Z",
            "fence": 42,
            "key": run.id,
            "cancelled": False,
            "current": run.id,
        }


@on_both_loops
async def test_progress_reaches_the_live_run(tmp_path: Path) -> None:
    async with opened(ProcessExecutor()) as executor:
        ready, go = tmp_path / "ready", tmp_path / "go"
        invocation = Invocation(handlers.report, ready=str(ready), go=str(go))
        task = invocation.start(executor)
        await eventually(lambda: invocation.live.progress)
        assert invocation.live.progress == Progress(1, 4, "a quarter")
        announce(go, "on")
        await task


async def test_a_flood_of_progress_drowns_nobody() -> None:
    async with opened(ProcessExecutor()) as executor:
        invocation = Invocation(handlers.report_every_step, steps=100_000)
        assert await invocation.on(executor) == 100_000
        assert invocation.live.progress is not None


async def test_a_handler_sees_that_its_run_was_cancelled(tmp_path: Path) -> None:
    """By the flags of the live run alone, before anybody cancels the call."""
    async with opened(ProcessExecutor()) as executor:
        ready, seen = tmp_path / "ready", tmp_path / "seen"
        invocation = Invocation(handlers.until_cancelled, ready=str(ready), seen=str(seen))
        task = invocation.start(executor)
        await announced(ready)
        invocation.live.cancelled = True
        assert await task == "stopped"
        again = Invocation(handlers.facts)
        assert (await again.on(executor))["cancelled"] is False


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        ("timed_out", {"RunCancelled"}),
        ("released", {"RunCancelled"}),
        ("lost", {"ClaimLost", "RunCancelled"}),  # to stop as well; the news may come between the two questions
        ("untrusted", {"ClaimLost"}),
    ],
)
async def test_check_raises_when_the_run_is_to_stop_or_no_longer_ours(
    tmp_path: Path, flag: str, expected: set[str]
) -> None:
    async with opened(ProcessExecutor()) as executor:
        invocation = Invocation(handlers.until_check_fails, ready=str(tmp_path / "ready"))
        task = invocation.start(executor)
        await announced(tmp_path / "ready")
        setattr(invocation.live, flag, True)
        with pytest.raises(RemoteFailure) as caught:
            await task
        assert caught.value.type_name in expected


async def test_a_handler_that_is_to_stop_already_is_not_called(tmp_path: Path) -> None:
    async with opened(ProcessExecutor()) as executor:
        ready = tmp_path / "ready"
        invocation = Invocation(handlers.until_cancelled, ready=str(ready), seen=str(tmp_path / "seen"))
        invocation.live.released = True
        with pytest.raises(Unbegun):
            await invocation.on(executor)
        assert not ready.exists()


async def test_a_handler_whose_claim_expires_while_its_code_is_loaded_is_not_called(tmp_path: Path) -> None:
    async with opened(ProcessExecutor()) as executor:
        ready = tmp_path / "ready"
        invocation = Invocation(handlers.until_cancelled, ready=str(ready), seen=str(tmp_path / "seen"))
        task = invocation.start(executor)
        await asyncio.sleep(0)  # the call is on its way to a child that is yet to start
        invocation.live.untrusted = True
        with pytest.raises(Unbegun):
            await task
        assert not ready.exists()


async def test_there_is_no_transaction_in_a_process() -> None:
    async with opened(ProcessExecutor()) as executor:
        error = await failure(executor, handlers.transact)
        assert error.type_name == "DulyError"
        assert "not available in a process" in error.message


async def test_log_records_reach_the_loggers_of_the_worker(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with opened(ProcessExecutor()) as executor:
        await call(executor, handlers.log)
    records = [record for record in caplog.records if record.name != "asyncio"]
    assert [(r.name, r.levelname) for r in records] == [
        ("app.part", "WARNING"),
        ("duly.job.report", "INFO"),
        ("app", "ERROR"),
    ]
    warning, hello, failed = records
    assert warning.getMessage() == "3 things"
    assert (warning.colour, warning.funcName, hello.run_id, hello.attempt) == (
        "red",
        "log",
        Invocation(handlers.pid).live.claim.run.id,
        2,
    )
    assert "Refused: not today" in failed.getMessage()
    assert warning.process != os.getpid()


async def test_printing_goes_where_the_worker_prints(capfd: pytest.CaptureFixture[str]) -> None:
    async with opened(ProcessExecutor()) as executor:
        await call(executor, handlers.say, text="good morning")
        captured = capfd.readouterr()
        assert (captured.out, captured.err) == ("good morning\n", "good morning\n")


async def test_a_child_is_like_the_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with opened(ProcessExecutor()) as executor:
        await call(executor, handlers.move, to="/")
        assert await call(executor, handlers.surroundings) == {
            "path": sys.path,
            "argv": sys.argv,
            "cwd": str(tmp_path),
            "session": True,
            "threads": 1,
            "link_is_private": True,
        }


# --- stopping


@on_both_loops
async def test_cancelling_kills_the_handler_and_all_that_it_started(tmp_path: Path) -> None:
    async with opened(ProcessExecutor(**STUBBORN)) as executor:
        task = Invocation(handlers.spawn_and_hang, ready=str(tmp_path / "ready")).start(executor)
        handler, *rest = await announced(tmp_path / "ready")
        assert all(alive(int(pid)) for pid in (handler, *rest))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not any(alive(int(pid)) for pid in (handler, *rest))
        assert await call(executor, handlers.add, a=1) == 11


async def test_a_timeout_around_the_call_kills_the_handler(tmp_path: Path) -> None:
    async with opened(ProcessExecutor(**STUBBORN)) as executor:
        invocation = Invocation(handlers.hang, ready=str(tmp_path / "ready"))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(None) as limit:
                task = invocation.start(executor)
                (pid,) = await announced(tmp_path / "ready")
                limit.reschedule(0)
                await task
        assert not alive(int(pid))


async def test_being_cancelled_again_hurries_the_end(tmp_path: Path) -> None:
    async with opened(ProcessExecutor(grace=600)) as executor:
        task = Invocation(handlers.hang, ready=str(tmp_path / "ready")).start(executor)
        (pid,) = await announced(tmp_path / "ready")
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not alive(int(pid))


async def test_a_handler_that_looks_can_end_within_the_grace(tmp_path: Path) -> None:
    async with opened(ProcessExecutor(grace=600)) as executor:
        ready, seen = tmp_path / "ready", tmp_path / "seen"
        task = Invocation(handlers.until_cancelled, ready=str(ready), seen=str(seen)).start(executor)
        (pid,) = await announced(ready)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await announced(seen) == ["cancelled"]
        assert not alive(int(pid))


async def test_a_stop_is_not_taken_back_while_the_handler_cleans_up(tmp_path: Path) -> None:
    """The regular look at the live runs goes on meanwhile."""
    async with opened(ProcessExecutor(grace=600)) as executor:
        ready, go = tmp_path / "ready", tmp_path / "go"
        task = Invocation(handlers.report, ready=str(ready), go=str(go)).start(executor)
        await announced(ready)
        task.cancel()
        await asyncio.sleep(0)
        executor._look_again()
        announce(go, "on")
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_an_async_handler_is_cancelled_in_its_process(tmp_path: Path) -> None:
    async with opened(ProcessExecutor(grace=600)) as executor:
        ready, cleaned = tmp_path / "ready", tmp_path / "cleaned"
        task = Invocation(handlers.hang_async, ready=str(ready), cleaned=str(cleaned)).start(executor)
        (pid,) = await announced(ready)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await announced(cleaned) == ["yes"]
        assert not alive(int(pid))


@on_both_loops
async def test_a_value_that_has_arrived_outlives_a_cancellation() -> None:
    async with opened(ProcessExecutor()) as executor:
        first = await call(executor, handlers.pid)
        task = Invocation(handlers.pid).start(executor)
        await asyncio.sleep(0)
        (child,) = executor._busy
        await asyncio.wait({child._answer})
        task.cancel()
        assert await task == first
        assert not task.cancelling()
        assert await call(executor, handlers.pid) == first


async def test_a_value_that_crosses_a_cancellation_is_not_lost(tmp_path: Path) -> None:
    """The child has answered, the worker has not read it yet and cancels: both are told apart from a late answer."""
    async with opened(ProcessExecutor(grace=600)) as executor:
        await call(executor, handlers.pid)
        ready = tmp_path / "ready"
        task = Invocation(handlers.report, ready=str(ready), go=str(tmp_path)).start(executor)
        await asyncio.sleep(0)
        (child,) = executor._busy
        wait_until_answered(child)
        task.cancel()
        assert await task is None
        assert ready.exists()
        assert child.process.ended.done()


def wait_until_answered(child: Any) -> None:
    """Block the event loop until the child's answer lies in the socket, unread."""
    deadline = time.monotonic() + PATIENCE
    said = b""
    while b"ended" not in said:
        assert time.monotonic() < deadline
        with suppress(BlockingIOError):
            said = child._channel._sock.recv(65536, socket.MSG_PEEK)


async def test_a_cancellation_before_the_child_is_up_leaves_nothing_behind() -> None:
    async with opened(ProcessExecutor(**STUBBORN)) as executor:
        for turns in range(4):
            task = Invocation(handlers.pid).start(executor)
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert not executor._children


async def test_the_supervisor_stops_a_handler_if_the_worker_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duly.runtime.executors.children._BACKSTOP", 1.0)
    async with opened(ProcessExecutor()) as executor:
        first = await call(executor, handlers.pid, timeout=60)
        died = await failure(executor, handlers.hang, ready=str(tmp_path / "ready"), timeout=0.01)
        assert died.message == "killed by signal 9 (SIGKILL)"
        assert not alive(first)


# --- the pool


async def test_a_child_is_used_again() -> None:
    async with opened(ProcessExecutor()) as executor:
        assert len({await call(executor, handlers.pid) for _ in range(5)}) == 1


async def test_twenty_calls_at_a_time() -> None:
    async with opened(ProcessExecutor()) as executor:
        calls = [call(executor, handlers.add, a=number, b=100) for number in range(20)]
        assert await asyncio.gather(*calls) == [number + 100 for number in range(20)]
        assert len(executor._children) <= 20


async def test_idle_children_end_after_a_while() -> None:
    async with opened(ProcessExecutor(idle_seconds=0.01)) as executor:
        first = await call(executor, handlers.pid)
        await eventually(lambda: not executor._children)
        assert not alive(first)
        assert await call(executor, handlers.pid) != first


async def test_an_idle_child_that_was_killed_costs_nobody_a_run() -> None:
    async with opened(ProcessExecutor()) as executor:
        first = await call(executor, handlers.pid)
        os.kill(first, signal.SIGKILL)
        assert await call(executor, handlers.pid) != first


async def test_what_a_handler_leaves_behind_ends_with_the_run() -> None:
    async with opened(ProcessExecutor(**STUBBORN)) as executor:
        pids = await call(executor, handlers.spawn_and_return)
        assert not any(alive(pid) for pid in pids)
        assert await call(executor, handlers.pid) not in pids


@on_both_loops
async def test_when_the_supervisor_is_killed_calls_fail_and_the_next_one_works(tmp_path: Path) -> None:
    async with opened(SupervisedProcesses()) as processes:
        executor = ProcessExecutor(processes)
        task = Invocation(handlers.hang, ready=str(tmp_path / "ready")).start(executor)
        (pid,) = await announced(tmp_path / "ready")
        os.kill(processes.supervisor_pid, signal.SIGKILL)
        with pytest.raises(RemoteFailure, match="supervisor") as caught:
            await task
        assert caught.value.type_name == "ExecutorFailed"
        await all_dead(pid)
        assert await call(executor, handlers.add, a=1) == 11
        await executor.close()


async def test_nothing_leaks_from_call_to_call() -> None:
    async with opened(ProcessExecutor()) as executor:
        await call(executor, handlers.pid)
        before = descriptors(), children()
        for _ in range(20):
            await call(executor, handlers.pid)
            await failure(executor, handlers.refuse)
        await failure(executor, handlers.vanish, code=1)
        await call(executor, handlers.pid)
        assert (descriptors(), children()) == before


async def test_the_first_failure_to_start_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(ProcessExecutor()) as executor:
        monkeypatch.setattr("duly.runtime.executors.children._CHILD", HERE / "no-such-file.py")
        error = await failure(executor, handlers.pid)
        assert error.type_name == "ExecutorFailed"
        assert error.message == "the child interpreter ended before it took the call: exit code 2"


# --- closing


@on_both_loops
async def test_closing_while_busy_ends_the_handler(tmp_path: Path) -> None:
    with nothing_left():
        executor = ProcessExecutor(**STUBBORN)
        task = Invocation(handlers.spawn_and_hang, ready=str(tmp_path / "ready")).start(executor)
        pids = await announced(tmp_path / "ready")
        await call(executor, handlers.pid)
        await asyncio.gather(executor.close(), executor.close())
        with pytest.raises(RemoteFailure, match="closed while the handler ran"):
            await task
        assert not any(alive(int(pid)) for pid in pids)
        await executor.close()
        with pytest.raises(RemoteFailure, match="closed"):
            await call(executor, handlers.pid)


async def test_closing_what_was_never_used_does_nothing() -> None:
    with nothing_left():
        await ProcessExecutor().close()


async def test_shared_processes_stay_open() -> None:
    async with opened(SupervisedProcesses()) as processes:
        one, other = ProcessExecutor(processes), ProcessExecutor(processes)
        await call(one, handlers.pid)
        supervisor = processes.supervisor_pid
        await one.close()
        assert await call(other, handlers.add, a=1) == 11
        assert processes.supervisor_pid == supervisor
        await other.close()


# --- finding the handler


async def test_what_a_decorator_left_behind_leads_to_the_function() -> None:
    async with opened(ProcessExecutor()) as executor:
        assert await call(executor, handlers.wrapped.function) == "inside"
        assert await call(executor, handlers.Tool.shared) == "static"
        assert await call(executor, handlers.Tool.of_class) == "Tool"


async def test_a_name_that_leads_elsewhere_by_now_is_refused() -> None:
    async with opened(ProcessExecutor()) as executor:
        error = await failure(executor, handlers.first_shadowed)
        assert error.type_name == "HandlerNotFound"
        assert "executor_handlers:shadowed" in error.message
        assert await call(executor, handlers.shadowed) == "second"


def test_importable_says_why_not() -> None:
    def local() -> None: ...

    assert importable(handlers.add) is None
    assert importable(handlers.wrapped.function) is None
    assert importable(handlers.Tool.shared) is None
    assert "inside a function" in importable(local)
    assert "lambda" in importable(lambda: None)
    assert "bound to an object" in importable(handlers.Tool().bound)
    assert "no name" in importable(partial(handlers.add, 1))
    assert "no name" in importable(handlers.Handle(handlers.add))


def test_importable_refuses_what_was_typed_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers.echo, "__module__", "__main__")
    main = sys.modules["__main__"]
    monkeypatch.setattr(main, "__spec__", None)
    monkeypatch.setattr(main, "__file__", "<stdin>", raising=False)
    assert "interactive" in importable(handlers.echo)


@pytest.mark.parametrize("way", ["script", "module", "directory"])
async def test_handlers_of_the_main_script_are_found_without_running_it(tmp_path: Path, way: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(HERE)}
    where = {
        "script": script("main_script.py"),
        "module": [sys.executable, "-m", "main_script"],
        "directory": [sys.executable, str(_directory_with_main(tmp_path))],
    }
    worker = await asyncio.create_subprocess_exec(
        *where[way], stdout=asyncio.subprocess.PIPE, env=environment, cwd=str(HERE)
    )
    out, _ = await worker.communicate()
    assert json.loads(out) == {
        "value": 42,
        "type": "Unhappy",
        "lineage": "__main__.Unhappy",
        "starts": 1,
    }


def _directory_with_main(tmp_path: Path) -> Path:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__main__.py").write_text((HERE / "main_script.py").read_text())
    return tmp_path / "app"


async def test_a_main_script_without_its_guard_is_told_so() -> None:
    worker = await asyncio.create_subprocess_exec(*script("unguarded_script.py"), stdout=asyncio.subprocess.PIPE)
    out, _ = await worker.communicate()
    assert '`if __name__ == "__main__":`' in out.decode()
    assert worker.returncode == 0


# --- the death of a worker


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
async def test_the_death_of_a_worker_is_the_death_of_its_handlers(tmp_path: Path, number: int) -> None:
    ready = tmp_path / "ready"
    worker = await asyncio.create_subprocess_exec(*script("worker_script.py"), ready)
    supervisor, *pids = await announced(Path(f"{ready}.all"))
    assert all(alive(int(pid)) for pid in (supervisor, *pids))
    worker.send_signal(number)
    assert await worker.wait() == -number
    await all_dead(supervisor, *pids)
