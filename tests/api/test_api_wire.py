"""What a client can do to a server with bytes alone: too many, too slow, too few, in the wrong order."""

import asyncio
import json
import random
import socket
import ssl
import threading
import time
from contextlib import closing, suppress

import pytest
import trustme
import uvloop
from tests.api.api_server import served
from tests.api.wire import Wire, ask, head, request

from duly.api import ApiSettings, connections
from duly.api.config import ConnectionLimits
from duly.errors import ConfigurationError

QUICK = ConnectionLimits(header_timeout=0.6, body_timeout=0.6, idle_timeout=1.5)


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def loop(request):
    """The event loops that a process may run on."""
    return request.param


@pytest.fixture
def service(loop):
    with served("memory://", run=loop) as (port, token):
        yield port, token


@pytest.fixture
def quick(loop):
    """A server of little patience."""
    with served("memory://", connections=QUICK, run=loop) as (port, token):
        yield port, token


def runs(port, token) -> list[dict]:
    return ask(port, "GET", "/runs", token).json


# --- too much


def test_a_header_without_an_end_is_refused_and_not_kept(service):
    port, _ = service
    with Wire(port) as wire:
        wire.send(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Long: ")
        sent = 0
        with suppress(OSError):
            while sent < 64 << 20:
                wire.send(b"a" * 65536)
                sent += 65536
        assert sent < 8 << 20, "megabytes were taken"
    assert ask(port, "GET", "/livez").status == 200


@pytest.mark.parametrize("pieces", [1, 7, 500])
def test_a_head_that_is_too_large_is_431_however_it_is_cut(service, pieces):
    port, _ = service
    data = head("GET", "/livez", None, *(f"X-{number}: {'a' * 900}" for number in range(40)))
    size = -(-len(data) // pieces)
    with Wire(port) as wire:
        with suppress(OSError):
            for start in range(0, len(data), size):
                wire.send(data[start : start + size])
        answer = wire.receive()
        if answer is not None:
            assert (answer.status, answer.problem["type"]) == (431, "urn:duly:problem:too-large")
        assert wire.closed()


def test_too_many_headers_are_431(service):
    port, _ = service
    with Wire(port) as wire:
        wire.send(head("GET", "/livez", None, *(f"X-{number}: a" for number in range(101))))
        assert wire.receive().status == 431
        assert wire.closed()
    with Wire(port) as wire:
        wire.send(head("GET", "/livez", None, *(f"X-{number}: a" for number in range(90))))
        assert wire.receive().status == 200


def test_a_request_line_that_is_too_long_is_414(service):
    port, token = service
    answer = ask(port, "GET", f"/runs?queue={'a' * 8200}", token)
    assert (answer.status, answer.problem["type"]) == (414, "urn:duly:problem:too-large")
    assert ask(port, "GET", f"/runs?cursor={'a' * 400}", token).status == 422


def test_requests_sent_ahead_are_answered_in_order_up_to_a_bound(service):
    port, token = service
    with Wire(port) as wire:
        wire.send(b"".join(request("GET", f"/jobs/job{number}", token) for number in range(20)))
        for number in range(20):
            answer = wire.receive()
            assert answer.status == 404
            assert f"'job{number}'" in answer.problem["detail"]
    with Wire(port) as wire:
        wire.send(b"".join(request("GET", f"/jobs/job{number}", token) for number in range(500)))
        answers = 0
        while wire.receive() is not None:
            answers += 1
        assert answers <= 40
    assert ask(port, "GET", "/livez").status == 200


def test_a_body_with_more_framing_than_content_is_refused(service):
    port, token = service
    with Wire(port) as wire:
        wire.send(head("POST", "/runs", token, "Content-Type: application/json", "Transfer-Encoding: chunked"))
        wire.send(b"1;")
        with suppress(OSError):
            for _ in range(1000):
                wire.send(b"x" * 4096)
        answer = wire.receive()
        assert answer is None or answer.status == 400
        assert wire.closed()


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # the beginning of TLS
        b"HELO there\r\n\r\n",
        b"GET /livez HTTP/9.9\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost localhost\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nX: a\x00b\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /runs HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"POST /runs HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        b"POST /runs HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /runs HTTP/1.1\r\nTransfer-Encoding: gzip, chunked, identity\r\n\r\n0\r\n\r\n",
        b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
    ids=str,
)
def test_what_is_not_http_is_a_problem_and_never_a_fault(service, data):
    port, _ = service
    with Wire(port) as wire:
        wire.send(data)
        wire.sock.shutdown(socket.SHUT_WR)
        answer = wire.receive()
        if answer is not None:
            assert 400 <= answer.status < 500
            assert answer.problem
    assert ask(port, "GET", "/livez").status == 200


def test_answers_on_one_connection_come_at_once(service):
    """Head and body are two writes: if the second waited for an acknowledgement, each call would take 40 ms."""
    port, token = service
    with Wire(port) as wire:
        begun = time.monotonic()
        for _ in range(200):
            wire.send(request("GET", "/runs", token))
            assert wire.receive().status == 200
        assert time.monotonic() - begun < 6


# --- in parts


def post(token, payload: str, *headers: str) -> bytes:
    return request("POST", "/runs", token, json.dumps({"payload": payload}).encode(), *headers)


def test_requests_are_read_alike_wherever_they_are_cut(service):
    port, token = service
    data = post(token, "a") + request("GET", "/livez") + post(token, "b")
    for at in range(1, len(data), 3):
        with Wire(port) as wire:
            wire.send(data[:at])
            wire.send(data[at:])
            assert [wire.receive().status for _ in range(3)] == [201, 200, 201]


def test_large_bodies_one_behind_the_other_are_answered_in_order(service):
    port, token = service
    data = b"".join(post(token, letter * 200_000) for letter in "abcdef")
    with Wire(port) as wire:
        sending = threading.Thread(target=wire.send, args=(data,))
        sending.start()
        ids = [wire.receive().json["id"] for _ in "abcdef"]
        sending.join()
    found = [ask(port, "GET", f"/runs/{run}", token).json["payload"]["payload"][0] for run in ids]
    assert "".join(found) == "abcdef"


def test_a_chunked_body_is_put_together(service):
    port, token = service
    framing = ("Content-Type: application/json", "Transfer-Encoding: chunked")
    with Wire(port) as wire:
        wire.send(head("POST", "/runs", token, *framing))
        for part in (b'{"payl', b'oad": "', b"x" * 5000, b'"}'):
            wire.send(b"%x\r\n%b\r\n" % (len(part), part))
        wire.send(b"0\r\n\r\n")
        run = wire.receive().json["id"]
        wire.send(request("GET", f"/runs/{run}", token))
        assert wire.receive().json["payload"] == {"payload": "x" * 5000}


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_large_is_413_and_the_connection_is_closed(loop, chunked):
    with (
        served("memory://", settings=ApiSettings(max_body_bytes=100_000), run=loop) as (port, token),
        Wire(port) as wire,
    ):
        framing = "Transfer-Encoding: chunked" if chunked else "Content-Length: 100001"
        wire.send(head("POST", "/runs", token, "Content-Type: application/json", framing))
        with suppress(OSError):
            for _ in range(300 if chunked else 0):
                wire.send(b"1000\r\n%b\r\n" % (b"x" * 4096))
        answer = wire.receive()
        if answer is not None:  # None: the rest of the body arrived after the end of the connection
            assert (answer.status, answer.headers["connection"]) == (413, "close")
        assert wire.closed()
        assert runs(port, token) == []


def test_a_client_may_ask_before_it_sends_its_body(service):
    port, token = service
    body = b'{"payload": 1}'
    with Wire(port) as wire:
        wire.send(
            head(
                "POST",
                "/runs",
                token,
                "Content-Type: application/json",
                "Expect: 100-continue",
                f"Content-Length: {len(body)}",
            )
        )
        assert wire.receive().status == 100
        wire.send(body)
        assert wire.receive().status == 201
    with Wire(port) as wire:
        wire.send(head("POST", "/runs", None, "Expect: 100-continue", "Content-Length: 5"))
        assert wire.receive().status == 401, "nobody wants the body"


def test_responses_without_a_body_leave_the_connection_in_order(service):
    port, token = service
    job = json.dumps({"name": "beat", "handler": "note", "schedule": "@daily"}).encode()
    with Wire(port) as wire:
        wire.send(request("POST", "/jobs", token, job))
        assert wire.receive().status == 201
        wire.send(head("HEAD", "/jobs/beat", token))
        wire.send(head("DELETE", "/jobs/beat", token))
        wire.send(request("GET", "/livez"))
        answers = b""
        while not answers.endswith(b'{"status":"alive"}'):
            answers += wire.sock.recv(65536)
    first, second, third = answers.split(b"HTTP/1.1 ")[1:]
    assert first.startswith(b"200")
    assert first.endswith(b"\r\n\r\n")
    assert b"content-length: 0" not in first
    assert second.startswith(b"204")
    assert b"content-length" not in second
    assert third.startswith(b"200")


@pytest.mark.parametrize("target", ["http://localhost/livez", "/livez?", "/livez?a=b", "/%6civez", "/livez#here"])
def test_a_target_may_be_written_in_several_ways(service, target):
    port, _ = service
    assert ask(port, "GET", target).status == 200


def test_an_old_client_gets_a_stream_without_chunks(service):
    port, token = service
    with Wire(port) as wire:
        wire.send(head("GET", "/events", token).replace(b"HTTP/1.1", b"HTTP/1.0"))
        received = b""
        while b"retry: 2000" not in received:
            received += wire.sock.recv(4096)
    assert b"transfer-encoding" not in received
    assert b"connection: close" in received
    assert received.endswith(b"\r\n\r\nretry: 2000\n\n")


def test_bytes_that_were_changed_at_random_never_break_the_server(service, caplog):
    port, token = service
    dice = random.Random(14)
    whole = post(token, "x", "Transfer-Encoding: chunked") + post(token, "y", "Expect: 100-continue") + post(token, "z")
    for _ in range(200):
        data = bytearray(whole)
        for _ in range(dice.randint(1, 4)):
            at = dice.randrange(len(data))
            data[at : at + dice.randint(0, 3)] = dice.randbytes(dice.randint(0, 3))
        with Wire(port) as wire:
            with suppress(OSError):
                wire.send(bytes(data))
                wire.sock.shutdown(socket.SHUT_WR)
            while (answer := wire.receive()) is not None:
                assert answer.status in {100, 200, 201} or answer.status < 500, answer
    assert ask(port, "GET", "/livez").status == 200
    assert not [record for record in caplog.records if record.levelname in {"ERROR", "WARNING"}]


def test_a_header_with_a_line_break_is_never_sent():
    with pytest.raises(ValueError, match="line break"):
        connections._lines([(b"location", b"/runs/1\r\nset-cookie: a=b")])


# --- too slow


def test_a_connection_that_says_nothing_is_closed(quick):
    port, _ = quick
    with Wire(port) as wire:
        assert wire.receive() is None


def test_a_head_that_does_not_arrive_in_time_is_408(quick):
    port, token = quick
    data = head("GET", "/runs", token)
    with Wire(port) as wire:
        begun = time.monotonic()
        with suppress(OSError):
            for sign in data:  # a byte now and then is not enough
                wire.send(bytes([sign]))
                time.sleep(0.05)
        answer = wire.receive()
        assert time.monotonic() - begun < 10
        if answer is not None:
            assert (answer.status, answer.problem["type"]) == (408, "urn:duly:problem:too-slow")
        assert wire.closed()


def test_a_body_that_does_not_arrive_in_time_is_408_and_is_not_executed(quick):
    port, token = quick
    body = json.dumps({"payload": "slow"}).encode()
    with Wire(port) as wire:
        wire.send(head("POST", "/runs", token, "Content-Type: application/json", f"Content-Length: {len(body)}"))
        with suppress(OSError):
            for sign in body:
                time.sleep(0.1)
                wire.send(bytes([sign]))
        answer = wire.receive()
        if answer is not None:
            assert (answer.status, answer.problem["type"]) == (408, "urn:duly:problem:too-slow")
        assert wire.closed()
    assert runs(port, token) == []


def test_a_connection_without_further_requests_is_closed_after_a_while(quick):
    port, _ = quick
    with Wire(port) as wire:
        wire.send(request("GET", "/livez"))
        assert wire.receive().status == 200
        time.sleep(0.8)  # longer than a head may take: idle is something else
        wire.send(request("GET", "/livez"))
        assert wire.receive().status == 200
        assert wire.receive() is None


def test_a_rest_of_a_body_that_nobody_waits_for_is_not_waited_for_long(quick):
    port, _ = quick
    with Wire(port) as wire:
        wire.send(head("POST", "/runs", None, "Content-Type: application/json", "Content-Length: 100000"))
        assert wire.receive().status == 401
        assert wire.closed()


def test_slow_clients_hold_up_nobody_else(quick):
    port, token = quick
    slow = [Wire(port) for _ in range(50)]
    for wire in slow:
        wire.send(head("POST", "/runs", token, "Content-Type: application/json", "Content-Length: 1000"))
    begun = time.monotonic()
    assert ask(port, "GET", "/livez").status == 200
    assert time.monotonic() - begun < 5
    for wire in slow:
        answer = wire.receive()
        assert answer is None or answer.status == 408
        wire.sock.close()


def test_an_answer_that_nobody_reads_is_given_up(monkeypatch):
    monkeypatch.setattr(connections, "_UNREAD", 0.5)
    with served("memory://") as (port, token):
        for number in range(200):
            text = json.dumps({"name": f"job{number}", "handler": "note", "schedule": "@daily", "payload": "x" * 9000})
            assert ask(port, "POST", "/jobs", token, text.encode()).status == 201
        received = 0
        with closing(socket.socket()) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.connect(("127.0.0.1", port))
            sock.sendall(request("GET", "/jobs?limit=1000", token) * 10)
            time.sleep(3.0)
            sock.settimeout(10)
            with suppress(ConnectionError):
                while data := sock.recv(1 << 20):
                    received += len(data)
        assert received < 18_000_000, "not all of what was asked for"
        assert ask(port, "GET", "/livez").status == 200


# --- too few


@pytest.mark.parametrize("framing", ["Content-Length: 30", "Transfer-Encoding: chunked"])
@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("POST", "/jobs/beat/trigger"),
        ("POST", "/jobs/beat/pause"),
        ("POST", "/jobs/beat/resume"),
        ("DELETE", "/jobs/beat"),
        ("POST", "/queues/mail/pause"),
        ("POST", "/runs"),
        ("POST", "/jobs"),
    ],
)
def test_a_request_that_is_cut_off_is_not_executed(service, method, target, framing):
    port, token = service
    beat = {"name": "beat", "handler": "note", "schedule": "@daily", "payload": "as it says"}
    assert ask(port, "POST", "/jobs", token, json.dumps(beat).encode()).status == 201
    before = [ask(port, "GET", each, token).body for each in ("/runs", "/jobs", "/audit")]
    with Wire(port) as wire:
        wire.send(head(method, target, token, "Content-Type: application/json", framing))
        wire.sock.shutdown(socket.SHUT_WR)
        assert wire.receive() is None
    with Wire(port) as wire:
        part = b'{"payload"' if "Length" in framing else b"a\r\n{"
        wire.send(head(method, target, token, "Content-Type: application/json", framing) + part)
        wire.sock.shutdown(socket.SHUT_WR)
        assert wire.receive() is None
    assert [ask(port, "GET", each, token).body for each in ("/runs", "/jobs", "/audit")] == before


