"""The SQLite backend passes the whole conformance suite."""

import tempfile
from pathlib import Path

import pytest

from duly.backends.sqlite import SqliteBackend, open_url
from duly.ports import Opening
from duly.testing.conformance import BackendSuite


class TestSqlite(BackendSuite):
    @pytest.fixture(autouse=True)
    def _folder(self):
        with tempfile.TemporaryDirectory() as folder:
            self.folder = Path(folder)
            yield

    def backend(self) -> SqliteBackend:
        file = Path(tempfile.mkdtemp(dir=self.folder), "duly.db")
        return open_url(f"sqlite:///{file}", Opening())
