"""Lines of JSON to whoever started this process, out of the way of anything that prints."""

from __future__ import annotations

import json
import os
import sys
from threading import Lock
from typing import Any


class Lines:
    """Takes standard output for itself: what a peer prints goes to standard error."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        self._lock = Lock()
        os.dup2(2, 1)
        sys.stdout = sys.stderr

    def say(self, **message: Any) -> None:
        with self._lock:
            self._out.write(json.dumps(message) + "\n")
            self._out.flush()
