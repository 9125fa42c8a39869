"""The processes of a deployment, as they are started, asked over their ports, and stopped."""

import asyncio
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from tests.api.process_support import APP, document, fetch, make_token
from tests.cli.cli_support import run_process, until
from tests.conftest import emptied


def test_a_scheduler_and_a_worker_take_a_job_from_http_to_its_result(start, token):
    scheduler = start("scheduler", "app:scheduler", HTTP_ADDR="127.0.0.1:0", DULY_NODE_ID="boss")
    worker = start("worker", "app:scheduler", WORKER_ID="worker-1", WORKER_HTTP_ADDR="127.0.0.1:0")
    port, worker_port = scheduler.port(), worker.port()
    status, accepted = document(port, "/jobs", {"payload": "over there"}, token=token)
    assert (status, accepted["status"]) == (201, "pending")

    def completed():
        _, job = document(port, f"/jobs/{accepted['id']}", token=token)
        return job["status"] == "completed" and job

    job = until(completed)
    assert (job["worker_id"], job["result"]) == ("worker-1", "over there")

    status, health = document(port, "/health")
    assert (status, health["status"], health["coordinator_health"]) == (200, "healthy", True)
    assert health["instance_id"] == "boss"
    assert isinstance(health["timestamp"], int)
    until(lambda: document(port, "/health")[1]["is_leader"])
    assert document(port, "/leader", token=token)[1] == {
        "current_leader": "boss",
        "is_leader": True,
        "instance_id": "boss",
    }
    assert document(worker_port, "/leader", token=token)[1]["is_leader"] is False
    assert document(worker_port, "/readyz") == (200, {"status": "ready"})
    assert document(worker_port, "/jobs", token=token)[0] == 404, "a worker has health and metrics only"

    _, counts = document(port, "/metrics", token=token)
    assert (counts["completed_jobs"], counts["pending_jobs"], counts["jobs_dispatched"]) == (1, 0, 1)
    nodes = {node["id"]: node for node in document(port, "/nodes", token=token)[1]}
    assert {name: node["roles"] for name, node in nodes.items()} == {"boss": ["scheduler"], "worker-1": ["worker"]}
    assert [node["is_leader"] for node in nodes.values() if node["id"] == "boss"] == [True]

    _, headers, text = fetch(worker_port, "/metrics", token=token, accept="text/plain;version=0.0.4;q=0.5,*/*;q=0.1")
    assert headers["content-type"].startswith("text/plain")
    assert b'duly_runs_ended_total{job="note",outcome="succeeded",queue="default"} 1.0' in text
    assert b"process_cpu_seconds_total" in text
    for process in (scheduler, worker):
        process.signal()
        assert process.end() == 0