# --- in the wrong order


def test_a_trailer_does_not_authenticate(service):
    port, token = service
    framing = ("Content-Type: application/json", "Transfer-Encoding: chunked", "Trailer: Authorization")
    chunked = head("POST", "/runs", None, *framing)
    body = b"e\r\n" + b'{"payload": 1}' + b"\r\n0\r\n" + f"Authorization: Bearer {token}\r\n\r\n".encode()
    with Wire(port) as wire:
        wire.send(chunked + body)
        assert wire.receive().status == 401
    with Wire(port) as wire:  # and does not take the place of a header
        wire.send(head("POST", "/runs", token, *framing) + b"e\r\n" + b'{"payload": 1}' + b"\r\n0\r\n")
        wire.send(b"Authorization: Bearer x\r\nContent-Type: text/plain\r\n\r\n")
        assert wire.receive().status == 201
    assert len(runs(port, token)) == 1


@pytest.mark.parametrize(
    "garbage",
    [b"HELO\r\n\r\n", b"\x00\x01", b"GET /livez HTTP/1.1\r\nno header\r\n\r\n", b"POST /runs HTTP/1.1\r\nX"],
    ids=str,
)
def test_what_is_wrong_with_a_later_request_does_not_touch_an_earlier_one(quick, garbage):
    port, token = quick
    with Wire(port) as wire:
        wire.send(request("POST", "/runs", token, b'{"payload": 1}') + garbage)
        answer = wire.receive()
        assert answer.status == 201
        assert [run["id"] for run in runs(port, token)] == [answer.json["id"]]
        last = wire.receive()
        assert last is None or last.status in {400, 408}
        assert wire.closed()


