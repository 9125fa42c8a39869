"""Servers that receive notifications: HTTP and SMTP, real ones on this machine."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from aiosmtpd.controller import Controller


class Receiver:
    """An HTTP server that keeps requests. `status` is its answer; with `stall` it keeps the client waiting instead."""

    def __init__(self):
        self.requests = []
        self.status = 204
        self.stall = 0.0
        self.headers = {}
        self.released = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.requests.append((self.path, dict(self.headers), body))
                if receiver.stall:  # the client has gone by then
                    receiver.released.wait(receiver.stall)
                    return
                self.send_response(receiver.status)
                for name, value in receiver.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "4")
                self.end_headers()
                self.wfile.write(b"no.\n")

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self._server.server_address[1]}/hook?key=hidden"

    def messages(self):
        return [json.loads(body) for _, _, body in self.requests]

    def close(self):
        self.released.set()
        self._server.shutdown()
        self._server.server_close()


class _OwnPort(Controller):
    """A server on a port that the system chooses; aiosmtpd asks the port that it was given whether it answers."""

    def _trigger_server(self):
        self.port = self.server.sockets[0].getsockname()[1]
        super()._trigger_server()


class Mailbox:
    """An SMTP server that keeps messages."""

    def __init__(self):
        self.envelopes = []
        self.answer = "250 OK"
        self._controller = _OwnPort(self, hostname="127.0.0.1", port=0)
        self._controller.start()

    @property
    def url(self):
        return f"smtp://127.0.0.1:{self._controller.port}"

    async def handle_DATA(self, server, session, envelope):  # noqa: N802  # the name that aiosmtpd calls
        self.envelopes.append(envelope)
        return self.answer

    def close(self):
        self._controller.stop()