@pytest.fixture(params=["sqlite", "redis"])
def store_url(request, tmp_path):
    """A store that several processes share."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/duly.db"
    return emptied(request.getfixturevalue("redis_url"))


def test_what_a_worker_ends_is_seen_on_the_schedulers_stream_until_that_stops(start, store_url, tmp_path):
    token = make_token(tmp_path, url=store_url)
    scheduler = start("scheduler", "app:scheduler", HTTP_ADDR="127.0.0.1:0", DULY_URL=store_url)
    worker = start("worker", "app", WORKER_ID="worker-1", WORKER_HTTP_ADDR="127.0.0.1:0", DULY_URL=store_url)
    port = scheduler.port()
    worker.port()
    with following(port, token) as stream:
        run = document(port, "/jobs", {"payload": "over there"}, token=token)[1]["id"]
        told = until_told(stream, lambda data: data["kind"] == "run.ended")
        assert {(each["kind"], each["node"]) for each in told if each.get("run_id") == run} >= {
            ("run.started", "worker-1"),
            ("run.ended", "worker-1"),
        }
        code, output, errors = run_process("pause", "note", "--url", store_url, folder=tmp_path)
        assert code == 0, errors + output
        until_told(stream, lambda data: data["kind"] == "job.saved" and data["what"] == "paused")
        worker.signal()
        assert worker.end() == 0
        until_told(stream, lambda data: data["kind"] == "node.stopped" and data["node"] == "worker-1")
        scheduler.signal()
        assert stream.read().decode().count("event:") <= 2, "the stream ends, at most with its own last words"
    assert scheduler.end() == 0


@contextmanager
def following(port, token):
    headers = {"authorization": f"Bearer {token}"}
    with urllib.request.urlopen(
        urllib.request.Request(f"http://127.0.0.1:{port}/events", headers=headers), timeout=40
    ) as it:
        yield it


def until_told(stream, wanted):
    """The events up to one that is wanted."""
    told = []
    while not told or not wanted(told[-1]):
        line = stream.readline()
        assert line, f"the stream ended: {told}"
        if line.startswith(b"data: "):
            told.append(json.loads(line.removeprefix(b"data: ")))
    return told


def test_readiness_is_false_while_running_handlers_drain(start, token):
    process = start("run", "app:scheduler", "--http", "127.0.0.1:0")
    port = process.port()
    _, _accepted = document(port, "/jobs", {"handler": "linger", "payload": {"mark": "m"}}, token=token)
    until((process.folder / "m.begun").exists)
    assert document(port, "/readyz") == (200, {"status": "ready"})
    process.signal()
    until(lambda: document(port, "/readyz") == (503, {"status": "draining"}))
    status, health = document(port, "/health")
    assert (status, health["status"], health["draining"]) == (200, "draining", True)
    assert document(port, "/livez")[0] == 200
    assert document(port, "/jobs", {"payload": "still accepted"}, token=token)[0] == 201
    (process.folder / "m.enough").touch()
    assert process.end() == 0


def test_a_second_signal_does_not_wait(start, token):
    process = start("run", "app:scheduler", "--http", "127.0.0.1:0")
    port = process.port()
    document(port, "/jobs", {"handler": "linger", "payload": {"mark": "m"}}, token=token)
    until((process.folder / "m.begun").exists)
    process.signal()
    until(lambda: document(port, "/readyz")[0] == 503)
    process.signal(signal.SIGINT)
    assert process.end() == 0
    assert not (process.folder / "m.enough").exists()


def test_serve_runs_no_node(start, token):
    process = start("serve", "app:scheduler", "--http", "127.0.0.1:0")
    port = process.port()
    assert document(port, "/nodes", token=token) == (200, [])
    assert document(port, "/health")[1]["role"] == "api"
    assert document(port, "/jobs", {"payload": "x"}, token=token)[0] == 201
    process.signal()
    assert process.end() == 0


@pytest.fixture
def taken():
    """A port that somebody else has."""
    with socket.create_server(("127.0.0.1", 0)) as holder:
        yield holder.getsockname()[1]


def test_an_explicit_port_that_is_taken_is_refused(start, token, taken):
    process = start("scheduler", "app:scheduler", HTTP_ADDR=f"127.0.0.1:{taken}")
    assert process.end() == 1
    assert f"cannot listen on 127.0.0.1:{taken}" in process.process.stderr.read()


@contextmanager
def scripted(folder, before: str, *arguments):
    """A `duly` process in which something is said before it begins."""
    (folder / "app.py").write_text(APP)
    script = f"import sys\n{before}\nfrom duly.cli import main\nsys.argv = ['duly', *{arguments!r}]\nmain()"
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=folder,
        env={**os.environ, "DULY_URL": "memory://"},
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def test_a_default_port_that_is_taken_is_a_warning(tmp_path, taken):
    before = f"import duly.cli.run as run; run.WORKER_PORT = {taken}"
    with scripted(tmp_path, before, "worker", "app:scheduler") as process:
        assert "cannot listen on the default address" in process.stderr.readline()
        assert "started on memory://" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=40) == 0


def test_without_the_extra_a_default_port_is_a_warning_and_one_asked_for_is_refused(tmp_path):
    missing = "sys.modules['httptools'] = None"
    with scripted(tmp_path, missing, "worker", "app:scheduler") as process:
        assert "pip install 'duly[server]'" in process.stderr.readline()
        assert "started on memory://" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=40) == 0
    with scripted(tmp_path, missing, "run", "app:scheduler", "--http", "127.0.0.1:0") as process:
        assert "pip install 'duly[server]'" in process.stderr.read()
        assert process.wait(timeout=40) == 1


async def test_an_old_client_that_asks_for_it_keeps_its_connection(start, token):
    port = start("serve", "app:scheduler", "--http", "127.0.0.1:0").port()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(3):
        writer.write(b"GET /livez HTTP/1.0\r\nHost: x\r\nConnection: Keep-Alive\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        assert b"connection: keep-alive" in head
        await reader.readexactly(int(re.search(rb"content-length: (\d+)", head)[1]))
    writer.write(b"GET /livez HTTP/1.0\r\nHost: x\r\n\r\n")
    assert b"connection: close" in await reader.read()
    writer.close()


@pytest.mark.parametrize(
    ("arguments", "environment", "words"),
    [
        (("--http", ":0"), {}, "no token exists"),
        (("--http", "0.0.0.0:0"), {}, "no token exists"),
        ((), {"HTTP_ADDR": ":0"}, "no token exists"),
        (("--http", ":0", "--no-auth"), {}, "where authentication is required"),
        ((), {"HTTP_ADDR": "0.0.0.0:0", "DULY_AUTH": "none"}, "where authentication is required"),
        (("--http", "nowhere"), {}, "invalid address"),
        (("--http", "127.0.0.1:0", "--tls-cert", "x.pem"), {}, "TLS needs both"),
        ((), {"HTTP_ADDR": "127.0.0.1:0", "DULY_AUTH": "maybe"}, "token or none"),
    ],
)
def test_what_would_be_open_to_all_does_not_start(tmp_path, arguments, environment, words):
    (tmp_path / "app.py").write_text(APP)
    code, _, errors = run_process("serve", "app", *arguments, folder=tmp_path, DULY_URL="memory://", **environment)
    assert code == 1
    assert words in errors


def test_all_interfaces_are_served_with_tokens(start, token):
    process = start("serve", "app:scheduler", "--http", ":0")
    port = process.port()
    assert document(port, "/jobs")[0] == 401
    assert document(port, "/jobs", token=token)[0] == 200


def test_without_authentication_on_loopback_everybody_there_is_let_in(start):
    process = start("serve", "app:scheduler", "--http", "127.0.0.1:0", "--no-auth")
    assert document(process.port(), "/jobs", {"payload": "x"})[0] == 201
    assert any("no authentication" in line for line in process.lines)


def test_without_any_token_loopback_says_how_to_make_one(start):
    process = start("serve", "app:scheduler", "--http", "127.0.0.1:0")
    status, problem = document(process.port(), "/jobs", {"payload": "x"})
    assert status == 401
    assert "duly token create" in problem["detail"]
    assert any("duly token create" in line for line in process.lines)


def test_https_is_served_with_a_certificate(start, token, tmp_path):
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    process = start(
        "serve", "app", "--http", "127.0.0.1:0", "--tls-cert", "cert.pem", DULY_TLS_KEY=str(tmp_path / "key.pem")
    )
    import ssl

    context = ssl.create_default_context()
    authority.configure_trust(context)
    assert document(process.port(), "/health", scheme="https", context=context)[0] == 200


@pytest.mark.servers("redis")
def test_a_store_that_is_away_is_503_and_not_ready_but_alive(start, tmp_path):
    from duly.testing.servers import redis_server

    with redis_server() as server:
        url = server.url
        code, output, errors = run_process("token", "create", "--role", "admin", "--url", url, folder=tmp_path)
        assert code == 0, errors
        token = output.strip()
        process = start("serve", "app:scheduler", "--http", "127.0.0.1:0", DULY_URL=url)
        port = process.port()
        assert document(port, "/jobs", {"payload": "x"}, token=token)[0] == 201
    _status, headers, body = until(
        lambda: (answer := fetch(port, "/jobs", {"payload": "x"}, token=token))[0] == 503 and answer
    )
    assert headers["retry-after"] == "1"
    assert headers["content-type"] == "application/problem+json"
    assert json.loads(body)["type"] == "urn:duly:problem:store-away"
    assert document(port, "/readyz")[0] == 503
    assert document(port, "/health")[1]["status"] == "unhealthy"
    assert document(port, "/livez")[0] == 200


async def test_many_calls_at_once_on_one_connection_after_another(start, token):
    process = start("serve", "app:scheduler", "--http", "127.0.0.1:0")
    port = process.port()
    answers = await asyncio.gather(
        *[asyncio.to_thread(document, port, "/jobs", {"payload": str(n)}, token=token) for n in range(40)]
    )
    assert {status for status, _ in answers} == {201}
    assert len({accepted["id"] for _, accepted in answers}) == 40


# --- TLS files that cannot be used


def tls_files(folder):
    """Files of every kind that a server may be given by mistake."""
    authority = trustme.CA()
    one, other = authority.issue_cert("localhost"), authority.issue_cert("localhost")
    one.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    one.private_key_pem.write_to_path(folder / "key.pem")
    other.private_key_pem.write_to_path(folder / "other.pem")
    (folder / "garbage.pem").write_text("not PEM at all")
    (folder / "broken.pem").write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    key = serialization.load_pem_private_key(one.private_key_pem.bytes(), None)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
    (folder / "locked.pem").write_bytes(key.private_bytes(*form, serialization.BestAvailableEncryption(b"secret")))
    (folder / "folder.pem").mkdir()


@pytest.mark.parametrize(
    ("cert", "key", "words"),
    [
        ("missing.pem", "key.pem", r"certificate missing\.pem cannot be read: No such file"),
        ("cert.pem", "missing.pem", r"private key missing\.pem cannot be read: No such file"),
        ("folder.pem", "key.pem", r"certificate folder\.pem cannot be read: Is a directory"),
        ("garbage.pem", "key.pem", r"garbage\.pem contains no certificate"),
        ("cert.pem", "garbage.pem", r"garbage\.pem contains no private key"),
        ("key.pem", "key.pem", r"key\.pem contains no certificate"),
        ("broken.pem", "key.pem", r"broken\.pem and key\.pem cannot be used"),
        ("cert.pem", "other.pem", r"other\.pem is not the key of the certificate cert\.pem"),
        ("cert.pem", "locked.pem", r"locked\.pem is encrypted"),
    ],
)
def test_tls_files_that_cannot_be_used_are_named_and_nothing_starts(tmp_path, cert, key, words):
    (tmp_path / "app.py").write_text(APP)
    tls_files(tmp_path)
    arguments = ("serve", "app", "--http", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key)
    code, _, errors = run_process(*arguments, folder=tmp_path, DULY_URL="memory://")
    assert code == 1
    assert re.search(words, errors), errors
    assert "Traceback" not in errors


# --- many connections


def resident(process) -> int:
    """Megabytes of memory that a process has."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) // 1024


