"""A job system of the smallest kind, a folder with a file for each job, so that the runner can be tested with it."""

import json
import time
import uuid
from pathlib import Path

PACKAGES = ("msgspec",)


class Client:
    def __init__(self, url):
        self._folder = Path(url)

    def open(self):
        self._folder.mkdir(exist_ok=True)

    def submit(self, handler, payload):
        self.submit_at(handler, payload, 0)

    def submit_at(self, handler, payload, at):
        name = f"{at:017.6f}-{uuid.uuid4().hex}"
        whole = self._folder / f".{name}"
        whole.write_text(json.dumps({"handler": handler, "payload": payload}))
        whole.rename(self._folder / name)


client = Client


def work(stint, notes):
    folder = Path(stint.url)
    folder.mkdir(exist_ok=True)
    while True:
        for path in sorted(folder.glob("[0-9]*")):
            if float(path.name.partition("-")[0]) <= time.time():
                job = json.loads(path.read_text())
                path.unlink()
                getattr(notes, job["handler"])(**job["payload"])
        time.sleep(0.001)
