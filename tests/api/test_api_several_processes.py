"""Several processes that serve one port: they start together, are replaced one by one, and stop together."""

import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.api.process_support import APP, Process, document, fetch
from tests.cli.cli_support import until

JOB_FILE = 'name = "night"\n[jobs.{}]\ncommand = ["true"]\ncron = "@daily"\n'
SLOW_SECOND = """
import os, time
try:
    os.close(os.open("first", os.O_CREAT | os.O_EXCL))
except FileExistsError:
    while not os.path.exists("go"):
        time.sleep(0.01)
"""


def children(process: Process) -> list[int]:
    return [
        int(pid) for pid in Path(f"/proc/{process.process.pid}/task/{process.process.pid}/children").read_text().split()
    ]


def alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def instances(port: int, wanted: int) -> set[str]:
    """The names of the processes that answer, each call on a connection of its own."""
    found: set[str] = set()

    def all_found() -> bool:
        found.add(document(port, "/health")[1]["instance_id"])
        return len(found) >= wanted

    until(all_found)
    return found


def test_all_processes_serve_the_port_and_share_a_store(start, token):
    process = start("serve", "app:scheduler", "--http", "127.0.0.1:0", "--processes", "3", DULY_NODE_ID="shop")
    port = process.port()
    assert "3 processes" in process.lines[-1]
    assert len(children(process)) == 3
    assert instances(port, 3) == {"shop-1", "shop-2", "shop-3"}
    ids = [document(port, "/jobs", {"payload": "x"}, token=token)[1]["id"] for _ in range(12)]
    assert {document(port, f"/runs/{run}", token=token)[0] for run in ids} == {200}
    pids = children(process)
    process.signal()
    assert process.end() == 0
    assert not any(alive(pid) for pid in pids)


def test_the_number_of_processes_may_be_a_setting(start, token):
    process = start("serve", "app:scheduler", "--http", "127.0.0.1:0", DULY_PROCESSES="2")
    assert len(instances(process.port(), 2)) == 2
    process.signal(signal.SIGINT)
    assert process.end() == 0


def test_a_process_that_is_killed_is_replaced_and_no_call_is_refused_meanwhile(start, token):
    process = start("serve", "app:scheduler", "--http", "127.0.0.1:0", "--processes", "2")
    port = process.port()
    before = children(process)
    os.kill(before[0], signal.SIGKILL)
    for _ in range(20):  # those for the socket of the killed process wait for the new one
        assert document(port, "/livez")[0] == 200
    process.line(rf"process 1 \(pid {before[0]}\) ended with code -9")
    after = until(lambda: len(now := children(process)) == 2 and now)
    assert before[1] in after
    assert len(instances(port, 2)) == 2
    process.signal()
    assert process.end() == 0


def test_the_port_opens_when_all_processes_are_prepared(start, token, tmp_path):
    (tmp_path / "app.py").write_text(SLOW_SECOND + APP)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    process = start("serve", "app:scheduler", "--http", f"127.0.0.1:{port}", "--processes", "2")
    until((tmp_path / "first").exists)
    for _ in range(20):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)
    (tmp_path / "go").touch()
    assert process.port() == port
    assert len(instances(port, 2)) == 2


def test_the_processes_stop_when_their_supervisor_is_killed(start, token):
    process = start("serve", "app:scheduler", "--http", "127.0.0.1:0", "--processes", "2")
    port, pids = process.port(), children(process)
    process.signal(signal.SIGKILL)
    process.end()
    until(lambda: not any(alive(pid) for pid in pids))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


@pytest.mark.parametrize(
    ("arguments", "environment", "words"),
    [
        (("--processes", "2"), {"DULY_URL": "memory://"}, "processes=2: processes cannot share memory://"),
        (("--processes", "1000"), {}, "processes=1000: expected a number from 1 to 256"),
        (("--processes", "2", "--http", ":0"), {}, "no token exists"),
        (("--processes", "2", "--tls-cert", "none.pem", "--tls-key", "none.pem"), {}, "cannot be read"),
    ],
    ids=str,
)
def test_what_cannot_be_served_ends_all_processes(start, arguments, environment, words):
    process = start("serve", "app:scheduler", "--http", "127.0.0.1:0", *arguments, **environment)
    assert process.end() == 1
    assert words in process.process.stderr.read()