def test_trailers_are_bounded(service):
    port, token = service
    with Wire(port) as wire:
        wire.send(head("POST", "/runs", token, "Content-Type: application/json", "Transfer-Encoding: chunked"))
        with suppress(OSError):
            wire.send(b"0\r\n")
            for number in range(2000):
                wire.send(f"X-{number}: {'a' * 100}\r\n".encode())
            wire.send(b"\r\n")
        answer = wire.receive()
        assert answer is None or 400 <= answer.status < 500
    assert runs(port, token) == []


def test_an_upgrade_that_is_not_understood_is_an_ordinary_request(service):
    port, token = service
    with Wire(port) as wire:
        wire.send(head("GET", "/livez", None, "Connection: Upgrade", "Upgrade: websocket"))
        assert wire.receive().status == 200
    with Wire(port) as wire:
        wire.send(request("POST", "/runs", token, b'{"payload": 1}', "Connection: Upgrade", "Upgrade: h2c"))
        answer = wire.receive()
        assert answer is None or answer.status in {201, 400, 408}


@pytest.mark.parametrize("late", [False, True])
def test_a_stream_ends_with_its_connection_also_if_a_request_was_sent_behind_it(loop, late):
    with served("memory://", settings=ApiSettings(max_streams=1), run=loop) as (port, token):
        for _ in range(3):
            with Wire(port) as wire:
                wire.send(head("GET", "/events", token))
                if not late:
                    wire.send(request("GET", "/livez"))
                begun_with = b""
                while b"retry" not in begun_with:
                    begun_with += wire.sock.recv(4096)
                if late:
                    assert ask(port, "GET", "/livez").status == 200  # by now the stream waits for its end
                    wire.send(request("GET", "/livez"))
                    assert ask(port, "GET", "/livez").status == 200  # by now that has arrived
            begun = time.monotonic()
            while ask(port, "GET", "/events?after=x", token).status != 422:  # not a stream, and always answered
                pass
            while True:
                with Wire(port) as wire:
                    wire.send(head("GET", "/events", token))
                    status = int(wire.sock.recv(4096).split()[1])
                if status == 200:
                    break
                assert time.monotonic() - begun < 10, "the stream never ended"  # less than a keep-alive
                time.sleep(0.05)


