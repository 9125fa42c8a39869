"""Fleets from files: jobs that run plain commands, written in TOML. Reads and checks; the store says what stands."""

from duly.fleet.file import FleetFile, read_file, read_text
from duly.fleet.problems import FleetFileError, Problem

__all__ = ["FleetFile", "FleetFileError", "Problem", "read_file", "read_text"]