def test_a_program_that_cannot_be_loaded_ends_all_processes(start, token, tmp_path):
    (tmp_path / "app.py").write_text("raise RuntimeError('not today')")
    process = start("serve", "app:scheduler", "--http", "127.0.0.1:0", "--processes", "2")
    assert process.end() == 1
    assert "not today" in process.process.stderr.read()


def test_a_port_that_others_share_is_in_use(start, token):
    first = start("serve", "app:scheduler", "--http", "127.0.0.1:0", "--processes", "2")
    port = first.port()
    for more in (("--processes", "2"), ()):
        second = start("serve", "app:scheduler", "--http", f"127.0.0.1:{port}", *more)
        assert second.end() == 1
        assert f"cannot listen on 127.0.0.1:{port}" in second.process.stderr.read()
    assert document(port, "/livez")[0] == 200


def test_a_hang_up_stops_the_processes_of_a_program(start, token):
    process = start("serve", "app:scheduler", "--http", "127.0.0.1:0", "--processes", "2")
    pids = children(process) if process.port() else []
    process.signal(signal.SIGHUP)
    assert process.end() == 0
    assert not any(alive(pid) for pid in pids)


def test_a_hang_up_has_the_processes_of_a_job_file_read_it_again(start, token, tmp_path):
    (tmp_path / "jobs.toml").write_text(JOB_FILE.format("tidy"))
    process = start("serve", "jobs.toml", "--http", "127.0.0.1:0", "--processes", "2")
    pids = children(process) if process.port() else []
    (tmp_path / "jobs.toml").write_text(JOB_FILE.format("sweep"))
    process.signal(signal.SIGHUP)
    for _ in pids:
        process.line("jobs.toml is reloaded")
    assert children(process) == pids
    process.signal()
    assert process.end() == 0


def test_metrics_of_a_process_have_its_number(start, token):
    process = start("serve", "app:scheduler", "--http", "127.0.0.1:0", "--processes", "2")
    port = process.port()

    def scraped() -> set[str]:
        _, _, text = fetch(port, "/metrics/prometheus", token=token)
        assert re.search(rb"^duly_runs\{state=\"pending\"\} ", text, re.MULTILINE), "of the cluster: no number"
        return set(re.findall(r'^process_cpu_seconds_total\{process="(\d)"\}', text.decode(), re.MULTILINE))

    seen: set[str] = set()
    until(lambda: seen.update(scraped()) or seen == {"1", "2"})


@contextmanager
def impatient(folder: Path):
    """Two processes under a supervisor that does not wait long for signs of life."""
    script = (
        "import sys, duly.api.processes as processes\nprocesses._SILENCE = 3.0\nfrom duly.cli import main\n"
        "sys.argv = ['duly', 'serve', 'app:scheduler', '--http', '127.0.0.1:0', '--processes', '2']\nmain()"
    )
    environment = {**os.environ, "DULY_URL": f"sqlite:///{folder}/duly.db", "LOG_FORMAT": "JSON"}
    process = Process.__new__(Process)
    process.lines = []
    process.process = subprocess.Popen(
        [sys.executable, "-c", script], cwd=folder, env=environment, stderr=subprocess.PIPE, text=True
    )
    with process.process:
        try:
            yield process
        finally:
            process.process.kill()


def test_a_process_that_hangs_is_killed_and_replaced(tmp_path, token):
    (tmp_path / "app.py").write_text(APP)
    with impatient(tmp_path) as process:
        port, pids = process.port(), children(process)
        os.kill(pids[1], signal.SIGSTOP)
        process.line(rf"process 2 \(pid {pids[1]}\) did not respond for 3 s: killed")
        process.line("starting another one")
        assert len(instances(port, 2)) == 2
        process.signal()
        assert process.end() == 0
