"""A file of jobs as a program: the scheduler that it describes, and what SIGHUP does to it."""

from __future__ import annotations

import logging

from duly.errors import DulyError
from duly.job_files import JobFile, JobFileError, read_file
from duly.model import SchedulerConfig
from duly.scheduler import Scheduler

_log = logging.getLogger("duly.job_files")


class JobFileProgram:
    """Runs the commands that definitions in the store name; the file says which jobs belong to it."""

    def __init__(self, file: JobFile, namespace: str | None) -> None:
        self._file = file
        env = {} if namespace is None else {"namespace": namespace}
        config = SchedulerConfig(allow_commands="stored", **{**env, **file.settings})
        self.scheduler = Scheduler(file.url, config)

    async def carry(self) -> None:
        """Bring the store in line with the file."""
        await self.scheduler.carry(self._file)

    async def reload(self) -> None:
        """Read the file again. Whatever is wrong with it, the node goes on with what it had."""
        path = self._file.path
        try:
            file = read_file(path)
            for message in file.deprecations:
                _log.warning("%s", message)
            self._refuse_rename(file)
            stands = await self.scheduler.carry(file)
        except JobFileError as exc:
            for problem in exc.problems:
                _log.error("%s", problem)
            _log.error("%s was not reloaded: what was in force stays", path)
        except DulyError as exc:
            _log.error("%s was not reloaded, what was in force stays: %s", path, exc)  # it says all
        else:
            if stands:
                _log.info("%s is reloaded: %d jobs", path, len(file.jobs))
            if (file.url, file.settings) != (self._file.url, self._file.settings):
                _log.warning("%s: the store and the node are set when a node starts; restart it for them", path)
            self._file = file

    def _refuse_rename(self, file: JobFile) -> None:
        """Under another name the old jobs would be nobody's."""
        if file.name != self._file.name:
            raise DulyError(f"the name {self._file.name!r} is now {file.name!r}: restart the node to use it")
