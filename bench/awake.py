"""Keeping the cores awake during a measurement: on virtual machines waking one up takes longer than a submission.

Asks the kernel (`/dev/cpu_dma_latency`, for root), or else runs a loop of the lowest priority on each core.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LATENCY = Path("/dev/cpu_dma_latency")
_LOOP = "import os\nos.nice(19)\nwhile os.getppid() != 1: pass"


@contextmanager
def awake(wanted: bool) -> Iterator[None]:
    """Keep every core from falling asleep for the block."""
    if not wanted:
        yield
    elif os.access(_LATENCY, os.W_OK):
        with _LATENCY.open("wb", buffering=0) as wish:
            wish.write(struct.pack("i", 0))  # microseconds; the wish holds as long as this is open
            yield
    else:
        loops = [subprocess.Popen([sys.executable, "-c", _LOOP]) for _ in range(os.cpu_count() or 1)]
        try:
            yield
        finally:
            for each in loops:
                each.kill()
                each.wait()
