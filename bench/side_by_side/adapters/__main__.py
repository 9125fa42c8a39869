"""One process of a peer, in the peer's own environment: a client, a worker, a keeper of time, or a preparation."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import logging
import os
import sys
import threading
from typing import Any

from bench.side_by_side.adapters.lines import Lines
from bench.side_by_side.adapters.notes import Notes, Stint, tell
from bench.side_by_side.adapters.submitting import answer


def main() -> None:
    stint = Stint(**json.loads(sys.argv[1]))
    lines = Lines()
    logging.disable(logging.WARNING)
    adapter = importlib.import_module(stint.adapter)
    match stint.role:
        case "versions":
            lines.say(versions={name: importlib.metadata.version(name) for name in adapter.PACKAGES})
        case "prepare":
            adapter.prepare(stint.url)
        case "client":
            answer(adapter.client(stint.url), lines)
        case "keeper":
            threading.Thread(target=_end_with_input, daemon=True).start()
            adapter.keep_time(stint)
        case _:
            _work(adapter, stint, lines)


def _end_with_input() -> None:
    """A keeper of time says nothing; it ends when whoever started it does."""
    sys.stdin.read()
    os._exit(0)


def _work(adapter: Any, stint: Stint, lines: Lines) -> None:
    """The worker has the main thread, as signal handlers and some peers want it."""
    notes = Notes()
    threading.Thread(target=tell, args=(notes, lines), daemon=True).start()
    lines.say(ready=True)
    adapter.work(stint, notes)


main()
