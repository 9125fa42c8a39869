"""A client that speaks HTTP byte by byte, as slowly or as wrongly as it likes."""

import json
import socket
import ssl
from dataclasses import dataclass
from typing import Self


@dataclass
class Received:
    """One answer as it came over the wire."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def problem(self):
        assert self.headers["content-type"] == "application/problem+json", self
        assert self.json["status"] == self.status
        return self.json


class Wire:
    """One connection to a server on this machine."""

    def __init__(self, port: int, *, timeout: float = 20.0, tls: ssl.SSLContext | None = None):
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        if tls is not None:
            self.sock = tls.wrap_socket(self.sock, server_hostname="localhost")
        self._buffer = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc) -> None:
        self.sock.close()

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def receive(self) -> Received | None:
        """The next answer, None if the server has closed the connection without one."""
        while b"\r\n\r\n" not in self._buffer:
            if not self._more():
                return None
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        status = int(first.split()[1])
        length = int(headers.get("content-length", 0))
        while len(self._buffer) < length:
            assert self._more(), "the answer was cut off"
        body, self._buffer = self._buffer[:length], self._buffer[length:]
        return Received(status, headers, body)

    def _more(self) -> bool:
        try:
            data = self.sock.recv(65536)
        except ConnectionError:
            return False
        self._buffer += data
        return bool(data)

    def closed(self) -> bool:
        """Wait until the server has closed the connection."""
        while self._more():
            pass
        return True

    def is_open(self) -> bool:
        """Whether the connection is open now."""
        self.sock.setblocking(False)
        try:
            return self.sock.recv(1) != b""
        except BlockingIOError:
            return True
        except ConnectionError:
            return False
        finally:
            self.sock.settimeout(20.0)


def head(method: str, target: str, token: str | None = None, *headers: str) -> bytes:
    """The head of a request."""
    lines = [f"{method} {target} HTTP/1.1", "Host: localhost", *headers]
    if token is not None:
        lines.append(f"Authorization: Bearer {token}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def request(method: str, target: str, token: str | None = None, body: bytes = b"", *headers: str) -> bytes:
    """A whole request, with JSON in its body."""
    length = f"Content-Length: {len(body)}"
    return head(method, target, token, "Content-Type: application/json", length, *headers) + body


def ask(port: int, method: str, target: str, token: str | None = None, body: bytes = b"", *headers: str) -> Received:
    """One call on a connection of its own."""
    with Wire(port) as wire:
        wire.send(request(method, target, token, body, *headers))
        found = wire.receive()
        assert found is not None
        return found
