"""Load on the API, as `ab` makes it: `python bench/http_load.py [--url redis://…] [-n 10000] [-c 100] [--close]`.

Starts `duly serve` on a store (a Redis of its own, unless told otherwise), makes a token, and posts one small job again
and again over keep-alive connections, each sending its next call when the last is answered. `--close` opens a
connection per call, `--ab` lets ApacheBench do it. The client here is a bare protocol, so that it costs little.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import cast

from duly import Scheduler
from duly.scheduler.run_forever import fastest_loop
from duly.testing.servers import redis_server

APP = """
from duly import Scheduler, SchedulerConfig
scheduler = Scheduler(config=SchedulerConfig(default_handler="note"))

@scheduler.job
async def note(payload: str) -> None: ...
"""
BODY = {"payload": "process this order", "priority": 5}


class Connection(asyncio.Protocol):
    """One connection that posts until the count is used up, and notes how long each answer took."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._sent = 0.0
        self._buffer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by class
        if not self._load.close:
            self._post()

    def _post(self) -> None:
        assert self._transport is not None
        if self._load.left <= 0:
            self._transport.close()
            self._load.ended()
            return
        self._load.left -= 1
        self._sent = time.perf_counter()
        self._transport.write(self._load.request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, blank, rest = self._buffer.partition(b"\r\n\r\n")
        if not blank:
            return
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        if len(rest) < length:
            return
        self._buffer = b""
        self._load.took.append(time.perf_counter() - self._sent)
        self._load.failed += not head.startswith(b"HTTP/1.1 201")
        self._post()


class Load:
    """What is to be sent and what came of it."""

    def __init__(self, request: bytes, count: int, concurrency: int, *, close: bool) -> None:
        self.request = request
        self.left = count
        self.close = close
        self.failed = 0
        self.took: list[float] = []
        self._open = concurrency
        self._over = asyncio.Event()

    def ended(self) -> None:
        self._open -= 1
        if self._open == 0:
            self._over.set()

    async def run(self, port: int, concurrency: int) -> float:
        began = time.perf_counter()
        if self.close:
            await asyncio.gather(*[self._one_by_one(port) for _ in range(concurrency)])
        else:
            loop = asyncio.get_running_loop()
            for _ in range(concurrency):
                await loop.create_connection(lambda: Connection(self), "127.0.0.1", port)
            await self._over.wait()
        return time.perf_counter() - began

    async def _one_by_one(self, port: int) -> None:
        while self.left > 0:
            self.left -= 1
            began = time.perf_counter()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(self.request)
            answer = await reader.read()
            writer.close()
            self.took.append(time.perf_counter() - began)
            self.failed += not answer.startswith(b"HTTP/1.1 201")


def request_of(port: int, token: str, *, close: bool) -> bytes:
    body = json.dumps(BODY).encode()
    lines = [
        "POST /jobs HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        f"Authorization: Bearer {token}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *(["Connection: close"] if close else []),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@contextmanager
def serving(url: str, folder: Path, processes: int) -> Iterator[tuple[int, str, int]]:
    """A server on this store: its port, a token, its process (with several, their supervisor)."""
    (folder / "load_app.py").write_text(APP)
    environment = {**os.environ, "DULY_URL": url}
    duly = [sys.executable, "-m", "duly"]
    made = subprocess.run(
        [*duly, "token", "create", "--role", "submitter"],
        cwd=folder,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    server = subprocess.Popen(
        [*duly, "serve", "load_app", "--http", "127.0.0.1:0", "--processes", str(processes)],
        cwd=folder,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stderr is not None
    try:
        while not (found := re.search(r"API on http://127.0.0.1:(\d+)", server.stderr.readline())):
            assert server.poll() is None, "the server did not start"
        yield int(found[1]), made.stdout.strip(), server.pid
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate()


def cpu_of(pid: int) -> float:
    """Seconds of CPU that a process and its children have used."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return own + sum(cpu_of(int(child)) for child in children)


def by_ab(port: int, token: str, count: int, concurrency: int, folder: Path, *, close: bool) -> dict[str, float]:
    """The same by ApacheBench."""
    (folder / "job.json").write_text(json.dumps(BODY))
    command = ["ab", "-q", "-n", str(count), "-c", str(concurrency), "-p", "job.json", "-T", "application/json"]
    command += [*([] if close else ["-k"]), "-H", f"Authorization: Bearer {token}", f"http://127.0.0.1:{port}/jobs"]
    told = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout

    def figure(pattern: str) -> float:
        found = re.search(pattern, told)
        return 0.0 if found is None else float(found[1])

    return {
        "requests/s": round(figure(r"Requests per second: +([0-9.]+)")),
        "failed": figure(r"Failed requests: +([0-9]+)") + figure(r"Non-2xx responses: +([0-9]+)"),
        "p50 ms": figure(r"50% +([0-9]+)"),
        "p99 ms": figure(r"99% +([0-9]+)"),
    }


async def by_hand(port: int, token: str, count: int, concurrency: int, *, close: bool) -> dict[str, float]:
    load = Load(request_of(port, token, close=close), count, concurrency, close=close)
    seconds = await load.run(port, concurrency)
    took = sorted(load.took)
    return {
        "requests/s": round(len(took) / seconds),
        "failed": load.failed,
        "p50 ms": round(took[len(took) // 2] * 1000, 2),
        "p99 ms": round(took[len(took) * 99 // 100] * 1000, 2),
    }


@contextmanager
def working(url: str, folder: Path) -> Iterator[None]:
    """A worker in a process of its own."""
    environment = {**os.environ, "DULY_URL": url}
    worker = subprocess.Popen(
        [sys.executable, "-m", "duly", "worker", "load_app", "--http", "127.0.0.1:0"],
        cwd=folder,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert worker.stderr is not None
    try:
        while "started on" not in worker.stderr.readline():
            assert worker.poll() is None, "the worker did not start"
        yield
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.communicate()


def starts(url: str, port: int, token: str, count: int) -> dict[str, float]:
    """How long after its POST was sent a run begins in an idle worker, one after the other."""

    async def begun(run_ids: list[str]) -> list[float]:
        async with Scheduler(url).client() as scheduler:
            return [await _began(scheduler, run_id) for run_id in run_ids]

    connection = http.client.HTTPConnection("127.0.0.1", port)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    sent, ids = [], []
    for _ in range(count):
        sent.append(time.time())
        connection.request("POST", "/jobs", json.dumps(BODY), headers)
        ids.append(json.loads(connection.getresponse().read())["id"])
        time.sleep(0.02)
    late = sorted(began - at for began, at in zip(asyncio.run(begun(ids)), sent, strict=True))
    return {"p50 ms": round(late[count // 2] * 1000, 2), "p99 ms": round(late[count * 99 // 100] * 1000, 2)}


async def _began(scheduler: Scheduler, run_id: str) -> float:
    run = await (await scheduler.opened()).ended(run_id, 60)
    assert run.started_at is not None
    return run.started_at.timestamp()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url")
    parser.add_argument("-n", "--count", type=int, default=10_000)
    parser.add_argument("-c", "--concurrency", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=1, help="processes that serve the port")
    parser.add_argument("--close", action="store_true")
    parser.add_argument("--ab", action="store_true", help="by ab, from the package apache2-utils")
    parser.add_argument("--starts", type=int, default=0, help="so many jobs, one by one: when a worker begins them")
    parser.add_argument("--hold", action="store_true", help="keep serving until Enter, to look at the process")
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = given.url or stack.enter_context(redis_server()).url
        port, token, pid = stack.enter_context(serving(url, folder, given.processes))
        if given.starts:
            stack.enter_context(working(url, folder))
            print(starts(url, port, token, given.starts))
            return
        for _ in range(given.rounds):
            before = cpu_of(pid)
            if given.ab:
                found = by_ab(port, token, given.count, given.concurrency, folder, close=given.close)
            else:
                with asyncio.Runner(loop_factory=fastest_loop()) as runner:
                    found = runner.run(by_hand(port, token, given.count, given.concurrency, close=given.close))
            print({**found, "server µs per call": round((cpu_of(pid) - before) / given.count * 1e6, 1)})
        if given.hold:
            input(f"process {pid}, port {port}: ")


if __name__ == "__main__":
    main()