@pytest.fixture
def many_files():
    """Room for more than a thousand sockets in this process, and in those that it starts."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[0] < 4096:
        resource.setrlimit(resource.RLIMIT_NOFILE, (4096, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_thousand_idle_sockets_and_half_sent_requests_take_little_and_hold_up_nobody(start, token, many_files):
    server = start("serve", "app:scheduler", "--http", "127.0.0.1:0")
    port = server.port()
    assert document(port, "/jobs", token=token)[0] == 200
    before = resident(server.process)
    sockets = []
    try:
        for number in range(1500):
            sock = socket.create_connection(("127.0.0.1", port), timeout=20)
            sockets.append(sock)
            if number % 3 == 1:
                sock.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"a" * 20_000)
            elif number % 3 == 2:
                sock.sendall(
                    b"POST /runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900000\r\n\r\n" + b"a" * 30_000
                )
        for _ in range(20):
            assert document(port, "/livez")[0] == 200
            assert document(port, "/jobs", token=token)[0] == 200
        assert resident(server.process) - before < 80
    finally:
        for sock in sockets:
            sock.close()
    until(lambda: document(port, "/readyz")[0] == 200)
    server.signal()
    assert server.end() == 0


def test_heads_without_end_do_not_fill_the_memory(start):
    server = start("serve", "app:scheduler", "--http", "127.0.0.1:0")
    port = server.port()
    assert document(port, "/livez")[0] == 200
    before = resident(server.process)
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
            sock.sendall(b"GET /livez HTTP/1.1\r\nX: ")
            with suppress(OSError):
                for _ in range(200):
                    sock.sendall(b"a" * 65_536)
    assert document(port, "/livez")[0] == 200
    assert resident(server.process) - before < 40


def test_limits_are_settings(start, token, tmp_path):
    (tmp_path / "duly.toml").write_text('max_headers = 8\nheader_timeout = "500ms"\n')
    server = start("serve", "app:scheduler", "--http", "127.0.0.1:0", DULY_MAX_REQUEST_LINE="256", DULY_MAX_STREAMS="0")
    port = server.port()
    assert document(port, f"/jobs?name={'a' * 300}", token=token)[0] == 414
    assert document(port, "/events", token=token)[0] == 503
    assert document(port, "/livez", **{f"x{number}": "a" for number in range(10)})[0] == 431
    with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
        sock.sendall(b"GET /livez")
        assert sock.recv(4096).startswith(b"HTTP/1.1 408 ")
    rows = {row["setting"]: row for row in json.loads(run_process("config", "show", "--json", folder=tmp_path)[1])}
    assert (rows["max_headers"]["value"], rows["max_headers"]["source"]) == (8, "duly.toml")
    assert (rows["header_timeout"]["value"], rows["body_timeout"]["value"]) == (0.5, 30.0)
    bad = run_process("serve", "app", "--http", "127.0.0.1:0", folder=tmp_path, DULY_BODY_TIMEOUT="soon")
    assert bad[0] == 1
    assert "DULY_BODY_TIMEOUT" in bad[2]


def test_the_default_handler_can_be_set_by_a_variable(start, token, tmp_path):
    (tmp_path / "plain.py").write_text(APP.replace('default_handler="note", ', ""))
    without = start("serve", "plain:scheduler", "--http", "127.0.0.1:0")
    status, problem = document(without.port(), "/jobs", {"payload": "x"}, token=token)
    assert (status, "name one" in problem["detail"]) == (422, True)
    for variable in ("DULY_DEFAULT_HANDLER", "DEFAULT_HANDLER"):
        named = start("serve", "plain:scheduler", "--http", "127.0.0.1:0", **{variable: "note"})
        status, accepted = document(named.port(), "/jobs", {"payload": "x"}, token=token)
        assert (status, accepted["status"]) == (201, "pending")