# --- too many


def test_idle_connections_give_way_to_new_ones(loop):
    with served("memory://", connections=ConnectionLimits(max_connections=5), run=loop) as (port, _):
        idle = [Wire(port) for _ in range(5)]
        for wire in idle[:3]:
            wire.send(request("GET", "/livez"))
            assert wire.receive().status == 200
        for _ in range(10):
            assert ask(port, "GET", "/livez").status == 200
        assert not all(wire.is_open() for wire in idle)
        for wire in idle:
            wire.sock.close()


def test_connections_at_work_do_not_give_way():
    with served("memory://", connections=ConnectionLimits(max_connections=3)) as (port, token):
        streams = [Wire(port) for _ in range(3)]
        for wire in streams:
            wire.send(head("GET", "/events", token))
            assert b"200 OK" in wire.sock.recv(4096)
        with Wire(port) as wire:
            answer = wire.receive()
            assert (answer.status, answer.headers["retry-after"]) == (503, "1")
            assert answer.problem["type"] == "urn:duly:problem:too-many-connections"
        assert all(wire.is_open() for wire in streams)
        for wire in streams:
            wire.sock.close()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_connections", 0),
        ("max_header_bytes", 10),
        ("max_request_line", 1),
        ("max_headers", 1),
        ("header_timeout", 0),
        ("body_timeout", -1),
        ("idle_timeout", 1e9),
    ],
)
def test_limits_have_limits(name, value):
    with pytest.raises(ConfigurationError, match=f"{name}={value}"):
        ConnectionLimits(**{name: value})


