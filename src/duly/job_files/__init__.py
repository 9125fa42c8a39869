"""Job files: jobs that run plain commands, written in TOML. This package reads and checks them."""

from duly.job_files.problems import JobFileError, Problem
from duly.job_files.reader import read_file, read_text
from duly.model import JobFile

__all__ = ["JobFile", "JobFileError", "Problem", "read_file", "read_text"]
