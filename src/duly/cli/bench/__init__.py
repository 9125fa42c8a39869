"""`duly bench`: measures the performance that users see through the public API, on any backend.

Workers are separate processes if the store can be shared. Each result includes versions, processor time and memory.
"""

from duly.cli.bench.command import bench

__all__ = ["bench"]
