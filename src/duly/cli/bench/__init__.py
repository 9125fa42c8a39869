"""`duly bench`: measures through the public API what users feel, on any backend.

Each measurement has its own module; workers are real processes where the store can be shared. Every figure comes with
versions, processor seconds and memory.
"""

from duly.cli.bench.command import bench

__all__ = ["bench"]
