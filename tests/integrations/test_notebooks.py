"""Notebooks: a cell that is run again replaces the jobs that it defines; the example works as it is shown."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "notebook.ipynb"
SESSION = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tests.integrations.notebook_session import main; main()"


def run(*cells: str, code: int = 0) -> tuple[list[str], str]:
    """What cells print, and what went wrong."""
    notebook = {"cells": [{"cell_type": "code", "source": [cell]} for cell in cells]}
    return execute(json.dumps(notebook), code)


def execute(notebook: str, code: int = 0) -> tuple[list[str], str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SESSION],
        input=notebook,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == code, done.stderr
    return (json.loads(done.stdout) if code == 0 else []), done.stderr


def test_the_example_prints_what_it_shows():
    text = NOTEBOOK.read_text(encoding="utf-8")
    shown = [
        "".join(line for output in cell["outputs"] for line in output["text"])
        for cell in json.loads(text)["cells"]
        if cell["cell_type"] == "code"
    ]
    printed, _ = execute(text)
    assert printed == shown


HEAD = "from duly import Job, Scheduler, SchedulerConfig\nimport functools\n"


def test_a_job_is_replaced_before_the_start():
    printed, _ = run(
        f"{HEAD}scheduler = Scheduler('memory://')",
        "@scheduler.job\nasync def work() -> int:\n    return 1",
        "@scheduler.job\nasync def work() -> str:\n    return 'new'",
        "async with scheduler:\n    print(await (await work.submit()).result(timeout=30))",
    )
    assert printed[-1] == "new\n"


@pytest.mark.parametrize("registry", ["live", "frozen"])
def test_a_running_scheduler_takes_new_cells_unless_its_jobs_are_frozen(registry):
    cells = (
        f"{HEAD}scheduler = Scheduler('memory://', SchedulerConfig(registry={registry!r}))\nawait scheduler.start()",
        "scheduler.job(name='work')(functools.partial(pow, 2, 3, 5))",
    )
    if registry == "frozen":
        _, errors = run(*cells, code=1)
        assert "SchedulerRunning: registering 'work' while running is refused" in errors
        return
    printed, _ = run(
        *cells,
        "def both(a: int, b: int) -> int:\n    return a + b",
        "work = scheduler.job(name='work')(functools.partial(both, 2))",
        "print(await (await work.submit(b=3)).result(timeout=30))\nawait scheduler.stop()",
    )
    assert printed[-1] == "5\n"


def test_a_loop_that_runs_only_while_something_is_awaited_is_not_waited_for():
    """As at the prompt of IPython."""
    code = (
        f"{HEAD}import asyncio\nscheduler = Scheduler('memory://')\nrunner = asyncio.Runner()\n"
        "runner.run(scheduler.start())\n"
        "@scheduler.job\nasync def work() -> str:\n    return 'new'\n"
        "async def main():\n    print(await (await work.submit()).result(timeout=30))\n    await scheduler.stop()\n"
        "runner.run(main())\nrunner.close()\n"
        "scheduler.sync.start()\n"
        "@scheduler.job\nasync def work() -> str:\n    return 'newer'\n"
        "print(work.sync.submit().result(timeout=30))\nscheduler.sync.stop()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.split() == ["new", "newer"], done.stderr


def test_a_bad_cell_leaves_the_job_as_it_was():
    printed, _ = run(
        f"{HEAD}scheduler = Scheduler('memory://')",
        "@scheduler.job\nasync def work() -> int:\n    return 1",
        "await scheduler.start()",
        "try:\n    @scheduler.job\n    async def work(x: 'Nowhere') -> int:\n        return 2\n"
        "except ValueError as exc:\n    print(exc)",
        "print(await (await scheduler.submit('work')).result(timeout=30))\nawait scheduler.stop()",
    )
    assert "annotations of handler 'work'" in printed[-2]
    assert printed[-1] == "1\n"


def test_a_file_still_must_not_define_a_job_twice(tmp_path):
    (tmp_path / "twice.py").write_text(
        f"{HEAD}scheduler = Scheduler('memory://')\n"
        "for _ in range(2):\n    @scheduler.job\n    async def work() -> int:\n        return 1\n"
    )
    done = subprocess.run([sys.executable, str(tmp_path / "twice.py")], capture_output=True, text=True, check=False)
    assert "DuplicateJob: job 'work' is defined twice" in done.stderr
