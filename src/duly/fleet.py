"""Deprecated: the old name of `duly.job_files`."""

from duly.deprecation import renamed_names

__getattr__ = renamed_names(
    __name__,
    {
        "FleetFile": "duly.model.JobFile",
        "FleetFileError": "duly.job_files.JobFileError",
        "Problem": "duly.job_files.Problem",
        "read_file": "duly.job_files.read_file",
        "read_text": "duly.job_files.read_text",
    },
)