# --- TLS


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def certificate(authority, tmp_path):
    made = authority.issue_cert("localhost")
    made.private_key_pem.write_to_path(tmp_path / "key.pem")
    made.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    return str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")


def test_handshakes_that_never_end_hold_up_nobody(authority, certificate, loop):
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with served("memory://", connections=QUICK, tls=certificate, run=loop) as (port, token):
        stuck = [socket.create_connection(("127.0.0.1", port)) for _ in range(250)]
        with Wire(port, tls=context) as wire:
            wire.send(request("GET", "/runs", token))
            assert wire.receive().status == 200
        for sock in stuck:
            sock.settimeout(20)
            with suppress(ConnectionError):
                assert sock.recv(100) == b""
            sock.close()
        with Wire(port, tls=context) as wire:
            wire.send(request("POST", "/runs", token, b'{"payload": 1}'))
            assert wire.receive().status == 201


def test_many_connections_with_tls_at_once(authority, certificate):
    context = ssl.create_default_context()
    authority.configure_trust(context)
    statuses = []
    with served("memory://", tls=certificate) as (port, token):

        def call():
            with Wire(port, tls=context) as wire:
                wire.send(request("GET", "/runs", token))
                statuses.append(wire.receive().status)

        threads = [threading.Thread(target=call) for _ in range(30)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert statuses == [200] * 30
