"""Processes of a deployment for tests: starting them, asking them over their ports, reading their logs."""

import json
import re
import signal
import urllib.error
import urllib.request

from tests.cli.cli_support import run_process, spawn

APP = """
import asyncio
from pathlib import Path
from duly import Every, Scheduler, SchedulerConfig

scheduler = Scheduler(config=SchedulerConfig(default_handler="note", lock_ttl=5.0))

@scheduler.job
async def note(payload: str = "") -> str:
    return payload

@scheduler.job
async def linger(mark: str) -> str:
    Path(f"{mark}.begun").touch()
    while not Path(f"{mark}.enough").exists():
        await asyncio.sleep(0.01)
    return mark
"""


class Process:
    """A `duly` process that is ended with the test."""

    def __init__(self, *arguments, folder, **environment):
        self.folder = folder
        env = {"DULY_URL": f"sqlite:///{folder}/duly.db", "LOG_FORMAT": "JSON", **environment}
        self.process = spawn(*arguments, folder=folder, **env)
        self.lines = []

    def line(self, pattern: str) -> re.Match:
        """The next line of the log that says this."""
        while True:
            text = self.process.stderr.readline()
            assert text, f"it ended without saying {pattern!r}: {''.join(self.lines)}"
            self.lines.append(text)
            if found := re.search(pattern, text):
                return found

    def port(self) -> int:
        return int(self.line(r'(?:API|metrics) on https?://[^"]*:(\d+)')[1])

    def signal(self, which=signal.SIGTERM):
        self.process.send_signal(which)

    def end(self) -> int:
        return self.process.wait(timeout=40)


def make_token(folder, role="admin", url=None):
    arguments = ("token", "create", "--role", role, "--url", url or f"sqlite:///{folder}/duly.db")
    code, output, errors = run_process(*arguments, folder=folder)
    assert code == 0, errors
    return output.strip()


def fetch(port, path, body=None, *, token=None, scheme="http", context=None, **headers):
    """A call over the network: status, headers, document."""
    data = None if body is None else json.dumps(body).encode()
    sent = {"content-type": "application/json"} | {key.replace("_", "-"): value for key, value in headers.items()}
    if token is not None:
        sent["authorization"] = f"Bearer {token}"
    request = urllib.request.Request(f"{scheme}://127.0.0.1:{port}{path}", data, sent)
    try:
        with urllib.request.urlopen(request, timeout=20, context=context) as response:
            return response.status, response.headers, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


def document(*arguments, **options):
    status, _, body = fetch(*arguments, **options)
    return status, json.loads(body)
